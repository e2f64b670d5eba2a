"""What goes into the engine and what comes out: requests, outcomes, results, notifications."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyoxigraph as ox

from edge.protocol.access import ANYBODY, Access
from edge.protocol.results import Row, Term, bindings_to_json, results_to_json, whole_to_json

PIECE: Final = 2_000
"""Rows whose JSON is written at a time: 2 to 10 ms, for which other clients wait."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The RDF dataset of a request as the SPARQL 1.1 Protocol gives it (graph IRIs). None: not given.

    For queries and subscriptions these are `default-graph-uri` and `named-graph-uri`, for updates `using-graph-uri`
    and `using-named-graph-uri`. Giving one of the two makes the other an empty list.
    """

    default_graphs: tuple[str, ...] | None = None
    named_graphs: tuple[str, ...] | None = None
    readable: frozenset[str] | None = None
    """Graphs that whoever asks may see: for it there are no others, whatever it names. "" is the default graph."""

    @property
    def given(self) -> bool:
        """Whether the request names any graph."""
        return self.default_graphs is not None or self.named_graphs is not None

    def seen_by(self, access: Access) -> Dataset:
        """The same, with no more than a client may see."""
        return self if access.read is None else replace(self, readable=access.read)


STORE_DATASET = Dataset()
"""No dataset in the request: the store's own default graph and named graphs."""


@dataclass(slots=True)  # there is one for each reading: frozen, it would take three times as long to make
class UpdateRequest:
    """One SPARQL 1.1 Update request, run atomically.

    `bindings` replaces variables of the text by terms, before anything is evaluated (forced bindings, SEPA paper
    section 5.3). They are terms, never text: no value can change the update. A text with bindings is parsed once.
    """

    sparql: str
    dataset: Dataset = STORE_DATASET
    bindings: Mapping[str, Term] = field(default_factory=dict)
    access: Access = ANYBODY
    """What whoever asks for it may do."""
    source: str = ""
    """Who asks, as limits count: a client or its connection. Empty: the gateway itself."""
    notes: Sequence[object] = ()
    """What is written down with it in the ledger."""
    beside: bool = False
    """Whether all that it inserts goes to the ledger, and nothing of it into the live graph."""


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """One SPARQL 1.1 Query of any form."""

    sparql: str
    dataset: Dataset = STORE_DATASET
    access: Access = ANYBODY
    """What whoever asks it may see."""
    source: str = field(default="", compare=False)
    """Who asks, likewise."""


@dataclass(frozen=True, slots=True)
class UpdateOutcome:
    """What an update did, after it was made durable: how many quads are new and how many are gone."""

    added: int
    removed: int
    entries: int = 0
    """What it wrote down in the ledger."""

    @property
    def changed(self) -> bool:
        """Whether the update did anything."""
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
"""What Oxigraph answers to a query, on the state at which it began. It must be read on the thread it began on."""


@dataclass(slots=True)
class Delta:
    """How the bindings of one subscribed query changed, in bag semantics. Shared by all its subscribers."""

    variables: tuple[str, ...]
    added: tuple[Row, ...]
    removed: tuple[Row, ...]

    row_bytes: int | None = field(default=None, init=False, repr=False, compare=False)
    """Bytes of memory that the rows take, as soon as they have been counted."""
    _json: tuple[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    _writing: Iterator[tuple[str, str] | None] | None = field(default=None, init=False, repr=False, compare=False)
    _length: int = field(default=0, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, variables: tuple[str, ...], rows: Mapping[Row, int]) -> Delta:
        """Rows that were added (more than 0 times) and removed (less)."""
        added: list[Row] = []
        removed: list[Row] = []
        for row, count in rows.items():
            if count > 0:
                added += (row,) * count
            elif count < 0:
                removed += (row,) * -count
        return cls(variables, tuple(added), tuple(removed))

    @property
    def json(self) -> tuple[str, str]:
        """`addedResults` and `removedResults` as JSON text, written once for all who ask."""
        if self._json is None and not self.long:
            variables = self.variables
            self._json = results_to_json(variables, self.added), results_to_json(variables, self.removed)
        while self._json is None:
            self.write_piece()
        return self._json

    @property
    def length(self) -> int:
        """Characters of the JSON; if it is long, about as many: what its first piece takes, for all of the rows."""
        if not self.long:
            return sum(map(len, self.json))
        if not self._length:
            self.write_piece()
        return self._length

    @property
    def long(self) -> bool:
        """Whether the JSON is worth writing in pieces."""
        return len(self.added) + len(self.removed) > PIECE

    @property
    def written(self) -> bool:
        """Whether the JSON can be had at once: it is written, or it is short."""
        return self._json is not None or not self.long

    def write_piece(self) -> None:
        """Write a piece of the JSON. Always called on the same thread, the event loop's."""
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
                self._length = self._length or len(pieces[0]) * (len(self.added) + len(self.removed)) // PIECE
                yield None
        yield whole_to_json(self.variables, added), whole_to_json(self.variables, removed)


@dataclass(slots=True)
class Notification:
    """One notification to one subscriber. `sequence` 0 is the answer to the subscribe request."""

    spuid: str
    alias: str | None
    sequence: int
    delta: Delta
    merged: int = 1
    """How many it stands for: `sequence` is that of the last of them."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """An active subscription. Its first notification (sequence 0, everything is added) went to the sink."""

    spuid: str
    alias: str | None


@dataclass(frozen=True, slots=True)
class SubscribeFailed:
    """Sent to a sink instead of a notification when a subscribed query can no longer be evaluated: it has ended."""

    spuid: str
    alias: str | None
    description: str


Sink = Callable[[Notification | SubscribeFailed], None]
"""Where a subscriber's notifications go. Called on the engine's thread, in order: it must hand over and return."""
