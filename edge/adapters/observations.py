"""Readings into observations: what each reading asks of the graph, given what is there already."""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Protocol

import pyoxigraph as ox

from edge.adapters import updates
from edge.adapters.known import Description, Known, KnownObservations
from edge.adapters.settings import ObservationsSettings
from edge.adapters.terms import DATE_TIME_STAMP, PREFIXES, instant_iri, quantity_iri
from edge.engine.requests import (
    Notification,
    QueryRequest,
    QueryResult,
    Sink,
    Solutions,
    SubscribeFailed,
    Subscription,
    UpdateOutcome,
    UpdateRequest,
)
from edge.mapping.reading import Reading
from edge.protocol.results import Term

_log = logging.getLogger(__name__)


class Engine(Protocol):
    """What the adapters need of the engine's scheduler."""

    def update(self, requests: Sequence[UpdateRequest], receipt: bytes = b"") -> Future[list[UpdateOutcome]]:
        """Run updates in order, as one transaction that also stores `receipt`."""
        ...

    def query(self, request: QueryRequest) -> Future[QueryResult]:
        """Answer a query."""
        ...

    def subscribe(self, request: QueryRequest, sink: Sink, alias: str | None = None) -> Future[Subscription]:
        """Tell `sink` the result of a query, then every change of it."""
        ...

    def unsubscribe(self, spuid: str) -> Future[None]:
        """End a subscription."""
        ...


@dataclass(frozen=True, slots=True)
class Arrival:
    """A reading and when it came in."""

    reading: Reading
    received: datetime
    """Aware, in UTC."""
    value_only: bool = False
    """Said by a mapping in the graph: the observation there is the client's, only its value is ours."""


@dataclass(slots=True)
class Plan:
    """The updates of some readings, and what to take back if they are not carried out."""

    requests: list[UpdateRequest] = field(default_factory=list)
    given: list[tuple[str, ox.NamedNode]] = field(default_factory=list)
    """Observations that get a quantity, with it."""
    refused: list[tuple[Arrival, str]] = field(default_factory=list)
    """Readings that are no RDF, with the reason."""


