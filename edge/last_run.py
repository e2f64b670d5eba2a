"""How the last run of the gateway ended: a small file in the data directory, written when one begins and when it ends.

A run that was killed, or whose machine lost its power, writes no end. Which of the two it was tells the kernel: each
start of a machine has a number of its own (`/proc/sys/kernel/random/boot_id`).
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
    "unknown": "its record cannot be read",
}
"""Why a run is not the first one, or that it is, and what that means."""

_KEPT: Final = 10
"""Runs before the last that are remembered."""
_LONGEST: Final = 200
"""Characters of a detail."""
_SIZE: Final = 4096
"""Bytes of the file: with a fixed size it can be written over where the disk has no room for another one."""
_PATIENCE: Final = 1.0
"""Seconds for the last words of a process that cannot wait: the disk may be what does not answer."""
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a gateway. Times are in UTC, ISO 8601."""

    version: str
    boot: str
    """Of the machine; empty: not known."""
    started: str
    ended: str = ""
    """Empty: it runs, or nobody could write down that it ended."""
    reason: str = ""
    """One of `REASONS`, once it is known how it ended."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """What the file holds."""

    starts: int
    """Runs so far on this data directory."""
    run: Run
    before: tuple[Run, ...] = ()
    """Those before, the latest first."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Why a gateway has been started: how the run before it ended."""

    reason: str
    """One of `REASONS`."""
    detail: str = ""
    ended: str = ""
    """When, where that is known; UTC, ISO 8601."""
    upgraded_from: str = ""
    """The version that ran before, where it was another one."""
    starts: int = 1
    """Runs so far, this one included."""

    @property
    def text(self) -> str:
        """A sentence for people, without its full stop."""
        detail = f" ({self.detail})" if self.detail else ""
        upgraded = f"; version {self.upgraded_from} ran before" if self.upgraded_from else ""
        return f"{REASONS[self.reason]}{detail}{upgraded}"

    def to_message(self) -> dict[str, object]:
        """As `/health` has it."""
        return {**asdict(self), "text": self.text}


@dataclass(slots=True)
class LastRun:
    """The record of the run of this process. Its methods may be called from any thread."""

    file: Path
    record: Record
    restart: Restart
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def begin(cls, data_dir: Path, version: str, boot: str | None = None) -> LastRun:
        """Conclude how the last run ended, and write down that this one begins.

        To be called by who holds the lock of the directory. `boot`: another number than that of the machine. A disk
        that does not take it is logged, and no reason not to start.
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
        began = cls(file, Record(starts + 1, Run(version, boot, _now()), before), restart)
        began._write()
        return began

    def end(self, reason: str, detail: str = "") -> None:
        """Write down how this run ended. The first reason counts, all that follows is its consequence; but a stop that
        began in order need not end so."""
        with self._lock:
            if self.record.run.reason not in ("", "stopped"):
                return
            ended = replace(self.record.run, ended=_now(), reason=reason, detail=_short(detail))
            self.record = replace(self.record, run=ended)
            self._write()

    def last_words(self, reason: str, detail: str = "") -> None:
        """The same for a process that is about to end whatever happens: it waits for the disk a moment, no longer."""
        speaking = threading.Thread(target=self.end, args=(reason, detail), name="last-words", daemon=True)
        speaking.start()
        speaking.join(_PATIENCE)

    def _write(self) -> None:
        try:
            write(self.file.parent, self.record)
        except OSError as error:
            _log.error("last_run.not_written", extra={"file": str(self.file), "reason": str(error)})


def concluded(run: Run, boot: str) -> Run:
    """A run that is over, with how it ended, as seen from a machine with this boot number."""
    if run.reason:
        return run
    return replace(run, reason="power" if run.boot and boot and run.boot != boot else "crashed")


def read(data_dir: Path) -> Record:
    """What stands there. Raises `OSError` where there is no file, `ValueError` where it is not one of ours."""
    try:
        found = json.loads((data_dir / NAME).read_text(encoding="utf-8"))
        record = Record(int(found["starts"]), _run(found["run"]), tuple(_run(one) for one in found["before"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{NAME} is not what a gateway writes") from error
    return record


def write(data_dir: Path, record: Record) -> None:
    """Put the file there as a whole, where there is room; else over the one that is there. Raises `OSError`."""
    file = data_dir / NAME
    content = _encoded(record)
    try:
        durable.write(file, content, draft=file.with_suffix(".part"))
    except OSError:
        with file.open("r+b") as old:  # the disk is full
            old.write(content)


def restored(old: Path, new: Path, version: str) -> None:
    """Write into a data directory that takes the place of another one why that was. Raises `OSError`."""
    now = _now()
    run = Run(version, boot_id(), now, now, "restored")
    try:
        found = read(old)
    except (OSError, ValueError):
        write(new, Record(0, run))
    else:
        write(new, Record(found.starts, run, (concluded(found.run, run.boot), *found.before)[:_KEPT]))


def boot_id(file: Path = _BOOT) -> str:
    """The number of this start of the machine; empty where the kernel does not tell."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _encoded(record: Record) -> bytes:
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
