"""Ingest of messages: mapping files first, then mappings in the graph; unusable messages are counted."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

from edge.adapters.observations import Done, Observations
from edge.adapters.planner import Arrival, PlannedUpdates
from edge.adapters.registry import BadValues, UnmappedTopics
from edge.adapters.settings import MappingsSettings
from edge.adapters.watched_topics import WatchedTopics
from edge.mapping.evaluate import FIRST_NUMBER
from edge.mapping.mapper import Mapper
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.reading import XSD_DECIMAL, XSD_DOUBLE, Reading
from edge.mapping.values import JsonNumber
from edge.protocol.errors import EdgeError

_IN_GRAPH: Final = "arces-monitor:hasMqttTopic"
"""Name of mappings in the graph, in lists."""
_SEARCHED: Final = 4096
"""Maximum bytes of a payload, or characters of a text in it, that are searched for a number."""
_MINUS: Final = "\u2212"
"""Typographic minus sign (U+2212)."""


class Ingest:
    """Converts messages to observations, for all adapters that receive messages.

    A topic can be mapped by files, and by clients that assigned an observation to it in the graph (the Topics Manager
    of the SEPA paper, section 5.4). Both apply. If both give the same observation, only the file's value counts: it
    knows the format of the payload, while the graph's mapping takes the first number.
    """

    def __init__(
        self, mapper: Callable[[], Mapper], observations: Observations, settings: MappingsSettings | None = None
    ) -> None:
        """`mapper` returns the current mapper of the mapping files."""
        settings = settings or MappingsSettings()
        self._mapper = mapper
        self._observations = observations
        self._largest = settings.max_payload
        self.unmapped = UnmappedTopics(settings.max_unmapped)
        self.bad_values = BadValues(settings.max_bad_values)
        self.watched = WatchedTopics()
        self.readings = 0
        """Number of readings in messages."""

    @property
    def declared_topics(self) -> frozenset[str]:
        """Topics to which clients assigned observations in the graph."""
        return self._observations.declared_topics

    def read(
        self, topic: str, payload: bytes, received: datetime, *, retained: bool = False, historical: bool = False
    ) -> list[Arrival]:
        """Return the readings of one message. Never fails: unreadable values are counted.

        A `retained` message reports a change in the past, so none of its readings is an event. Readings of a
        `historical` message are past ones, which the graph does not get.
        """
        if self.watched.watches:
            self.watched.offer(topic, payload)
        mapper = self._mapper()
        mapped = mapper.map(topic, payload, received)
        for problem in mapped.problems:
            self.bad_values.add(topic, problem.mapping, f"{problem.what}: {problem.reason}", payload, received)
        readings = [each._replace(event=None) for each in mapped.readings] if retained else mapped.readings
        if historical:
            readings = [each._replace(event=None, historical=True) for each in readings]
        arrivals = [Arrival(reading, received) for reading in readings]
        declared = self._observations.declared_for(topic) if not historical else []
        if declared:
            wanted = [observation for observation in declared if not mapper.yields(topic, observation)]
            arrivals += self._declared(topic, payload, received, wanted)
        elif not (mapped.matched or mapped.ignored):
            self.unmapped.add(topic, payload, received)
        if arrivals:
            self.unmapped.discard(topic)
        self.readings += len(arrivals)
        return arrivals

    def news(self, arrivals: list[Arrival]) -> list[Arrival]:
        """Return the readings of a retained message that are new to the graph. Readings with their own time always
        are.
        """
        untimed = [arrival for arrival in arrivals if arrival.reading.time is None]
        try:
            known = {id(untimed[position]) for position in self._observations.unchanged(untimed)}
        except (EdgeError, TimeoutError):
            return arrivals
        return [arrival for arrival in arrivals if id(arrival) not in known]

    def submit(self, arrivals: Sequence[Arrival], receipt: bytes, done: Done) -> None:
        """Write readings in one transaction with `receipt`: see `Observations.submit`.

        The caller passes the plan that `done` receives to `written`. Raises the engine's `EdgeError`.
        """
        self._observations.submit(arrivals, receipt, done)

    def written(self, plan: PlannedUpdates) -> bool:
        """Count the readings that were refused. False: all were; nothing was committed, and no receipt is stored."""
        for arrival, reason in plan.refused:
            self._refuse(arrival, reason)
        return bool(plan.requests)

    def write(self, arrivals: Sequence[Arrival]) -> None:
        """Write readings and wait for the commit. Raises the engine's `EdgeError`."""
        self.written(self._observations.write(arrivals).result())

    def remember(self, receipt: bytes, done: Callable[[Exception | None], None]) -> None:
        """Store a receipt without readings. Raises the engine's `EdgeError`, or passes it to `done`."""
        self._observations.remember(receipt, done)

    def carry_out_others(self) -> None:
        """Let waiting updates go before more readings: see `Observations.carry_out_others`."""
        self._observations.carry_out_others()

    def refuse(self, arrivals: Sequence[Arrival], reason: str) -> None:
        """Count readings that the engine refuses because of their content."""
        for arrival in arrivals:
            self._refuse(arrival, reason)

    def _refuse(self, arrival: Arrival, reason: str) -> None:
        reading = arrival.reading
        self.bad_values.add(reading.topic or "", reading.observation, reason, reading.value.encode(), arrival.received)

    def _declared(self, topic: str, payload: bytes, received: datetime, wanted: list[str]) -> list[Arrival]:
        if not wanted or not payload:
            return []
        try:
            number = _first_number(payload, self._largest)
        except ValueError as error:
            self.bad_values.add(topic, _IN_GRAPH, str(error), payload, received)
            return []
        datatype = XSD_DOUBLE if "e" in number.lower() else XSD_DECIMAL
        return [
            Arrival(Reading(observation, number, datatype, topic=topic), received, value_only=True)
            for observation in wanted
        ]


def _first_number(payload: bytes, largest: int) -> str:
    """Return the first number in its original notation. In JSON, only values are searched: numbers first, then texts.

    A payload of more than `largest` bytes is not parsed as JSON. Raises `ValueError` with the reason if no number is
    found.
    """
    for number in _candidates(payload, largest):
        if not math.isfinite(float(number)):
            raise ValueError(f"the number {number[:50]} is not finite")
        return number
    raise ValueError("the payload holds no number")


def _candidates(payload: bytes, largest: int) -> Iterator[str]:
    document: object = payload[:_SEARCHED].decode(errors="replace")
    if len(payload) <= largest:
        with contextlib.suppress(PayloadError):
            document = PayloadMessage("", payload).document
    scalars = list(_scalars(document))
    yield from (item for item in scalars if isinstance(item, JsonNumber))
    for item in scalars:
        found = FIRST_NUMBER.search(item[:_SEARCHED].replace(_MINUS, "-"))
        if found is not None:
            yield found[0]


def _scalars(document: object) -> Iterator[str]:
    """Numbers and texts, in order."""
    waiting = [document]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict | list):
            waiting += reversed(item.values() if isinstance(item, dict) else item)
