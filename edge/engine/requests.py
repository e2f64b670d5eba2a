"""Input and output of the engine: requests, outcomes, results and notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyoxigraph as ox

from edge.protocol.access import ANYBODY, Access
from edge.protocol.bag import split
from edge.protocol.results import Row, Term, bindings_to_json, results_to_json, whole_to_json

PIECE: Final = 2_000
"""Rows whose JSON is written at a time: 2 to 10 ms, during which other clients wait."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """RDF dataset of a request according to the SPARQL 1.1 Protocol (graph IRIs). None: not given.

    For queries and subscriptions these are `default-graph-uri` and `named-graph-uri`, for updates `using-graph-uri`
    and `using-named-graph-uri`. If a request gives one of the two, the other is an empty list.
    """

    default_graphs: tuple[str, ...] | None = None
    named_graphs: tuple[str, ...] | None = None
    readable: frozenset[str] | None = None
    """Graphs that the client may read. All others do not exist for it. "" is the default graph."""

    @classmethod
    def of(cls, default_graphs: Iterable[str] | None, named_graphs: Iterable[str] | None) -> Dataset:
        """Return the dataset with these graphs."""
        default = None if default_graphs is None else tuple(default_graphs)
        return cls(default, None if named_graphs is None else tuple(named_graphs))

    @property
    def given(self) -> bool:
        """Whether the request names any graph."""
        return self.default_graphs is not None or self.named_graphs is not None

    def seen_by(self, access: Access) -> Dataset:
        """Return the dataset, limited to the graphs that a client may read."""
        return self if access.read is None else replace(self, readable=access.read)


STORE_DATASET = Dataset()
"""No dataset in the request: the store's own default graph and named graphs."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class GraphWatch:
    """Whether a graph may have changed since the watch began. It ends when nothing refers to it any more."""

    graph: str
    """IRI of the graph; empty for the default graph."""
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Precondition:
    """Condition of an update. The writer checks it in the step that applies the update, so no change comes between.

    If it does not hold, the update fails with `PreconditionFailed`.
    """

    graph: str
    """IRI of the graph; empty for the default graph, which always exists."""
    exists: bool | None = None
    """Whether the graph must exist; None: it may or may not."""
    watch: GraphWatch | None = None
    """The graph must not have changed since this watch began."""


@dataclass(slots=True)  # one object for each reading; as a frozen class its creation would take three times as long
class UpdateRequest:
    """One SPARQL 1.1 Update request, which runs atomically.

    `bindings` replaces variables of the text by terms before the evaluation (forced bindings, SEPA paper, section 5.3).
    The values are terms, not text, so they cannot inject SPARQL syntax. A text with bindings is parsed once.
    """

    sparql: str
    dataset: Dataset = STORE_DATASET
    bindings: Mapping[str, Term] = field(default_factory=dict)
    access: Access = ANYBODY
    """Permissions of the client."""
    source: str = ""
    """Client or connection, for quotas and rate limits. Empty for the gateway itself."""
    notes: Sequence[object] = ()
    """Entries that the update writes to the ledger."""
    to_ledger: bool = False
    """Whether all inserted quads go to the ledger, and none of them to the live graph."""
    condition: Precondition | None = None
    """Condition for the update. A delayed update has none."""


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """One SPARQL 1.1 Query of any form."""

    sparql: str
    dataset: Dataset = STORE_DATASET
    access: Access = ANYBODY
    """Permissions of the client."""
    source: str = field(default="", compare=False)
    """Client or connection, for quotas and rate limits."""


@dataclass(slots=True)  # like `UpdateRequest`, one for each reading
class UpdateOutcome:
    """Effect of a durable update: numbers of added and removed quads."""

    added: int
    removed: int
    entries: int = 0
    """Number of entries that it wrote to the ledger."""
    created: int = field(default=0, compare=False)
    """Number of named graphs that began to exist."""
    dropped: int = field(default=0, compare=False)
    """Number of named graphs that ceased to exist."""

    @property
    def changed(self) -> bool:
        """Whether the update changed any quad."""
        return bool(self.added or self.removed)


