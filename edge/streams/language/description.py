"""A description of a continuous query for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from edge.streams.language.durations import duration_text, time_text
from edge.streams.language.window_clause import brackets_text, report_text
from edge.streams.model import ContinuousQuery, NamedWindow, ReportPolicy, StreamOperator, WindowDefinition, WindowKind

_OPERATORS: Final = {
    StreamOperator.RSTREAM: "each report has all rows of the result",
    StreamOperator.ISTREAM: "each report has the rows that were added since the last one",
    StreamOperator.DSTREAM: "each report has the rows that were removed since the last one",
}


def describe(query: ContinuousQuery) -> str:
    """Return the plan of a query's windows as lines of text: streams, content, reports, and the graphs next to them."""
    return "\n".join(_lines(query))


def _lines(query: ContinuousQuery) -> Iterator[str]:
    kind = "stream" if query.is_stream else "query"
    yield f"{query.language} {kind} {query.name}: {query.form} with {query.operator}, {_OPERATORS[query.operator]}"
    for window in query.windows:
        yield from _window(window)
    yield from _dataset(query)


def _window(window: NamedWindow) -> Iterator[str]:
    definition = window.definition
    place = f"window <{window.name}>" if window.name else "default graph"
    if window.name == definition.stream:
        place = "named stream"
    yield f"{place}: stream <{definition.stream}> {brackets_text(definition)} {report_text(definition)}"
    yield f"  content: {_content(definition)}"
    yield f"  reports: {_reports(definition)}"


def _content(window: WindowDefinition) -> str:
    size, step = duration_text(window.size), duration_text(window.step)
    if window.kind is WindowKind.TIME:
        aligned = f"one of its ends is {time_text(window.start)}"
        if window.step == window.size:
            return f"the elements of {size}, without overlap (tumbling); {aligned}"
        if window.step < window.size:
            return f"the elements of the last {size}, moved by {step} (sliding); {aligned}"
        return f"the elements of the last {size}, moved by {step}, which leaves out those between; {aligned}"
    if window.kind is WindowKind.COUNT:
        return f"the last {_number(window.size, 'element')}"
    if window.kind is WindowKind.TRIPLES:
        return f"the last elements that have at least {_number(window.size, 'triple')}"
    if window.kind is WindowKind.LANDMARK:
        return f"all elements since {time_text(window.start)}"
    return f"the elements of a session, which ends after {size} without an element"


def _reports(window: WindowDefinition) -> str:
    if window.report is ReportPolicy.PERIODIC:
        return f"every {duration_text(window.period)}"
    if window.report is ReportPolicy.CHANGE:
        return "at each change of the content"
    only = ", unless it is empty" if window.report is ReportPolicy.NON_EMPTY else ""
    if window.kind is WindowKind.SESSION:
        return f"at the end of each session{only}"
    if window.kind in (WindowKind.COUNT, WindowKind.TRIPLES):
        unit = "element" if window.kind is WindowKind.COUNT else "triple"
        return f"after {_number(window.step, unit)}{only}"
    return f"every {duration_text(window.step)}{only}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _dataset(query: ContinuousQuery) -> Iterator[str]:
    if query.default_graphs is None:
        # Windows without a name replace the default graph.
        default = "" if any(not window.name for window in query.windows) else "the default graph, and "
        yield f"live data: {default}the graphs that GRAPH names"
        return
    for label, graphs in (("default graph", query.default_graphs), ("named graphs", query.named_graphs or ())):
        if graphs:
            yield f"live data in the {label}: {', '.join(f'<{graph}>' for graph in graphs)}"
