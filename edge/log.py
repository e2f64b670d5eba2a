"""Log lines: one line an event, text for a terminal and JSON for machines, never a secret.

An event is logged with the standard library: a constant message and its facts as `extra`, e.g.
`logger.warning("broker is gone", extra={"broker": url, "retry_in": 2.0})`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, TextIO

from edge.log_limit import LineLimit
from edge.log_memory import LogMemory

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message", "taskName"}

_CHATTY: Final = ("amqtt", "asyncio", "httpcore", "httpx", "paho", "transitions", "uvicorn", "websockets")
"""Loggers of libraries of which only warnings are logged."""

_SECRET_NAME: Final = re.compile(r"passw|secret|token|authorization|credential|api_?key", re.IGNORECASE)
_SECRET_TEXT: Final = re.compile(
    r"(?P<bearer>\bbearer\s+|\bauthorization\W+\w+\s+)[\w.~+/=-]{16,}"
    r"|(?P<user>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)"
    r"|(?P<pair>\b(?:password|client_secret|access_token)\b[\"']?\s*[=:]\s*)[\"']?[^\s\"',;&]+",
    re.IGNORECASE,
)
_REDACTED: Final = "***"

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "text", "json"]


def configure(level: Level = "info", form: Format = "auto") -> LogMemory:
    """Send the process's log lines to standard error. `form` "auto": text on a terminal, JSON elsewhere.

    Returns the memory of the last lines.
    """
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    memory = LogMemory()
    handler = LimitedHandler(sys.stderr, memory)
    handler.setFormatter(TextFormatter() if form == "text" else JsonFormatter())
    root = logging.getLogger()
    # Handlers that are there already would write each line a second time.
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    threshold: int = getattr(logging, level.upper())
    root.setLevel(threshold)
    for name in _CHATTY:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(max(threshold, logging.WARNING) if level != "debug" else logging.INFO)
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a log line that cannot be written must not stop the gateway
    return memory


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Handler that applies a `LineLimit`: no client can fill the log, or wear out the card that it is stored on.

    The lines are also kept in memory, as JSON.
    """

    def __init__(self, stream: TextIO, memory: LogMemory | None = None) -> None:
        super().__init__(stream)
        self._lines = LineLimit()
        self._memory = LogMemory() if memory is None else memory
        self._json = JsonFormatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record unless its source is over the limit, and report sources that have become quiet."""
        for summary in self._lines.summaries(record.created):
            self._write(summary)
        if self._lines.passes(record):
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        super().emit(record)
        self._memory.add(record.levelname.lower(), self._json.format(record))

    def close(self) -> None:
        """Report what was suppressed up to the end of the process."""
        for summary in self._lines.summaries():
            super().emit(summary)
        super().close()


class JsonFormatter(logging.Formatter):
    """`{"time":..,"level":..,"logger":..,"event":..,KEY:..}`, times in UTC (RFC 3339)."""

    def format(self, record: logging.LogRecord) -> str:
        """One event as one line of JSON."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
        }
        line.update((key, value) for key, value in _facts(record).items() if key not in line)
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = redact("".join(traceback.format_exception(record.exc_info[1])))
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER EVENT KEY=VALUE ...`, times local."""

    def format(self, record: logging.LogRecord) -> str:
        """One event as one line of text."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        parts = [time, f"{record.levelname:<7}", record.name, _escaped(_event(record))]
        parts += [f"{key}={_quoted(value)}" for key, value in _facts(record).items()]
        return " ".join(parts)


def redact(text: str) -> str:
    """Return the text without credentials: bearer tokens, passwords in URLs and in key=value pairs."""
    return _SECRET_TEXT.sub(lambda match: (match["bearer"] or match["user"] or match["pair"]) + _REDACTED, text)


def _event(record: logging.LogRecord) -> str:
    try:
        return redact(record.getMessage())
    except (TypeError, ValueError):  # a message of a library that does not match its arguments
        return redact(str(record.msg))


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts: dict[str, object] = {}
    for key, value in vars(record).items():
        if key in _STANDARD:
            continue
        if _SECRET_NAME.search(key):
            facts[key] = _REDACTED
        else:
            facts[key] = value if isinstance(value, bool | int | float) or value is None else redact(str(value))
    if record.exc_info and (error := record.exc_info[1]) is not None:
        facts["error"] = redact(f"{type(error).__name__}: {error}")
        if frames := traceback.extract_tb(error.__traceback__):
            facts["at"] = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
    return facts


def _quoted(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())


def _escaped(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1]
