"""Record of the last runs in the data directory, written when a run begins and when it ends.

A killed run, or one that lost its power, records no end. The kernel's boot id (`/proc/sys/kernel/random/boot_id`), new
at each start of the host, distinguishes the two.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from edge import durable

_log = logging.getLogger(__name__)

NAME: Final = "last-run.json"

REASONS: Final = {
    "first": "nothing ran before on this data directory",
    "stopped": "it was stopped in order",
    "crashed": "it was killed, or crashed, while the machine ran on",
    "power": "power cut or reset of the machine",
    "lost": "it could not mend itself and ended",
    "stuck": "its event loop stood still and it ended",
    "stop_timeout": "it did not stop in time and was ended",
    "start_failed": "it could not start",
    "restored": "the data directory was restored from a backup",
    "restore_undone": "a restored backup could not be used, and the data from before it are back",
    "unknown": "its record cannot be read",
}
"""Reasons why a run was started, with their meanings."""

_KEPT: Final = 10
"""Earlier runs in the record."""
_LONGEST: Final = 200
"""Maximum characters of a detail."""
_SIZE: Final = 4096
"""Fixed size of the file in bytes, so that it can be overwritten on a full disk."""
_PATIENCE: Final = 1.0
"""Seconds for the record of a process that ends now: the disk may not respond."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a gateway. Times are in UTC, ISO 8601."""

    version: str
    boot: str
    """Boot id of the host; empty if not known."""
    started: str
    ended: str = ""
    """End of the run. Empty if it is running, or its end was not recorded."""
    reason: str = ""
    """One of `REASONS`, once known."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Content of the file."""

    starts: int
    """Number of runs on this data directory."""
    run: Run
    before: tuple[Run, ...] = ()
    """Earlier runs, the latest first."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Reason why the gateway was started: the end of the previous run."""

    reason: str
    """One of `REASONS`."""
    detail: str = ""
    ended: str = ""
    """End of the previous run, if known; UTC, ISO 8601."""
    upgraded_from: str = ""
    """Previous version, if it was another one."""
    starts: int = 1
    """Number of runs, including this one."""

    @property
    def text(self) -> str:
        """Return a sentence without its full stop."""
        detail = f" ({self.detail})" if self.detail else ""
        upgraded = f"; version {self.upgraded_from} ran before" if self.upgraded_from else ""
        return f"{REASONS[self.reason]}{detail}{upgraded}"

    def to_message(self) -> dict[str, object]:
        """Return the member of `/health`."""
        return {**asdict(self), "text": self.text}


@dataclass(slots=True)
class LastRun:
    """Record of the run of this process. Thread-safe."""

    file: Path
    record: RunRecord
    restart: Restart
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begin(cls, data_dir: Path, version: str, boot: str | None = None) -> LastRun:
        """Determine how the last run ended, and record the begin of this one.

        The caller must hold the lock of the directory. `boot`: the boot id, if not that of the host. A failure to write
        is logged and does not prevent the start.
        """
        file = data_dir / NAME
        boot = boot_id() if boot is None else boot
        before: tuple[Run, ...] = ()
        starts = 0
        try:
            found = read(data_dir)
        except FileNotFoundError:
            restart = Restart("first")
        except (OSError, ValueError) as error:
            restart = Restart("unknown", detail=str(error)[:_LONGEST])
        else:
            last = concluded(found.run, boot)
            before, starts = (last, *found.before)[:_KEPT], found.starts
            upgraded = last.version if last.version != version else ""
            restart = Restart(last.reason, last.detail, last.ended, upgraded, starts + 1)
        began = cls(file, RunRecord(starts + 1, Run(version, boot, _now()), before), restart)
        began._write()
        return began

    def end(self, reason: str, detail: str = "") -> None:
        """Record the end of this run. The first reason counts, because later ones are its consequences.

        Except after an orderly stop, which may still fail.
        """
        with self._lock:
            if self.record.run.reason not in ("", "stopped"):
                return
            ended = replace(self.record.run, ended=_now(), reason=reason, detail=_short(detail))
            self.record = replace(self.record, run=ended)
            self._write()

    def last_words(self, reason: str, detail: str = "") -> None:
        """The same for a process that ends now: it waits for the disk only for a short time."""
        # A daemon, so that a disk that does not respond does not keep the process alive.
        speaking = threading.Thread(target=self.end, args=(reason, detail), name="last-words", daemon=True)
        speaking.start()
        speaking.join(_PATIENCE)

    def _write(self) -> None:
        try:
            write(self.file.parent, self.record)
        except OSError as error:
            _log.error("last_run.not_written", extra={"file": str(self.file), "reason": str(error)})


def concluded(run: Run, boot: str) -> Run:
    """Return a finished run with its reason, as seen from a host with this boot id."""
    if run.reason:
        return run
    return replace(run, reason="power" if run.boot and boot and run.boot != boot else "crashed")


def read(data_dir: Path) -> RunRecord:
    """Return the record. Raises `OSError` without the file, `ValueError` for an invalid one."""
    try:
        found = json.loads((data_dir / NAME).read_text(encoding="utf-8"))
        record = RunRecord(int(found["starts"]), _run(found["run"]), tuple(_run(one) for one in found["before"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{NAME} is not what a gateway writes") from error
    return record


def write(data_dir: Path, record: RunRecord) -> None:
    """Write the file atomically, or overwrite it if the disk is full. Raises `OSError`."""
    file = data_dir / NAME
    content = _encoded(record)
    try:
        durable.write(file, content, draft=file.with_suffix(".part"))
    except OSError:
        with file.open("r+b") as old:  # the disk is full
            old.write(content)


def restored(old: Path, new: Path, version: str) -> None:
    """Record the reason in a data directory that replaces another one. Raises `OSError`."""
    _insert(old, new, version, "restored", "")


def undone(data_dir: Path, version: str, detail: str) -> None:
    """Record that a restored backup was taken back because of `detail`. Raises `OSError`."""
    _insert(data_dir, data_dir, version, "restore_undone", detail)


def _insert(old: Path, new: Path, version: str, reason: str, detail: str) -> None:
    """Write the record of `old` into `new`, with a run that has just ended for this reason."""
    now = _now()
    run = Run(version, boot_id(), now, now, reason, _short(detail))
    try:
        found = read(old)
    except (OSError, ValueError):
        write(new, RunRecord(0, run))
    else:
        write(new, RunRecord(found.starts, run, (concluded(found.run, run.boot), *found.before)[:_KEPT]))


def boot_id(file: Path = _BOOT) -> str:
    """Return the boot id of the host; empty if the kernel does not report it."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _encoded(record: RunRecord) -> bytes:
    while True:
        text = json.dumps(asdict(record), indent=1).encode()
        if len(text) < _SIZE or not record.before:
            return text.ljust(_SIZE - 1) + b"\n"
        record = replace(record, before=record.before[:-1])


def _run(found: Mapping[str, object]) -> Run:
    run = Run(**{name: _short(str(value)) for name, value in found.items()})
    if run.reason and run.reason not in REASONS:
        raise ValueError(f"no such reason: {run.reason}")
    return run


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
