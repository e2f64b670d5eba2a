"""Tracker of values: finds the new values of observations in the change sets of updates.

An observation has its value in its result, and the time of measurement in an instant of the result (SEPA paper,
Listing 18):

    ?observation sosa:hasResult ?quantity .
    ?quantity qudt-1-1:numericValue ?value ; time:hasTime ?instant .
    ?instant time:inXSDDateTimeStamp ?time

The tracker keeps the links between them, so it needs no query for a new value. It sees every committed update, whatever
its source. All four triples must be in the same graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.triple_index import TripleIndex
from edge.protocol.results import Term
from edge.recent.buffer import SampleBuffer
from edge.recent.series import LONGEST_TEXT, MICROSECONDS, TICKS, SeriesKey, kind_of, number_of

_RESULT: Final = ox.NamedNode("http://www.w3.org/ns/sosa/hasResult")
_VALUE: Final = ox.NamedNode("http://qudt.org/1.1/schema/qudt#numericValue")
_HAS_TIME: Final = ox.NamedNode("http://www.w3.org/2006/time#hasTime")
_STAMP: Final = ox.NamedNode("http://www.w3.org/2006/time#inXSDDateTimeStamp")

_OBSERVATION_RESULT: Final = 1
_QUANTITY_VALUE: Final = 2
_QUANTITY_INSTANT: Final = 3
_INSTANT_TIME: Final = 4
"""Meanings of statements, by their predicates."""

_USUAL_LENGTH: Final = 500
"""Characters of a value that take as much memory as a statement."""

_MOST_SHARED: Final = 1_000
"""Observations that share a quantity, or quantities that share an instant. Each of them costs time with each change."""

_LATEST: Final = 4_102_444_800 * TICKS
"""The year 2100. Later times, and those before 1970, are wrong: the time of the update replaces them."""


class RelevantChange(NamedTuple):
    """The statements of a change set that concern values, with their roles."""

    removed: Sequence[tuple[int, Statement]]
    added: Sequence[tuple[int, Statement]]
    size: int
    """Approximate size in memory, in statements of usual length."""


def relevant(changes: ChangeSet) -> RelevantChange | None:
    """Return the statements that concern values; None without any. Other statements may be large: they are not kept."""
    added_statements, removed_statements = changes.statements
    roles = _ROLES.get
    added = [(role, each) for each in added_statements if (role := roles(each[1])) is not None]
    removed = [
        (role, each) for each in removed_statements if (role := roles(each[1])) is not None and role != _INSTANT_TIME
    ]
    if not (added or removed):
        return None
    size = len(added) + len(removed)
    for role, (_, _, value, _) in added:
        if role == _QUANTITY_VALUE and isinstance(value, ox.Literal):
            size += len(value.value) // _USUAL_LENGTH
    return RelevantChange(removed, added, size)


class _Quantity:
    """A node with a value, or the result of observations; usually both."""

    __slots__ = ("observations", "value")

    def __init__(self) -> None:
        self.observations: dict[str, None] = {}
        self.value: ox.Literal | None = None


class _Links:
    """The quantities and instants of one graph."""

    __slots__ = ("graph", "instants", "name", "quantities")

    def __init__(self, graph: Term | None, name: str) -> None:
        self.graph = graph
        self.name = name
        self.quantities: dict[Term, _Quantity] = {}
        self.instants: dict[Term, dict[Term, None]] = {}
        """Quantities of each instant. Values that were measured together may share one."""

    def quantity(self, term: Term) -> _Quantity:
        """Return a quantity, known or new."""
        found = self.quantities.get(term)
        if found is None:
            found = self.quantities[term] = _Quantity()
        return found

    def measured(self, quantity: Term, instant: Term) -> bool:
        """Note the instant of a quantity. Returns False if too many share it."""
        quantities = self.instants.setdefault(instant, {})
        if len(quantities) >= _MOST_SHARED:
            return False
        quantities[quantity] = None
        return True

    def forget_unused(self, term: Term) -> None:
        """Forget a quantity that has neither a value nor observations."""
        found = self.quantities[term]
        if found.value is None and not found.observations:
            del self.quantities[term]


class ValueTracker:
    """Finds new values. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self._graphs: dict[Term | None, _Links] = {}
        self.skipped = 0
        """Values that were not recorded: not finite, too long, or too many different texts."""

    def scan(self, graph: LiveGraph) -> None:
        """Read the present links and values. Call this on the writer thread, before the first change."""
        for number, index in graph.graphs.items():
            links = self._links(None if number == DEFAULT_GRAPH else graph.dictionary.terms[number])
            for quad in _triples(graph, index, _RESULT):
                _link(links, *quad)
            for quantity, value in _triples(graph, index, _VALUE):
                if isinstance(value, ox.Literal):
                    links.quantity(quantity).value = value
            for quantity, instant in _triples(graph, index, _HAS_TIME):
                links.measured(quantity, instant)
            self._forget_if_empty(links)

    def apply(self, change: RelevantChange, now: int, buffer: SampleBuffer) -> None:
        """Add the new values of a change to a buffer. `now`: time of the commit in microseconds since 1970.

        A value is new if it, its time, or the link to it is.
        """
        for role, statement in change.removed:
            self._remove(role, statement)
        at = now // MICROSECONDS
        # A value without a new time has that of the commit; one with a new time may itself be unchanged.
        touched: dict[tuple[_Links, Term], int] = {}
        linked: list[tuple[_Links, Term, str]] = []
        stamps: list[tuple[Term | None, Term, Term]] = []
        subject: Term
        graph: Term | None
        for role, (subject, _, object_, graph) in change.added:
            if role == _INSTANT_TIME:
                stamps.append((graph, subject, object_))
                continue
            links = self._links(graph)
            if role == _QUANTITY_VALUE:
                if isinstance(object_, ox.Literal):
                    links.quantity(subject).value = object_
                    touched[links, subject] = at
            elif role == _QUANTITY_INSTANT:
                if links.measured(subject, object_):
                    touched[links, subject] = at
            elif isinstance(subject, ox.NamedNode) and _link(links, subject, object_):
                linked.append((links, object_, subject.value))
        for graph, instant, stamp in stamps:
            if (known := self._graphs.get(graph)) is not None:
                for quantity in known.instants.get(instant, ()):
                    touched[known, quantity] = _ticks(stamp, at)
        for (links, quantity), time in touched.items():
            if (found := links.quantities.get(quantity)) is not None:
                for observation in found.observations:
                    self._sample(links.name, observation, found.value, time, buffer)
        for links, quantity, observation in linked:
            if (links, quantity) not in touched:
                self._sample(links.name, observation, links.quantity(quantity).value, at, buffer)

    def _sample(self, graph: str, observation: str, value: ox.Literal | None, time: int, buffer: SampleBuffer) -> None:
        kind = None if value is None else kind_of(value)
        if value is None or kind is None:
            return
        key = SeriesKey(graph, observation, kind)
        if kind == "text":
            text = value.value
            if len(text) > LONGEST_TEXT or not buffer.add_text(key, time, text):
                self.skipped += 1
        elif (number := number_of(value, kind)) is None:
            self.skipped += 1
        else:
            buffer.add(key, time, number)

    def _remove(self, role: int, statement: Statement) -> None:
        subject, _, object_, graph = statement
        links = self._graphs.get(graph)
        if links is None:
            return
        if role == _QUANTITY_INSTANT:
            quantities = links.instants.get(object_, {})
            if subject in quantities:
                del quantities[subject]
                if not quantities:
                    del links.instants[object_]
        elif role == _OBSERVATION_RESULT and isinstance(subject, ox.NamedNode):
            quantity = links.quantities.get(object_)
            if quantity is not None and subject.value in quantity.observations:
                del quantity.observations[subject.value]
                links.forget_unused(object_)
        elif role == _QUANTITY_VALUE:
            quantity = links.quantities.get(subject)
            if quantity is not None and quantity.value == object_:
                quantity.value = None
                links.forget_unused(subject)
        self._forget_if_empty(links)

    def _forget_if_empty(self, links: _Links) -> None:
        """Forget a graph without quantities: clients may create and drop any number of graphs."""
        if not (links.quantities or links.instants):
            self._graphs.pop(links.graph, None)

    def _links(self, graph: Term | None) -> _Links:
        links = self._graphs.get(graph)
        if links is None:
            name = "" if graph is None else graph.value if isinstance(graph, ox.NamedNode) else str(graph)
            links = self._graphs[graph] = _Links(graph, name)
        return links


