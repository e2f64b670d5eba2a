"""Reports: what a continuous query computes at one time, and the form in which observers get it."""

from __future__ import annotations

from typing import Final, NamedTuple

from edge.protocol.results import Row, bindings_to_json, results_to_json
from edge.streams.model import QueryForm

RESULTS: Final = "application/sparql-results+json"
TRIPLES: Final = "application/n-triples"
QUADS: Final = "application/n-quads"

REMOVED: Final = "urn:edge:removed"
"""Graph of the triples that a correction removes."""

_CORRECTION: Final = "-correction"


class Report(NamedTuple):
    """A report of a query."""

    query: str
    number: int
    """Counts from 1 without gaps, for each query."""
    time: int
    """The time of which it is the result, in microseconds since 1970."""
    form: QueryForm
    variables: tuple[str, ...]
    rows: tuple[Row, ...]
    """Rows that the stream operator selects; of a correction, the rows that the earlier report lacks."""
    removed: tuple[Row, ...] | None = None
    """Rows that the earlier report has wrongly; None: this is no correction."""

    @property
    def kind(self) -> str:
        """Name of its form, for the store: "select", "ask" or "graph", with "-correction" for one."""
        form = "graph" if self.form in (QueryForm.CONSTRUCT, QueryForm.DESCRIBE) else self.form.lower()
        return form if self.removed is None else form + _CORRECTION

    def body(self) -> bytes:
        """Return the content in the media type `content_type(kind)`.

        SELECT and ASK: SPARQL 1.1 Query Results JSON; in a correction, `removed` has the bindings that were wrong.
        CONSTRUCT and DESCRIBE: N-Triples; a correction is N-Quads, with the wrong triples in the graph
        `urn:edge:removed`.
        """
        if self.form in (QueryForm.CONSTRUCT, QueryForm.DESCRIBE):
            lines = [_line(row) for row in self.rows]
            lines += [_line(row, f" <{REMOVED}>") for row in self.removed or ()]
            return "".join(lines).encode()
        if self.form is QueryForm.ASK:
            true = bool(self.rows) and str(self.rows[-1][0]).startswith('"true"')
            return b'{"head":{},"boolean":true}' if true else b'{"head":{},"boolean":false}'
        text = results_to_json(self.variables, self.rows)
        if self.removed is None:
            return text.encode()
        return f'{text[:-1]},"removed":{{"bindings":[{bindings_to_json(self.variables, self.removed)}]}}}}'.encode()


def content_type(kind: str) -> str:
    """Return the media type of the body of a report."""
    if not kind.startswith("graph"):
        return RESULTS
    return QUADS if is_correction(kind) else TRIPLES


def is_correction(kind: str) -> bool:
    """Return whether a report of this kind corrects an earlier one."""
    return kind.endswith(_CORRECTION)


def _line(row: Row, graph: str = "") -> str:
    subject, predicate, object_ = row
    return f"{subject} {predicate} {object_}{graph} .\n"
