"""Install the Debian package on machines that run systemd, and run the tests under the settings of its service.

As root, on Debian or Ubuntu with the packages mmdebstrap and systemd-container:

    .venv/bin/python -m images.install_test     # on Debian 13; --suite bookworm: Debian 12
    ... --only life     # the package: installed, upgraded, removed, installed again, purged
    ... --only tests    # the tests as edge.service; words after -- go to pytest
    ... --work DIR      # keep the systems there, for the next run

The machines are Debian systems that systemd-nspawn starts, each with its own isolated network. The services of this
machine are not changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from images import lifecycle, sandbox
from images.checks import Failed
from images.container import Container

HERE = Path(__file__).parent
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
SYSTEM = ("systemd", "systemd-sysv", "dbus", "ca-certificates")


def main() -> int:
    """Run both parts, or the one that `--only` names."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--suite", choices=("trixie", "bookworm"), default="trixie")
    options.add_argument("--only", choices=("life", "tests"))
    options.add_argument("--work", type=Path, metavar="DIR", help="work there, and leave the systems behind")
    options.add_argument("--mirror", default="http://deb.debian.org/debian", metavar="URL")
    options.add_argument("words", nargs="*", metavar="WORD", help="for pytest, instead of the tests of the main job")
    given = options.parse_args()
    missing = [name for name in ("mmdebstrap", "systemd-nspawn", "nsenter", "dpkg-deb") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        options.error(
            f"this needs root, {', '.join(missing) or 'and nothing else'}; "
            "docs/development/package-tests.md names the packages"
        )
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="install-test-") as temporary:
        work = (given.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        try:
            base = Container.made(work / given.suite, given.suite, SYSTEM, given.mirror)
            print(f"     (a system of {given.suite} after {time.monotonic() - began:.0f} s)", flush=True)
            if given.only != "tests":
                lifecycle.life(base, package(given.suite, work), work)
            if given.only != "life":
                sandbox.runs(sandbox.machine(base, work / f"{given.suite}-tests"), given.words)
        except Failed as failure:
            print(f"FAIL {failure}", flush=True)
            return 1
    print(f"the package can be lived with ({time.monotonic() - began:.0f} s)")
    return 0


def package(suite: str, work: Path) -> Path:
    """Build the package of these sources, and return its path."""
    command: list[str | Path] = [
        HERE / "package",
        "--arch",
        MACHINES[os.uname().machine],
        "--suite",
        suite,
        "--out",
        work,
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