def _link(links: _Links, observation: Term, quantity: Term) -> bool:
    """Note the quantity of an observation. Returns False if the observation is not an IRI, or too many share it."""
    # A blank node has another name after a restart, and no client can ask for it.
    if not isinstance(observation, ox.NamedNode):
        return False
    observations = links.quantity(quantity).observations
    if len(observations) >= _MOST_SHARED:
        return False
    observations[observation.value] = None
    return True


_ROLES: Final[dict[Term, int]] = {
    _RESULT: _OBSERVATION_RESULT,
    _VALUE: _QUANTITY_VALUE,
    _HAS_TIME: _QUANTITY_INSTANT,
    _STAMP: _INSTANT_TIME,
}
"""One look-up for each statement: a comparison of two terms of Oxigraph takes as long."""


def _triples(graph: LiveGraph, index: TripleIndex, predicate: ox.NamedNode) -> Iterable[tuple[Term, Term]]:
    """Yield subject and object of the triples with a predicate."""
    number = graph.dictionary.find(predicate)
    terms = graph.dictionary.terms
    if number is not None:
        for subject, _, object_ in index.match(None, number, None):
            yield terms[subject], terms[object_]


def _ticks(stamp: Term, at: int) -> int:
    """Return the time of an instant, or the time of the commit, `at`, if it is not valid."""
    if isinstance(stamp, ox.Literal):
        try:
            time = datetime.fromisoformat(stamp.value)
            if time.tzinfo is not None:
                ticks = int(time.timestamp() * TICKS)
                if 0 <= ticks < _LATEST:
                    return ticks
        except (ValueError, OverflowError):
            pass
    return at