@dataclass(frozen=True, slots=True)
class Solutions:
    """The result of a SELECT query."""

    variables: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """The result of a CONSTRUCT or DESCRIBE query."""

    triples: tuple[ox.Triple, ...]


QueryResult = Solutions | bool | Graph
"""SELECT, ASK, CONSTRUCT or DESCRIBE."""


Answer = ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples
"""Oxigraph's answer to a query, for the state at its start. It must be read on the thread that created it."""


@dataclass(slots=True)
class Delta:
    """Change of the bindings of a subscribed query, in bag semantics. All its subscribers share the object."""

    variables: tuple[str, ...]
    added: tuple[Row, ...]
    removed: tuple[Row, ...]

    row_bytes: int | None = field(default=None, init=False, repr=False, compare=False)
    """Bytes of memory of the rows, once they have been counted."""
    _json: tuple[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    _writing: Iterator[tuple[str, str] | None] | None = field(default=None, init=False, repr=False, compare=False)
    _length: int = field(default=0, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, variables: tuple[str, ...], rows: Iterable[tuple[Row, int]]) -> Delta:
        """Create a delta from rows with signed counts: positive if added, negative if removed."""
        return cls(variables, *split(rows))

    @property
    def json(self) -> tuple[str, str]:
        """`addedResults` and `removedResults` as JSON text, serialized once for all subscribers."""
        if self._json is None and not self.long:
            variables = self.variables
            self._json = results_to_json(variables, self.added), results_to_json(variables, self.removed)
        while self._json is None:
            self.write_piece()
        return self._json

    @property
    def length(self) -> int:
        """Characters of the JSON. For a long one, an estimate from its first piece."""
        if not self.long:
            return sum(map(len, self.json))
        if not self._length:
            self.write_piece()
        return self._length

    @property
    def long(self) -> bool:
        """Whether the JSON is long enough to be written in pieces."""
        return len(self.added) + len(self.removed) > PIECE

    @property
    def written(self) -> bool:
        """Whether the JSON is available at once: it is written already, or it is short."""
        return self._json is not None or not self.long

    def write_piece(self) -> None:
        """Write a piece of the JSON. All calls come from the thread of the event loop."""
        if self._writing is None:
            self._writing = self._write()
        if self._json is None:
            self._json = next(self._writing)

    def _write(self) -> Iterator[tuple[str, str] | None]:
        added: list[str] = []
        removed: list[str] = []
        for rows, pieces in ((self.added, added), (self.removed, removed)):
            for start in range(0, len(rows), PIECE):
                pieces.append(bindings_to_json(self.variables, rows[start : start + PIECE]))
                # From the first piece: an exact length would need the whole text.
                self._length = self._length or len(pieces[0]) * (len(self.added) + len(self.removed)) // PIECE
                yield None
        yield whole_to_json(self.variables, added), whole_to_json(self.variables, removed)


@dataclass(slots=True)
class SubscriberNotification:
    """One notification for one subscriber. `sequence` 0 is the response to the subscribe request."""

    spuid: str
    alias: str | None
    sequence: int
    delta: Delta
    merged: int = 1
    """Number of notifications that this one merges (conflation). `sequence` is that of the last one."""


@dataclass(frozen=True, slots=True)
class ActiveSubscription:
    """An active subscription. Its first notification (sequence 0, all rows are added) went to the sink."""

    spuid: str
    alias: str | None


@dataclass(frozen=True, slots=True)
class SubscribeFailed:
    """Sent to a sink when a subscription has ended because its query can no longer be evaluated."""

    spuid: str
    alias: str | None
    description: str


Sink = Callable[[SubscriberNotification | SubscribeFailed], None]
"""Receiver of a subscriber's notifications. Called on the engine's thread, in order; it must return quickly."""
