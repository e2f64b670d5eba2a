"""The brackets of a window clause, and the report policy after them. The syntax is in `edge.streams.language`."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.sparql.tokens import Token
from edge.streams.language.durations import duration_text, time_text
from edge.streams.language.reader import Reader
from edge.streams.model import ReportPolicy, WindowDefinition, WindowKind

_KINDS: Final = "RANGE, TRIPLES, ELEMENTS, LANDMARK or SESSION"
_REPORTS: Final = "Write ON CLOSE, ON CHANGE, NON EMPTY or EVERY and a duration."
_COUNTS: Final = {"ELEMENTS": WindowKind.COUNT, "TRIPLES": WindowKind.TRIPLES}


class Times(NamedTuple):
    """Times of a registration, in microseconds since 1970."""

    t0: int
    """Alignment of time windows without START."""
    now: int
    """Beginning of windows with LANDMARK NOW."""


class WindowClause(NamedTuple):
    """A window clause with unresolved names."""

    name: Token | None
    """IRI of its graph; None: the default graph."""
    stream: Token
    definition: WindowDefinition
    """Its stream is empty."""


def read_brackets(reader: Reader, times: Times) -> WindowDefinition:
    """Read the brackets of a window. Raises `SparqlError`."""
    if not reader.accept("["):
        reader.expected("A window in square brackets", "Write for example [RANGE PT10S STEP PT5S] after the stream.")
    definition = _content(reader, times)
    if reader.token.word() == "SLIDE":
        reader.refuse("SLIDE is not a keyword of windows", "Write STEP.")
    if not reader.accept("]"):
        reader.expected("]", "The parts of a window are in this order: kind, size, STEP or TUMBLING, START.")
    return definition


def _content(reader: Reader, times: Times) -> WindowDefinition:
    if reader.accept_word("LANDMARK"):
        return _landmark(reader, times.now)
    if reader.accept_word("SESSION"):
        return WindowDefinition("", WindowKind.SESSION, reader.duration(), 0)
    is_range = reader.accept_word("RANGE")
    kind = _COUNTS.get(reader.token.word())
    # C-SPARQL writes RANGE TRIPLES 10.
    if kind is not None and not (is_range and kind is WindowKind.COUNT):
        reader.advance()
        size = reader.count()
        return WindowDefinition("", kind, size, _count_step(reader, size))
    if not is_range:
        reader.expected("A kind of window", f"Write {_KINDS}.")
    size = reader.duration()
    step = size
    if reader.accept_word("STEP"):
        step = reader.duration()
    else:
        reader.accept_word("TUMBLING")
    start = reader.time() if reader.accept_word("START") else times.t0
    return WindowDefinition("", WindowKind.TIME, size, step, start)


def _count_step(reader: Reader, size: int) -> int:
    if reader.accept_word("STEP"):
        return reader.count()
    return size if reader.accept_word("TUMBLING") else 1


def _landmark(reader: Reader, now: int) -> WindowDefinition:
    start = now if reader.accept_word("NOW") else reader.time()
    if not reader.accept_word("STEP"):
        reader.expected("STEP", "Write for example STEP PT1M: the distance of the reports.")
    return WindowDefinition("", WindowKind.LANDMARK, 0, reader.duration(), start)


def read_report(reader: Reader) -> tuple[ReportPolicy, int]:
    """Read the report policy after the brackets, if there is one. Returns it and its period in microseconds."""
    given = reader.accept_word("REPORT")
    if reader.accept_words("ON", "CLOSE"):
        return ReportPolicy.CLOSE, 0
    if reader.accept_words("ON", "CHANGE"):
        return ReportPolicy.CHANGE, 0
    if reader.accept_word("NON"):
        reader.accept("-")
        if not reader.accept_word("EMPTY"):
            reader.expected("EMPTY", _REPORTS)
        return ReportPolicy.NON_EMPTY, 0
    if reader.accept_word("EVERY"):
        return ReportPolicy.PERIODIC, reader.duration()
    if given or reader.token.word() == "ON":
        reader.expected("A report policy", _REPORTS)
    if reader.token.word() == "START":
        reader.refuse("START is outside of the brackets", "Write it before ].")
    return ReportPolicy.CLOSE, 0


def brackets_text(window: WindowDefinition) -> str:
    """Return the brackets of a window in RSP-QL, as `read_brackets` reads them."""
    if window.kind is WindowKind.LANDMARK:
        return f'[LANDMARK "{time_text(window.start)}" STEP {duration_text(window.step)}]'
    if window.kind is WindowKind.SESSION:
        return f"[SESSION {duration_text(window.size)}]"
    if window.kind is WindowKind.TIME:
        start = f' START "{time_text(window.start)}"' if window.start else ""
        return f"[RANGE {duration_text(window.size)} STEP {duration_text(window.step)}{start}]"
    keyword = "TRIPLES" if window.kind is WindowKind.TRIPLES else "ELEMENTS"
    return f"[{keyword} {window.size} STEP {window.step}]"


def report_text(window: WindowDefinition) -> str:
    """Return the report policy of a window in RSP-QL, as `read_report` reads it."""
    if window.report is ReportPolicy.PERIODIC:
        return f"EVERY {duration_text(window.period)}"
    return {ReportPolicy.CHANGE: "ON CHANGE", ReportPolicy.NON_EMPTY: "NON EMPTY"}.get(window.report, "ON CLOSE")
