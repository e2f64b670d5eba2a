"""Directory of installed peers, outside the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from edge.bench.peers.peer_error import PeerError

_LONGEST: Final = 1_800
"""Time limit for the build of a peer (s)."""


def default_cache() -> Path:
    """Return the directory of the cache by the XDG Base Directory Specification."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "sepa-edge" / "peers"


@contextmanager
def installing(target: Path) -> Iterator[Path]:
    """Yield a new directory that becomes `target` at the exit, so that a failed installation leaves nothing behind."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as directory:
        made = Path(directory) / target.name
        made.mkdir()
        yield made
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)


def run_tool(command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> str:
    """Run a build tool and return its output. Raises `PeerError` with the end of its messages if it fails."""
    merged = {**os.environ, **(environment or {})}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=merged, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]} failed: {error}") from None
    if done.returncode:
        raise PeerError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-1_000:]}")
    return done.stdout
