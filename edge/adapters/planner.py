"""Planner: computes the updates for readings from the known state of the graph. It has no threads, engine or clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from typing import NamedTuple, Protocol

import pyoxigraph as ox

from edge.adapters import updates
from edge.adapters.observation_cache import CachedObservation, Description, ObservationCache, SeenEvent
from edge.adapters.settings import ObservationsSettings
from edge.adapters.terms import DATE_TIME_STAMP, instant_iri, quantity_iri
from edge.adapters.things import TYPES, describe, rename
from edge.engine.requests import UpdateRequest
from edge.mapping.reading import Event, Reading
from edge.protocol.results import Term


class Arrival(NamedTuple):
    """A reading and the time at which it was received."""

    reading: Reading
    received: datetime
    """Time with zone, in UTC."""
    value_only: bool = False
    """Whether a mapping in the graph gave the reading: a client owns the observation, and only its value is updated."""


class HistorySelection(Protocol):
    """Selects the readings that are stored in the history."""

    def note(self, reading: Reading, time: datetime) -> object | None:
        """Return a note for the update of a reading with this time; None: the reading is not stored."""
        ...

    def give_up(self, note: object) -> None:
        """Take back a note whose update was not executed."""
        ...


@dataclass(slots=True)
class PlannedUpdates:
    """The updates for some readings, and the data to roll them back."""

    requests: list[UpdateRequest] = field(default_factory=list)
    given: list[tuple[str, ox.NamedNode]] = field(default_factory=list)
    """New quantities with the IRI of their observation."""
    refused: list[tuple[Arrival, str]] = field(default_factory=list)
    """Readings that are not valid RDF, with the reason."""
    described: set[ox.NamedNode] = field(default_factory=set)
    """Sensors, properties and places of new observations."""
    renamed: set[ox.NamedNode] = field(default_factory=set)
    """Sensors with a label of their own."""
    notes: list[object] = field(default_factory=list)
    """Notes for the history."""
    events: list[tuple[str, SeenEvent]] = field(default_factory=list)
    """Events that an id or a time identifies, with their observations."""


class Planner:
    """Converts readings to updates with the semantics of ADD_OBSERVATION and UPDATE_VALUE (SEPA paper, Listing 18)."""

    def __init__(
        self, settings: ObservationsSettings, new_name: Callable[[], str], history: HistorySelection | None
    ) -> None:
        """`new_name` returns a unique name for each new quantity."""
        self.known = ObservationCache()
        self._history = history
        self._time = settings.time
        self._new_name = new_name
        self._datatypes: dict[str, ox.NamedNode] = {}

    def plan(self, arrivals: Iterable[Arrival]) -> PlannedUpdates:
        """Return the updates that write these readings, and those that clean up after clients."""
        plan = PlannedUpdates()
        self._clean_up(plan)
        for arrival in arrivals:
            before, given = len(plan.requests), len(plan.given)
            if arrival.reading.existing and not self._exists(arrival.reading.observation):
                continue
            known = self.known.find(arrival.reading.observation)
            events, marked = () if known is None else known.events, len(plan.events)
            if arrival.reading.historical:
                self._plan_historical(plan, arrival)
                continue
            try:
                if arrival.reading.event is not None and not self._begin_event(plan, arrival, arrival.reading.event):
                    continue
                self._plan_one(plan, arrival)
                if arrival.reading.store is not None and self._history is not None:
                    self._note(plan, arrival, self._history)
            except ValueError as error:
                plan.refused.append((arrival, str(error)))
                self._take_back(plan, before, given, marked)
                if (known := self.known.find(arrival.reading.observation)) is not None:
                    known.events = events
                self.known.forget_if_gone(arrival.reading.observation)
        return plan

    def _exists(self, observation: str) -> bool:
        try:
            found = self.known.get(observation).exists
        except ValueError:  # the plan refuses it with the reason
            return True
        if not found:
            self.known.forget_if_gone(observation)
        return found

    def _take_back(self, plan: PlannedUpdates, before: int, given: int, marked: int) -> None:
        """Remove what a plan has for a refused reading: its requests, quantities and events from these positions on."""
        for request in plan.requests[before:]:
            if request.sparql == updates.DESCRIBE_THING:
                plan.described.discard(request.bindings["thing"])
            elif request.sparql == updates.RENAME_THING:
                plan.renamed.discard(request.bindings["thing"])
        for iri, quantity in plan.given[given:]:
            self.known.give_up(iri, quantity)
        self._doubt_result_times(plan.requests[before:])
        del plan.requests[before:], plan.given[given:], plan.events[marked:]

    def _doubt_result_times(self, requests: Iterable[UpdateRequest]) -> None:
        """Note that the observations of updates that are not executed may have a result time."""
        for request in requests:
            iri = request.bindings.get("observation")
            if isinstance(iri, ox.NamedNode) and (known := self.known.find(iri.value)) is not None:
                known.has_result_time = True

    def declare(self, readings: Iterable[Reading]) -> PlannedUpdates:
        """Return the updates that add missing observations and replace changed descriptions."""
        plan = PlannedUpdates()
        for reading in readings:
            try:
                known = self.known.get(reading.observation)
                if self._needs_description(known, reading, _description(reading)):
                    self._add(plan, known, reading, {})
            except ValueError as error:
                plan.refused.append((Arrival(reading, _NEVER), str(error)))
                self.known.forget_if_gone(reading.observation)
        return plan

    def give_up(self, plan: PlannedUpdates) -> None:
        """Roll back a plan that was not executed."""
        for iri, quantity in plan.given:
            self.known.give_up(iri, quantity)
        for iri, event in plan.events:
            if (known := self.known.find(iri)) is not None and known.events:
                known.events = [each for each in known.events if each != event]
        self._doubt_result_times(plan.requests)
        if self._history is not None:
            # In reverse order, because sampling restores the previous value of a series step by step.
            for note in reversed(plan.notes):
                self._history.give_up(note)

    def value(self, reading: Reading) -> ox.Literal:
        """Return the value of a reading as RDF. Raises `ValueError` if the datatype is not a valid IRI."""
        datatype = self._datatypes.get(reading.datatype)
        if datatype is None:
            datatype = self._datatypes[reading.datatype] = ox.NamedNode(reading.datatype)
        return ox.Literal(reading.value, datatype=datatype)

    def _plan_one(self, plan: PlannedUpdates, arrival: Arrival) -> None:
        reading = arrival.reading
        known = self.known.get(reading.observation)
        if arrival.value_only:
            if not known.exists:
                self.known.forget_if_gone(reading.observation)
                return
        else:
            description = _description(reading)
            if known.described.get(reading.topic, _UNKNOWN) != description and self._needs_description(
                known, reading, description
            ):
                self._add(plan, known, reading, self._measured(arrival))
                return
        targets = known.values_go_to()
        if not targets:
            self._give_quantity(plan, known, arrival)
            return
        value = self.value(reading)
        time = self._time_of(arrival)
        # The observation of a mapping in the graph is a client's, so its result time is, too.
        is_told = time is not None and reading.time is not None and not arrival.value_only
        had_result_time, known.has_result_time = known.has_result_time, is_told
        for target in targets:
            bindings = {**target, "value": value}
            if "instant" not in target:
                text = updates.UPDATE_VALUE
            elif time is None:
                text = updates.UPDATE_VALUE_WITHOUT_TIME
            else:
                bindings["time"] = time
                if is_told:
                    text = updates.UPDATE_VALUE_AND_RESULT_TIME
                    bindings["resultTime"] = time
                elif had_result_time:
                    text = updates.UPDATE_VALUE_AND_TIME_OF_ARRIVAL
                else:
                    text = updates.UPDATE_VALUE_AND_TIME
            plan.requests.append(UpdateRequest(text, bindings=bindings))

    def _plan_historical(self, plan: PlannedUpdates, arrival: Arrival) -> None:
        """Add an update that changes nothing in the graph, with the note for the history."""
        if arrival.reading.store is None or self._history is None:
            return
        try:
            self.value(arrival.reading)
        except ValueError as error:
            plan.refused.append((arrival, str(error)))
            return
        plan.requests.append(UpdateRequest(updates.NOTHING))
        self._note(plan, arrival, self._history)

    def _begin_event(self, plan: PlannedUpdates, arrival: Arrival, event: Event) -> bool:
        """Remove the value before an event, so that subscribers see an equal one, too.

        Returns False if the event is known already: it was the last one, or another gateway that heard the device, too,
        reported it a moment ago.
        """
        known = self.known.get(arrival.reading.observation)
        if event.id or event.within is not None:
            seen = SeenEvent(hash((event.id, arrival.reading.value)), arrival.received)
            if seen.is_among(known.events, event.within):
                return False
            first = not known.events
            before = known.events if event.id else [each for each in known.events if seen.is_near(each, event.within)]
            known.events = [*before[1 - _EVENTS :], seen]
            plan.events.append((arrival.reading.observation, seen))
            # After a restart it may be the event that the graph has, so an equal value changes nothing. Without an id,
            # it is probably a new one.
            if first and event.id:
                return True
        for target in known.values_go_to():
            bindings = {name: term for name, term in target.items() if name != "instant"}
            plan.requests.append(UpdateRequest(updates.CLEAR_VALUE, bindings=bindings))
        return True

    def _note(self, plan: PlannedUpdates, arrival: Arrival, history: HistorySelection) -> None:
        """Attach the note for the history to the last update of the reading."""
        note = history.note(arrival.reading, arrival.reading.time or arrival.received)
        if note is not None:
            # The note travels with the update, so value and history are committed in one transaction.
            plan.requests[-1].notes = (note,)
            plan.notes.append(note)

    def _needs_description(self, known: CachedObservation, reading: Reading, description: Description) -> bool:
        """Whether to add the observation: it is missing, or its mapping changed the description."""
        if not known.exists:
            return True
        described = known.described.get(reading.topic, _UNKNOWN)
        if described == description:
            return False
        if described is not _UNKNOWN:
            return True
        # Topics can be made up by devices, so the cache per observation is bounded.
        if len(known.described) >= _SOURCES:
            known.described.clear()
        known.described[reading.topic] = description
        # Two topics that describe one observation differently would otherwise replace each other's description forever.
        same_source = reading.topic in known.topics if reading.topic is not None else not known.topics
        return same_source and known.digest is not None and known.digest != _digest(description)

    def _add(self, plan: PlannedUpdates, known: CachedObservation, reading: Reading, measured: dict[str, Term]) -> None:
        description = _description(reading)
        quantity = quantity_iri(self._new_name())
        bindings: dict[str, Term] = {
            "observation": known.iri,
            "quantity": quantity,
            "digest": ox.Literal(_digest(description)),
            **measured,
        }
        things: dict[str, ox.NamedNode] = {}
        for name, iri in (
            ("unit", reading.unit),
            ("location", reading.location),
            ("property", reading.property),
            ("sensor", reading.sensor),
        ):
            if iri is not None:
                bindings[name] = things[name] = ox.NamedNode(iri)
        for name, text in (("label", reading.label), ("comment", reading.comment), ("topic", reading.topic)):
            if text is not None:
                bindings[name] = ox.Literal(text)
        if "time" in measured:
            bindings["instant"] = instant_iri(quantity)
        self._describe_things(plan, known, reading, things)
        plan.requests.append(UpdateRequest(updates.ADD_OBSERVATION, bindings=bindings))
        plan.given.append((known.iri.value, quantity))
        self.known.plan(known, quantity)
        known.has_result_time = "resultTime" in measured
        known.described[reading.topic] = description

    @staticmethod
    def _describe_things(
        plan: PlannedUpdates, known: CachedObservation, reading: Reading, things: dict[str, ox.NamedNode]
    ) -> None:
        """Give the things of an observation their types and labels."""
        if known.exists:
            # A device could change its description with each message: the former things must not stay.
            present: dict[str, Term] = {name: things.get(name, known.iri) for name in TYPES}
            plan.requests.append(UpdateRequest(updates.FORGET_THINGS, bindings={"observation": known.iri, **present}))
            # It may delete what an earlier request of the plan described.
            plan.described.intersection_update(things.values())
            plan.renamed.intersection_update(things.values())
        for name, kind in TYPES.items():
            if name in things and things[name] not in plan.described and things[name] != known.iri:
                plan.described.add(things[name])
                plan.requests.append(describe(things[name], kind, reading.sensor_label if name == "sensor" else None))
        # Another mapping of the sensor may have described it without a label.
        sensor, label = things.get("sensor"), reading.sensor_label
        if label and sensor is not None and sensor not in plan.renamed and sensor != known.iri:
            plan.renamed.add(sensor)
            plan.requests.append(rename(sensor, TYPES["sensor"], label))

    def _give_quantity(self, plan: PlannedUpdates, known: CachedObservation, arrival: Arrival) -> None:
        quantity = quantity_iri(self._new_name())
        bindings: dict[str, Term] = {"observation": known.iri, "quantity": quantity, **self._measured(arrival)}
        if arrival.reading.unit is not None:
            bindings["unit"] = ox.NamedNode(arrival.reading.unit)
        if "time" in bindings:
            bindings["instant"] = instant_iri(quantity)
        known.has_result_time = "resultTime" in bindings
        plan.requests.append(UpdateRequest(updates.GIVE_QUANTITY, bindings=bindings))
        plan.given.append((known.iri.value, quantity))
        self.known.plan(known, quantity)

    def _clean_up(self, plan: PlannedUpdates) -> None:
        """Delete the instants of quantities that clients deleted."""
        for quantity, observation in self.known.lost.items():
            bindings: dict[str, Term] = {"instant": instant_iri(quantity), "observation": observation}
            plan.requests.append(UpdateRequest(updates.FORGET_INSTANT, bindings=bindings))
        self.known.lost.clear()

    def _measured(self, arrival: Arrival) -> dict[str, Term]:
        measured: dict[str, Term] = {"value": self.value(arrival.reading)}
        time = self._time_of(arrival)
        if time is not None:
            measured["time"] = time
            if arrival.reading.time is not None and not arrival.value_only:
                measured["resultTime"] = time
        return measured

    def _time_of(self, arrival: Arrival) -> ox.Literal | None:
        if self._time == "never":
            return None
        time = arrival.reading.time
        if time is None:
            if self._time == "message":
                return None
            time = arrival.received
        return ox.Literal(time_stamp(time), datatype=DATE_TIME_STAMP)


def time_stamp(time: datetime) -> str:
    """Format `time` as `xsd:dateTimeStamp` in UTC, with milliseconds, and without zeros at the end of the fraction.

    This is the value form of the engine, so the engine does not need to normalize it.
    """
    text = time.astimezone(UTC).isoformat(timespec="milliseconds")[:-6]
    return f"{text.rstrip('0').rstrip('.')}Z"


def _description(reading: Reading) -> Description:
    given = (reading.unit, reading.location, reading.property, reading.sensor, reading.label, reading.comment)
    # Without a label, the digest is that of versions that did not have it.
    return given if reading.sensor_label is None else (*given, reading.sensor_label)


def _digest(description: Description) -> str:
    return blake2b(repr(description).encode(), digest_size=8).hexdigest()


_EVENTS = 16
"""Events of an observation whose repetition is recognised."""
_SOURCES = 64
"""Number of topics per observation whose descriptions are remembered."""
_UNKNOWN: Description = ("unsaid",)
_NEVER = datetime.fromtimestamp(0, UTC)
