"""Diagnostic data in one archive: bounded in size and time, without secrets and graph data."""

from __future__ import annotations

import io
import json
import os
import platform
import sqlite3
import stat
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Final

from edge import __version__, last_run
from edge.config.reference import to_toml
from edge.doctor.all_checks import examine
from edge.doctor.checks.units import UNIT
from edge.doctor.context import DoctorContext, Unasked
from edge.doctor.redaction import Redactor

_LARGEST: Final = 2 * 1024 * 1024
"""Maximum characters of a file in the archive."""
_LINES: Final = 5_000
"""Maximum lines of a log."""
_FILES: Final = 2_000
"""Maximum entries in the list of the data directory."""

_ANSWERS: Final = {
    "health.json": "health",
    "metrics.txt": "metrics",
    "engine.json": "api/engine",
    "outbox.json": "api/outbox",
    "endpoints.json": "api/endpoints",
}
"""Requests to the gateway: file in the archive and path."""
_OF_THE_MACHINE: Final = (
    "etc/os-release",
    "proc/version",
    "proc/uptime",
    "proc/loadavg",
    "proc/meminfo",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/pressure/memory",
    "proc/self/mounts",
    "proc/diskstats",
    "proc/device-tree/model",
)
"""Files of the host. None of them identifies the host, its networks or its user."""

Part = tuple[str, Callable[[], str]]


def collect(
    around: DoctorContext, redactor: Redactor, target: Path, *, sources: dict[str, str], logs: Iterable[Path] = ()
) -> list[str]:
    """Write the archive, readable for its owner only. Returns the names in it.

    `sources`: origins of the settings. `logs`: log files, in addition to the journal of systemd. Unavailable data are
    replaced by the reason. Raises `OSError`, for example FileExistsError for an existing archive.
    """
    names = []
    # O_EXCL refuses existing files and links: the doctor may run as root in a directory of another user.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, part in _parts(around, sources, logs):
                # Redact before truncation: a secret cut in two would not be recognised.
                content = _bounded(redactor.clean(_text(part))).encode("utf-8", "replace")
                member = tarfile.TarInfo(f"edge-diag/{name}")
                member.size, member.mode, member.mtime = len(content), 0o600, int(time.time())
                archive.addfile(member, io.BytesIO(content))
                names.append(name)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return names


def _parts(around: DoctorContext, sources: dict[str, str], logs: Iterable[Path]) -> Iterator[Part]:
    yield "version.txt", _versions
    yield "doctor.json", lambda: _doctor(around)
    yield "settings.toml", lambda: to_toml(around.settings, sources)
    answers = _Answers(around)
    for name, path in _ANSWERS.items():
        yield name, lambda path=path: answers.to(path)  # type: ignore[misc]  # mypy does not see the default
    yield (
        "last-run.json",
        lambda: (around.data_dir / last_run.NAME).read_text(encoding="utf-8", errors="replace").strip(),
    )
    yield "files.txt", lambda: _files(around.data_dir)
    yield "machine.txt", lambda: _machine(around)
    yield "units.txt", lambda: _commands(around, ("status", UNIT), ("list-units", "--state=failed"))
    yield "log.txt", lambda: _journal(around)
    for number, log in enumerate(logs, 1):
        yield f"log-{number}.txt", lambda log=log: _tail(log)  # type: ignore[misc]


def _text(part: Callable[[], str]) -> str:
    try:
        return part() + "\n"
    except Exception as error:  # noqa: BLE001  what is broken is what one wants to know, and the rest, too
        return f"not available: {type(error).__name__}: {error}\n"


def _bounded(text: str) -> str:
    """Return the end of a long text, which has the newest content."""
    return text if len(text) <= _LARGEST else f"(the beginning is cut off)\n{text[-_LARGEST:]}"


def _versions() -> str:
    found = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "sepa-edge": __version__,
        "python": sys.version,
        "sqlite": sqlite3.sqlite_version,
        "kernel": platform.release(),
        "machine": platform.machine(),
    }
    packages = sorted(f"{one.name} {one.version}" for one in distributions())
    return "\n".join([*(f"{name}: {value}" for name, value in found.items()), "", *packages])


def _doctor(around: DoctorContext) -> str:
    rows = [{"check": name, **found.row()} for name, found in examine(around)]
    return json.dumps(rows, indent=1, ensure_ascii=False)


class _Answers:
    """Requests to the gateway. After one without an answer the others are skipped: each would time out."""

    def __init__(self, around: DoctorContext) -> None:
        self._around = around
        self._fault = ""

    def to(self, path: str) -> str:
        """Return the response, with its status unless it is 200."""
        if self._fault:
            return f"not requested: {self._fault}"
        try:
            status, body = self._around.ask(path)
        except Unasked as error:
            self._fault = str(error)
            return f"no answer: {self._fault}"
        text = body.decode("utf-8", "replace")
        return text if status == 200 else f"{status}\n{text}"


def _files(data_dir: Path) -> str:
    """Return names, sizes, modes and times, without content."""
    lines = []
    for path in sorted(data_dir.rglob("*"))[:_FILES]:
        status = path.lstat()
        when = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
        name = path.relative_to(data_dir).as_posix()
        lines.append(f"{stat.filemode(status.st_mode)} {status.st_uid:>6} {status.st_size:>12} {when} {name!r}")
    return "\n".join(lines)


def _machine(around: DoctorContext) -> str:
    place = os.statvfs(around.data_dir)
    room = f"{place.f_bavail * place.f_frsize} bytes free of {place.f_blocks * place.f_frsize}, {place.f_favail} inodes"
    texts = [f"## data directory\n{room}", f"## processors\n{os.cpu_count()}"]
    texts += [f"## /{name}\n{around.text(name) or 'not there'}" for name in _OF_THE_MACHINE]
    if around.process is not None:
        own = [f"proc/{around.process}/{name}" for name in ("status", "io", "limits")]
        texts += [f"## /{name}\n{around.text(name) or 'not for this user'}" for name in own]
    return "\n\n".join(texts)


def _commands(around: DoctorContext, *commands: tuple[str, ...]) -> str:
    sections = []
    for command in commands:
        said = around.run("systemctl", *command, "--no-pager", "--full", "--lines=0")
        sections.append(f"## systemctl {' '.join(command)}\n{said if said is not None else 'not there'}")
    return "\n".join(sections)


def _journal(around: DoctorContext) -> str:
    said = around.run("journalctl", f"--unit={UNIT}", f"--lines={_LINES}", "--no-pager", "--output=short-iso")
    return "the journal of systemd is not available" if said is None else said


def _tail(log: Path) -> str:
    with log.open(encoding="utf-8", errors="replace") as file:
        return "".join(deque(file, maxlen=_LINES))
