"""Cache of the observations in the graph, updated by a subscription."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.adapters.terms import instant_iri
from edge.engine.requests import Delta
from edge.protocol.bag import Bag
from edge.protocol.results import Term

Description = tuple[str | None, ...]
"""Unit, location, property, sensor, label, comment and the label of the sensor: the description in a mapping."""

_REPEATED: Final = timedelta(seconds=60)
"""Time within which several gateways report one event. Later, a counter may have begun again."""

_Row = tuple[Term | None, Term | None, Term | None]


class SeenEvent(NamedTuple):
    """An event that was written."""

    key: int
    """Hash of its id and value. Without an id, its value is all that reports of it have in common."""
    received: datetime

    def is_among(self, others: Sequence[SeenEvent], within: float | None) -> bool:
        """Whether it was among these within some seconds. None: within a minute, or it is the last one of these."""
        for other in others:
            if other.key == self.key and (self.is_near(other, within) or (within is None and other is others[-1])):
                return True
        return False

    def is_near(self, other: SeenEvent, within: float | None) -> bool:
        """Whether another event was received within some seconds; None: within a minute.

        The absolute difference counts: a clock that is set back must not suspend the events of a device.
        """
        return abs(self.received - other.received) < (_REPEATED if within is None else timedelta(seconds=within))


@dataclass(slots=True)
class CachedObservation:
    """One observation: its rows in the subscription, and pending updates of the adapters."""

    iri: ox.NamedNode
    rows: Bag[_Row] = field(default_factory=Bag)
    """Quantity, topic and digest in the graph."""
    planned: ox.NamedNode | None = None
    """The quantity of a pending update of the adapters."""
    described: dict[str | None, Description] = field(default_factory=dict)
    """The last description by each topic. Two topics may feed one observation with different descriptions."""
    events: Sequence[SeenEvent] = ()
    """Its last events, if an id or a time identifies them, oldest first."""
    has_result_time: bool = True
    """Whether the graph may have a result time that the adapters wrote. An update that removes it costs seven calls of
    functions more.
    """
    targets: tuple[dict[str, Term], ...] | None = None
    """Bindings of each quantity for the next value. None: to be computed."""

    @property
    def exists(self) -> bool:
        """Whether it is in the graph, or in a pending update."""
        return self.planned is not None or bool(self.rows)

    @property
    def quantities(self) -> set[ox.NamedNode | ox.BlankNode]:
        """The quantities for new values: those in the graph, or the pending one."""
        if self.planned is not None:
            return {self.planned}
        return {row[0] for row in self.rows if isinstance(row[0], (ox.NamedNode, ox.BlankNode))}

    @property
    def topics(self) -> set[str]:
        """Its topics in the graph."""
        return {row[1].value for row in self.rows if isinstance(row[1], ox.Literal)}

    @property
    def digest(self) -> str | None:
        """The digest of the mapping that described it; None if a client did."""
        return next((row[2].value for row in self.rows if isinstance(row[2], ox.Literal)), None)

    def values_go_to(self) -> tuple[dict[str, Term], ...]:
        """Bindings for an update of the value, one for each quantity."""
        if self.targets is None:
            self.targets = tuple(self._target(quantity) for quantity in self.quantities)
        return self.targets

    def _target(self, quantity: ox.NamedNode | ox.BlankNode) -> dict[str, Term]:
        if isinstance(quantity, ox.BlankNode):
            return {"observation": self.iri}
        return {"observation": self.iri, "quantity": quantity, "instant": instant_iri(quantity)}


class ObservationCache:
    """All observations of the graph by IRI. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self._known: dict[str, CachedObservation] = {}
        self._by_topic: dict[str, dict[str, None]] = {}
        self.lost: dict[ox.NamedNode, ox.NamedNode] = {}
        """Quantities that a client deleted, whose dependent triples still exist, with their observations."""
        self._replaced: set[ox.NamedNode] = set()

    def __len__(self) -> int:
        return sum(1 for known in self._known.values() if known.exists)

    def get(self, iri: str) -> CachedObservation:
        """Return the observation, known or new. Raises `ValueError` if `iri` is not a valid IRI."""
        known = self._known.get(iri)
        if known is None:
            known = self._known[iri] = CachedObservation(ox.NamedNode(iri))
        return known

    def find(self, iri: str) -> CachedObservation | None:
        """Return the observation; None if it is unknown."""
        return self._known.get(iri)

    def declared_for(self, topic: str) -> list[str]:
        """Return the observations that clients assigned to a topic, without those of mappings."""
        return list(self._by_topic.get(topic, ()))

    @property
    def declared_topics(self) -> frozenset[str]:
        """The topics to which clients assigned observations."""
        return frozenset(self._by_topic)

    def plan(self, known: CachedObservation, quantity: ox.NamedNode) -> None:
        """Register a pending update that replaces the quantities of the observation by this one."""
        self._replaced.update(q for q in known.quantities if isinstance(q, ox.NamedNode))
        known.planned = quantity
        known.targets = None

    def give_up(self, iri: str, quantity: ox.NamedNode) -> None:
        """Roll back the pending update with this quantity."""
        known = self._known.get(iri)
        # A later plan may have replaced this one; that one stays.
        if known is not None and known.planned == quantity:
            known.planned = None
            known.targets = None
            # Unknown again: the rolled back update may have been the one that wrote the description.
            known.described.clear()
            self._replaced.difference_update(q for q in known.quantities if isinstance(q, ox.NamedNode))
            self.forget_if_gone(iri)

    def apply(self, delta: Delta) -> None:
        """Apply a notification: rows of observation, quantity, topic, digest."""
        touched: dict[str, CachedObservation] = {}
        before: dict[str, set[str]] = {}
        gone: dict[ox.NamedNode, ox.NamedNode] = {}
        # Removed rows first: `gone` then drops a quantity that the same change adds again.
        for rows, sign in ((delta.removed, -1), (delta.added, 1)):
            for observation, quantity, topic, digest in rows:
                if not isinstance(observation, ox.NamedNode):
                    continue
                known = self.get(observation.value)
                if observation.value not in touched:
                    touched[observation.value] = known
                    before[observation.value] = self._declared(known)
                known.rows.add((quantity, topic, digest), sign)
                if isinstance(quantity, ox.NamedNode):
                    if sign < 0:
                        gone[quantity] = observation
                    else:
                        gone.pop(quantity, None)
                    # The pending update has arrived.
                    if sign > 0 and quantity == known.planned:
                        known.planned = None
        for iri, known in touched.items():
            known.targets = None
            self._tie(iri, before[iri], self._declared(known))
            for quantity, _, _ in known.rows:
                if isinstance(quantity, ox.NamedNode):
                    gone.pop(quantity, None)
            self.forget_if_gone(iri)
        # Quantities that the adapters replaced themselves were removed together with their instants.
        self.lost.update(each for each in gone.items() if each[0] not in self._replaced)
        self._replaced.difference_update(gone)

    @staticmethod
    def _declared(known: CachedObservation) -> set[str]:
        return known.topics if known.rows and known.digest is None else set()

    def _tie(self, iri: str, before: set[str], after: set[str]) -> None:
        for topic in before - after:
            ties = self._by_topic[topic]
            ties.pop(iri, None)
            if not ties:
                del self._by_topic[topic]
        for topic in after - before:
            self._by_topic.setdefault(topic, {})[iri] = None

    def forget_if_gone(self, iri: str) -> None:
        """Drop an observation that is not in the graph."""
        known = self._known.get(iri)
        if known is not None and not known.exists:
            del self._known[iri]
