"""Merging of the reports that wait for slow observers, so that they have a bounded size.

As for a slow WebSocket subscriber, several reports become one:

- RSTREAM, and ASK: the newest result replaces the older ones, and their corrections.
- ISTREAM and DSTREAM: the rows of all reports are added up as bags, and triples as sets. Corrections stay alone.

Added-up rows take as much space as before. The oldest ones are therefore dropped if they exceed the bound. The observer
notices this, because the numbers that a report covers (`Report-Merged`) do not follow those of the report before.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyoxigraph as ox

from edge.streams.model import StreamOperator
from edge.streams.observer import StoredReport

OVERHEAD: Final = 300
"""Approximate bytes of a waiting report without its body."""
_PIECES: Final = 8
"""Parts of the bound up to which a report with added-up rows grows: as much as this is dropped at once."""

_BEGIN: Final = b'"results":{"bindings":['
_END: Final = b"]}}"
"""What precedes and follows the rows in results of this gateway."""
_REMOVED: Final = b']},"removed":'
"""What precedes the wrong rows in a correction."""


class Bounded(NamedTuple):
    """Reports within a bound."""

    reports: list[StoredReport]
    lost: int
    """Number of dropped reports."""


def bounded(
    reports: Sequence[StoredReport],
    operator: StreamOperator,
    most: int,
    positions: Iterable[int] = (),
    *,
    overhead: int = 0,
    largest: int | None = None,
) -> Bounded:
    """Merge waiting reports of one query, in ascending order, if they exceed `most` bytes.

    `overhead`: bytes of a report in addition to its body. Without it, empty graphs would have no size and no bound.
    `largest`: bytes beyond which reports are not added up to one; None: an eighth of `most`.
    `positions`: numbers of the last reports that observers have acknowledged. The next report of each observer is not
    merged, because it may be on its way: a merged one would repeat its rows. The newest report is never dropped, so its
    size may exceed the bound.
    """
    size = partial(size_of, overhead=overhead)
    if len(reports) < 2 or size(reports) <= most:
        return Bounded(list(reports), 0)
    numbers = [report.number for report in reports]
    fixed = {numbers[0]}
    fixed.update(numbers[at] for at in {bisect_right(numbers, each) for each in positions} if at < len(numbers))
    if operator is StreamOperator.RSTREAM:
        current = _current(reports, fixed)
        # If the next reports of many observers exceed the bound, they are replaced too. A whole result may be repeated.
        return _without_oldest(current if size(current) <= most else _current(reports, ()), most, overhead)
    # One piece stays free, so that not each of the next reports exceeds the bound again.
    piece = most // _PIECES
    pieces = _pieces(reports, fixed, piece if largest is None else min(piece, largest), overhead)
    return _without_oldest(pieces, most - piece, overhead)


def size_of(reports: Iterable[StoredReport], overhead: int) -> int:
    """Return the bytes of reports. `overhead`: see `bounded`."""
    return sum(len(report.body) + overhead for report in reports)


def merged(earlier: StoredReport, later: StoredReport) -> StoredReport:
    """Return one report with the rows, or triples, of two reports of an ISTREAM or DSTREAM query.

    Results without rows (ASK), and those in an unknown or damaged format, are replaced by the later ones.
    """
    count = earlier.merged + later.merged
    return StoredReport(later.number, later.time, later.content_type, _union(earlier, later), count)


def _without_oldest(reports: list[StoredReport], most: int, overhead: int) -> Bounded:
    size, begin = size_of(reports, overhead), 0
    while size > most and begin < len(reports) - 1:
        size -= len(reports[begin].body) + overhead
        begin += 1
    return Bounded(reports[begin:], sum(report.merged for report in reports[:begin]))


def _current(reports: Sequence[StoredReport], fixed: Container[int]) -> list[StoredReport]:
    """Remove reports that a newer result replaces. The next report after them counts them as merged."""
    newest = next((report for report in reversed(reports) if not report.correction), None)
    kept: list[StoredReport] = []
    replaced = 0
    for report in reports:
        last = report is reports[-1]
        if report is newest or report.number in fixed or last or not _is_replaced(report, newest):
            kept.append(report._replace(merged=report.merged + replaced))
            replaced = 0
        else:
            replaced += report.merged
    return kept


def _is_replaced(report: StoredReport, newest: StoredReport | None) -> bool:
    if newest is None:
        return False
    # A correction of the newest result itself comes after it and has the same time.
    return report.number < newest.number or report.time < newest.time


def _pieces(reports: Sequence[StoredReport], fixed: Container[int], most: int, overhead: int) -> list[StoredReport]:
    """Merge neighbours into reports of at most `most` bytes each. Others, such as corrections, stay alone."""
    pieces: list[StoredReport] = []
    group: list[StoredReport] = []
    size = 0
    for report in reports:
        alone = report.correction or report.number in fixed
        if group and (alone or size + len(report.body) + overhead > most):
            pieces.append(_merged_all(group))
            group, size = [], 0
        if alone:
            pieces.append(report)
        else:
            group.append(report)
            size += len(report.body) + overhead
    return [*pieces, _merged_all(group)] if group else pieces


def _merged_all(group: Sequence[StoredReport]) -> StoredReport:
    # Halves instead of one after the other: each row is parsed log(n) times instead of n times.
    if len(group) == 1:
        return group[0]
    middle = len(group) // 2
    return merged(_merged_all(group[:middle]), _merged_all(group[middle:]))


def _union(earlier: StoredReport, later: StoredReport) -> bytes:
    form = ox.RdfFormat.from_media_type(later.content_type.partition(";")[0].strip())
    if earlier.content_type != later.content_type:
        return later.body
    try:
        return _union_of_rows(earlier.body, later.body) if form is None else _union_of_graphs(earlier, later, form)
    except (ValueError, SyntaxError):
        return later.body


def _union_of_rows(earlier: bytes, later: bytes) -> bytes:
    """Return the result in SPARQL JSON with the rows of both. Raises `ValueError`."""
    bodies = earlier, later
    begin = earlier.find(_BEGIN) + len(_BEGIN)
    # Results of a query differ in their rows only. Parsing them would take 50 times as long, for each slow client.
    if earlier.find(_BEGIN) > 0 and all(_is_plain(body, earlier[:begin]) for body in bodies):
        contents = (body[begin : -len(_END)] for body in bodies)
        return earlier[:begin] + b",".join(filter(None, contents)) + _END
    before, result = json.loads(earlier), json.loads(later)
    rows, more = _rows(before), _rows(result)
    if rows is None or more is None:
        return later
    result["results"]["bindings"] = rows + more
    return json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()


def _is_plain(body: bytes, begin: bytes) -> bool:
    """Return whether a result of this gateway has this beginning and then only rows. Corrections have more."""
    # No string contains these members: the quotation marks in it have backslashes.
    return body.startswith(begin) and body.endswith(_END) and _REMOVED not in body


def _rows(result: Any) -> list[Any] | None:  # noqa: ANN401 - any JSON
    results = result.get("results") if isinstance(result, dict) else None
    rows = results.get("bindings") if isinstance(results, dict) else None
    return rows if isinstance(rows, list) else None


def _union_of_graphs(earlier: StoredReport, later: StoredReport, form: ox.RdfFormat) -> bytes:
    """Return the graph with the triples of both. Raises `ValueError`, `SyntaxError`."""
    quads: dict[ox.Quad, None] = {}
    for report in (earlier, later):
        # A label of a blank node means different nodes in different documents (RDF 1.1 Concepts, section 3.4).
        quads.update(dict.fromkeys(ox.parse(report.body, format=form, rename_blank_nodes=True)))
    graph = quads if form.supports_datasets else {quad.triple: None for quad in quads}
    return ox.serialize(graph, format=form) or b""  # bytes, because no output is given