class Observations:
    """Writes readings into the graph with the semantics of ADD_OBSERVATION and UPDATE_VALUE (SEPA paper, Listing 18).

    It knows what is in the graph from a subscription of its own, so it adds an observation only where there is none
    or where the mapping's words changed, and otherwise does no more than replace a value. What clients did to an
    observation stays. Thread-safe.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ObservationsSettings | None = None,
        *,
        new_name: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._engine = engine
        self._time = (settings or ObservationsSettings()).time
        self._new_name = new_name
        self._lock = threading.RLock()
        self._inbox: deque[Callable[[], None]] = deque()
        self._known = KnownObservations()
        self._subscription: Subscription | None = None
        self._failure: str | None = None
        self._datatypes: dict[str, ox.NamedNode] = {}
        self.added = 0
        """Observations that were added or described anew."""
        self.values = 0
        """Values that were written."""

    def start(self, timeout: float = 30.0) -> None:
        """Learn what is in the graph. Raises an `EdgeError`, or TimeoutError after `timeout` seconds."""
        self._failure = None
        request = QueryRequest(updates.OBSERVATIONS)
        self._subscription = self._engine.subscribe(request, self._sink).result(timeout)

    def close(self) -> None:
        """End the subscription."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._engine.unsubscribe(subscription.spuid)
            self._inbox.clear()

    def write(self, arrivals: Iterable[Arrival], receipt: bytes = b"") -> Future[tuple[Plan, list[UpdateOutcome]]]:
        """Have the engine carry out what the readings ask for, as one unit. The result comes after the commit.

        `receipt` is stored in the same transaction. Fails with the engine's `EdgeError`; nothing has changed then.
        """
        with self._lock:
            plan = self._plan(arrivals)
            return self._submit(plan, receipt)

    def declare(self, readings: Iterable[Reading]) -> Plan:
        """Add the observations that mappings declare, before the first value comes (the initial mappings of the paper).

        The values of the readings mean nothing. Observations that are there and unchanged are left alone. Waits for the
        commit, and lets nobody else write before it: a value must not overtake its observation. Raises `EdgeError`.
        """
        plan = Plan()
        with self._lock:
            self._catch_up()
            for reading in readings:
                try:
                    known = self._known.get(reading.observation)
                    if self._wants_description(known, reading, _description(reading)):
                        self._add(plan, known, reading, {})
                except ValueError as error:
                    plan.refused.append((Arrival(reading, _NEVER), str(error)))
                    self._known.forget_if_gone(reading.observation)
            self._submit(plan, b"").result()
        return plan

    def declared_for(self, topic: str) -> list[str]:
        """IRIs of the observations that clients tied to `topic` in the graph (the paper's Topics Manager)."""
        with self._lock:
            self._catch_up()
            return self._known.declared_for(topic)

    @property
    def declared_topics(self) -> frozenset[str]:
        """All topics that clients tied observations to in the graph."""
        with self._lock:
            self._catch_up()
            return self._known.declared_topics

    def __len__(self) -> int:
        with self._lock:
            self._catch_up()
            return len(self._known)

    def unchanged(self, arrivals: Sequence[Arrival], timeout: float = 30.0) -> set[int]:
        """Which of the readings (positions) say what the graph says already.

        For messages that a broker retained: they tell of a change in the past, so an equal value is no news. An
        observation that occurs twice is always news.
        """
        often = Counter(arrival.reading.observation for arrival in arrivals)
        targets: dict[str, int] = {}
        with self._lock:
            self._catch_up()
            for position, arrival in enumerate(arrivals):
                iri = arrival.reading.observation
                known = self._known.find(iri)
                if known is not None and often[iri] == 1:
                    targets.update({q.value: position for q in known.quantities if isinstance(q, ox.NamedNode)})
        if not targets:
            return set()
        values = " ".join(str(ox.NamedNode(iri)) for iri in targets)
        text = f"{PREFIXES}SELECT ?q ?v {{ VALUES ?q {{ {values} }} ?q qudt-1-1:numericValue ?v }}"
        result = self._engine.query(QueryRequest(text)).result(timeout)
        if not isinstance(result, Solutions):
            return set()
        return {
            targets[quantity.value]
            for quantity, value in result.rows
            if isinstance(quantity, ox.NamedNode) and value == self._value(arrivals[targets[quantity.value]].reading)
        }

    def _sink(self, event: Notification | SubscribeFailed) -> None:
        """Runs on the engine's thread: hands over, never waits."""
        if isinstance(event, SubscribeFailed):
            self._failure = event.description
        else:
            self._inbox.append(lambda: self._learn(event))

    def _learn(self, event: Notification) -> None:
        if event.sequence == 0:
            self._known = KnownObservations()
        self._known.apply(event.delta)

    def _catch_up(self) -> None:
        if self._failure is not None:
            _log.error("observations.subscription_failed", extra={"reason": self._failure})
            self.close()
            self.start()
        while self._inbox:
            self._inbox.popleft()()

    def _plan(self, arrivals: Iterable[Arrival]) -> Plan:
        plan = Plan()
        self._catch_up()
        self._tidy(plan)
        for arrival in arrivals:
            try:
                self._plan_one(plan, arrival)
            except ValueError as error:
                plan.refused.append((arrival, str(error)))
                self._known.forget_if_gone(arrival.reading.observation)
        return plan

    def _plan_one(self, plan: Plan, arrival: Arrival) -> None:
        reading = arrival.reading
        known = self._known.get(reading.observation)
        if arrival.value_only:
            if not known.exists:
                self._known.forget_if_gone(reading.observation)
                return
        else:
            description = _description(reading)
            if known.described.get(reading.topic, _UNSAID) != description and self._wants_description(
                known, reading, description
            ):
                self._add(plan, known, reading, self._measured(arrival))
                return
        targets = known.values_go_to()
        if not targets:
            self._give_quantity(plan, known, arrival)
            return
        value = self._value(reading)
        time = self._time_of(arrival)
        for target in targets:
            bindings = {**target, "value": value}
            if "instant" not in target:
                text = updates.UPDATE_VALUE
            elif time is None:
                text = updates.UPDATE_VALUE_WITHOUT_TIME
            else:
                text = updates.UPDATE_VALUE_AND_TIME
                bindings["time"] = time
            plan.requests.append(UpdateRequest(text, bindings=bindings))

    def _wants_description(self, known: Known, reading: Reading, description: Description) -> bool:
        """Whether the observation is to be added: it is not there, or its mapping changed its words."""
        if not known.exists:
            return True
        said = known.described.get(reading.topic, _UNSAID)
        if said == description:
            return False
        if said is not _UNSAID:
            return True
        known.described[reading.topic] = description
        same_source = reading.topic in known.topics if reading.topic is not None else not known.topics
        return same_source and known.digest is not None and known.digest != _digest(description)

    def _add(self, plan: Plan, known: Known, reading: Reading, measured: dict[str, Term]) -> None:
        description = _description(reading)
        quantity = quantity_iri(self._new_name())
        bindings: dict[str, Term] = {
            "observation": known.iri,
            "quantity": quantity,
            "digest": ox.Literal(_digest(description)),
            **measured,
        }
        for name, iri in (
            ("unit", reading.unit),
            ("location", reading.location),
            ("property", reading.property),
            ("sensor", reading.sensor),
        ):
            if iri is not None:
                bindings[name] = ox.NamedNode(iri)
        for name, text in (("label", reading.label), ("comment", reading.comment), ("topic", reading.topic)):
            if text is not None:
                bindings[name] = ox.Literal(text)
        if "time" in measured:
            bindings["instant"] = instant_iri(quantity)
        plan.requests.append(UpdateRequest(updates.ADD_OBSERVATION, bindings=bindings))
        plan.given.append((known.iri.value, quantity))
        self._known.plan(known, quantity)
        known.described[reading.topic] = description

    def _give_quantity(self, plan: Plan, known: Known, arrival: Arrival) -> None:
        quantity = quantity_iri(self._new_name())
        bindings: dict[str, Term] = {"observation": known.iri, "quantity": quantity, **self._measured(arrival)}
        if arrival.reading.unit is not None:
            bindings["unit"] = ox.NamedNode(arrival.reading.unit)
        if "time" in bindings:
            bindings["instant"] = instant_iri(quantity)
        plan.requests.append(UpdateRequest(updates.GIVE_QUANTITY, bindings=bindings))
        plan.given.append((known.iri.value, quantity))
        self._known.plan(known, quantity)

    def _tidy(self, plan: Plan) -> None:
        """Take away the instants of quantities that clients took away."""
        for quantity in self._known.lost:
            plan.requests.append(UpdateRequest(updates.FORGET_INSTANT, bindings={"instant": instant_iri(quantity)}))
        self._known.lost.clear()

    def _measured(self, arrival: Arrival) -> dict[str, Term]:
        measured: dict[str, Term] = {"value": self._value(arrival.reading)}
        time = self._time_of(arrival)
        if time is not None:
            measured["time"] = time
        return measured

    def _value(self, reading: Reading) -> ox.Literal:
        datatype = self._datatypes.get(reading.datatype)
        if datatype is None:
            datatype = self._datatypes[reading.datatype] = ox.NamedNode(reading.datatype)
        return ox.Literal(reading.value, datatype=datatype)

    def _time_of(self, arrival: Arrival) -> ox.Literal | None:
        if self._time == "never":
            return None
        time = arrival.reading.time
        if time is None:
            if self._time == "message":
                return None
            time = arrival.received
        return ox.Literal(time_stamp(time), datatype=DATE_TIME_STAMP)

    def _submit(self, plan: Plan, receipt: bytes) -> Future[tuple[Plan, list[UpdateOutcome]]]:
        answer: Future[tuple[Plan, list[UpdateOutcome]]] = Future()
        answer.set_running_or_notify_cancel()
        if not plan.requests:
            answer.set_result((plan, []))
            return answer
        try:
            done = self._engine.update(plan.requests, receipt=receipt)
        except BaseException:
            self._give_up(plan)
            raise
        done.add_done_callback(lambda future: self._settle(plan, future, answer))
        return answer

    def _settle(
        self, plan: Plan, done: Future[list[UpdateOutcome]], answer: Future[tuple[Plan, list[UpdateOutcome]]]
    ) -> None:
        """Runs on the engine's thread: hands over, never waits."""
        error = done.exception()
        if error is not None:
            self._inbox.append(lambda: self._give_up(plan))
            answer.set_exception(error)
            return
        self.added += len(plan.given)
        self.values += len(plan.requests)
        answer.set_result((plan, done.result()))

    def _give_up(self, plan: Plan) -> None:
        for iri, quantity in plan.given:
            self._known.give_up(iri, quantity)


def time_stamp(time: datetime) -> str:
    """`time` as a lexical form of `xsd:dateTimeStamp` in UTC, to the millisecond where it has any."""
    text = time.astimezone(UTC).isoformat(timespec="milliseconds")[:-6]
    return f"{text.removesuffix('.000')}Z"


def _description(reading: Reading) -> Description:
    return (reading.unit, reading.location, reading.property, reading.sensor, reading.label, reading.comment)


def _digest(description: Description) -> str:
    return blake2b(repr(description).encode(), digest_size=8).hexdigest()


_UNSAID: Description = ("unsaid",)
_NEVER = datetime.fromtimestamp(0, UTC)
