"""The oracle of backtests: a gateway's adapters, engine, rules and streams, with a clock under control.

Messages come as payloads and pass the mapping, the planner and the sampling. `stored` is what the outbox gets.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from edge.adapters.ingest import Ingest
from edge.adapters.observations import Observations
from edge.automation.rule_actions import EngineActions
from edge.automation.rule_file import read_rule
from edge.automation.rules import Rules
from edge.automation.runner import SituationListener
from edge.automation.settings import AutomationSettings
from edge.backtest.change import Change
from edge.backtest.stored_value import StoredValue
from edge.backtest.unthreaded import UnthreadedEngine
from edge.engine.clock import SimulatedClock
from edge.engine.requests import QueryRequest, SubscriberNotification
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.mapping.reading import Reading
from edge.outbox.sampling import Note, Sampler
from edge.protocol.access import ANYBODY
from edge.streams.processor import Processor
from edge.streams.report import Report
from edge.streams.running_query import Follower
from edge.streams.service import StreamService
from edge.streams.settings import StreamSettings
from tests.support.waiting import PATIENCE, wait_for

SECOND = 1_000_000
START = 1_767_225_600 * SECOND
MAPPING = """
[[mapping]]
topic = "site/{room}"
location = "http://example.org/{room}"
store = "all"

[[mapping.readings]]
path = "t"
observation = "http://example.org/{room}-t"
property = "http://example.org/temperature"
unit = "unit:DegreeCelsius"

[[mapping.readings]]
path = "h"
observation = "http://example.org/{room}-h"
property = "http://example.org/humidity"
"""


class Message(NamedTuple):
    """A message of a device."""

    wait: int
    """Microseconds since the message before."""
    room: str
    payload: dict[str, float | str]


MAPPER = Mapper([load_pack(MAPPING, "site")])


class History:
    """The sampling of the gateway; remembers what it stores."""

    def __init__(self) -> None:
        self._sampler = Sampler()
        self.stored: list[StoredValue] = []

    def note(self, reading: Reading, time: datetime) -> object | None:
        note = self._sampler.note(reading, time)
        assert isinstance(note, Note)
        context, cells = note.context, note.cells
        assert context.series is not None
        assert cells.value is not None
        self.stored.append(
            StoredValue(
                *(cells.time, context.series, cells.value, context.datatype, context.unit, context.feature),
                *(context.property, context.sensor, context.topic),
            )
        )
        return note

    def give_up(self, note: object) -> None:
        raise AssertionError(note)


class LiveGateway:
    """A gateway. Each reading takes the path of a message of MQTT."""

    def __init__(self, *, threads: bool = False) -> None:
        self.clock = SimulatedClock(START)
        self.history = History()
        self.scheduler = open_engine(None, EngineSettings(), clock=self.clock, start=threads)
        self.engine = self.scheduler if threads else UnthreadedEngine(self.scheduler)
        self._observations = Observations(self.engine, history=self.history)
        self._observations.start()
        self._ingest = Ingest(lambda: MAPPER, self._observations)

    def receive(self, message: Message) -> None:
        received = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self.clock.at)
        payload = json.dumps(message.payload).encode()
        self._observations.write(self._ingest.read(f"site/{message.room}", payload, received)).result(PATIENCE)
        self.settle()

    def settle(self) -> None:
        """Wait until all subscribers are notified."""
        if self.engine is self.scheduler:
            self.scheduler.on_writer(lambda: None).result(PATIENCE)
            if self.scheduler.pending_evaluations:
                wait_for(lambda: not self.scheduler.pending_evaluations)
                self.scheduler.on_writer(lambda: None).result(PATIENCE)

    def close(self) -> None:
        self.scheduler.close()


def live_query(text: str, messages: Sequence[Message], begin: int) -> tuple[list[StoredValue], list[Change]]:
    """Return what is stored, and the deltas of a subscription that begins before the message with this index."""
    gateway = LiveGateway(threads=True)
    changes: list[Change] = []

    def sink(event: object) -> None:
        assert isinstance(event, SubscriberNotification)
        for kind, rows in (("removed", event.delta.removed), ("added", event.delta.added)):
            changes.extend(Change(gateway.clock.at, event.sequence, kind, row) for row in rows)

    for index, message in enumerate(messages):
        gateway.clock.at += message.wait
        if index == begin:
            gateway.engine.subscribe(QueryRequest(text), sink).result(PATIENCE)
        gateway.receive(message)
    gateway.close()
    return gateway.history.stored, changes


def live_rule(text: str, messages: Sequence[Message], steps: int) -> tuple[list[StoredValue], list[Change]]:
    """Return what is stored, and the situations of a rule. The clock moves by a second; `steps` after the messages."""
    gateway = LiveGateway()
    rule, changes, events = read_rule(text, "test"), list[Change](), deque[Callable[[], None]]()

    def note(kind: str) -> Callable[[dict], None]:
        return lambda found: changes.append(
            Change(gateway.clock.at, 0, kind, tuple(map(found.get, rule.variables)))  # type: ignore[arg-type]
        )

    listener = SituationListener(note("began"), note("ended"))  # type: ignore[arg-type]
    actions = EngineActions(gateway.scheduler, gateway.scheduler.turn)
    rules = Rules(gateway.scheduler, actions, AutomationSettings(), gateway.clock, events.append, listener=listener)

    def work() -> None:
        gateway.scheduler.turn()
        while events:
            events.popleft()()
            gateway.scheduler.turn()

    def sleep(microseconds: int) -> None:
        until = gateway.clock.at + microseconds
        while gateway.clock.at < until:
            gateway.clock.at = min(gateway.clock.at + SECOND, until)
            work()
            rules.tick()
            work()

    rules.follow([rule], {rule.name})
    work()
    for message in messages:
        sleep(message.wait)
        gateway.receive(message)
        work()
    sleep(steps * SECOND)
    gateway.close()
    return gateway.history.stored, changes


def live_windows(
    name: str, text: str, messages: Sequence[Message], seconds: int
) -> tuple[list[StoredValue], list[Change]]:
    """Return what is stored, and the reports of a registered query, by the thread of the streams of a gateway."""
    gateway = LiveGateway(threads=True)
    service = StreamService(
        None, StreamSettings(), EngineSettings(), gateway.scheduler, gateway.clock, lambda access: access
    )
    reports: list[Report] = []

    def register(processor: Processor, now: int) -> None:
        query = processor.register(name, text, ANYBODY, now)
        query.followers[query] = Follower(reports.append, pytest.fail)

    def sleep(microseconds: int) -> None:
        gateway.clock.at += microseconds
        service.call(lambda processor, now: None).result(PATIENCE)

    service.call(register).result(PATIENCE)
    for message in messages:
        sleep(message.wait)
        gateway.receive(message)
        sleep(0)
    for _ in range(seconds):
        sleep(SECOND)
    assert service.close(PATIENCE)
    gateway.close()
    return gateway.history.stored, [
        Change(each.time, each.number, "reported", row) for each in reports for row in each.rows
    ]
