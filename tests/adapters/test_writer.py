"""The writer of readings on a real engine: transactions, wake-ups, and retries."""

import math
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event

import pytest
from adapter_parts import MAPPINGS, Values, value_of

from edge.adapters.ingest import Ingest
from edge.adapters.messages import Inbox, MqttMessage
from edge.adapters.observations import Observations
from edge.adapters.redelivery import NEW_SESSION, receipt_of
from edge.adapters.writer import ReadingWriter
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.protocol.errors import StorageFailed, UpdateFailed
from tests.support.waiting import wait_for

NOW = datetime(2024, 5, 1, tzinfo=UTC)
KITCHEN = "http://example.org/kitchen-temperature"


@dataclass
class Settings:
    max_batch: int = 500
    retry_min: float = 0.01
    retry_max: float = 0.02


class Writing:
    """A writer, and what it called."""

    def __init__(self, engine, **settings: object) -> None:
        observations = Observations(engine)
        observations.start()
        mapper = Mapper([load_pack(MAPPINGS, "test")])
        self.ingest = Ingest(lambda: mapper, observations)
        self.inbox = Inbox(1000, 1_000_000)
        self.done: list[list[str]] = []
        self.wakes = 0
        self.writer = ReadingWriter(
            Settings(**settings), self.ingest, self.inbox, "test", done=self._finish, wake=self._wake
        )

    def _finish(self, messages) -> None:
        self.done.append([message.payload.decode() for message in messages])

    def _wake(self) -> None:
        self.wakes += 1

    def put(self, *values: object, topic: str = "room/kitchen/temperature") -> None:
        for value in values:
            payload = str(value).encode()
            self.inbox.put(MqttMessage(topic, payload, 1, False, 1, NOW, 1, receipt_of(1, topic, payload)))


class Refusing:
    """The real engine, of which some updates fail. `refuse` returns the error for a value."""

    def __init__(self, engine, refuse) -> None:
        self.engine = engine
        self.refuse = refuse

    def write(self, requests, receipt, done):
        values = [request.bindings["value"].value for request in requests]
        if errors := [error for value in values if (error := self.refuse(value))]:
            raise errors[0]
        self.engine.write(requests, receipt, done)

    def __getattr__(self, name):
        return getattr(self.engine, name)


def test_the_owner_carries_out_all_transactions_while_the_engine_is_idle(engine):
    writing = Writing(engine, max_batch=2)
    engine.on_writer(lambda: None).result(10)
    writing.put(1, 2, 3, 4, 5)
    wait_for(lambda: writing.writer.turn() and writing.writer.idle)
    assert writing.done == [["1", "2"], ["3", "4"], ["5"]]
    assert value_of(engine, KITCHEN) == "5"


@contextmanager
def busy(engine):
    """Keep the engine's writer thread busy, so that it carries out what is submitted meanwhile."""
    began, end = Event(), Event()
    engine.on_writer(lambda: began.set() or end.wait(60))
    assert began.wait(60)
    yield
    end.set()


def test_a_commit_of_the_engine_wakes_the_owner_only_if_more_waits(engine):
    writing = Writing(engine, max_batch=2)
    with busy(engine):
        writing.put(1, 2)
        assert writing.writer.turn() == math.inf
        assert not writing.writer.idle
    wait_for(lambda: writing.writer.idle)
    assert (writing.done, writing.wakes) == ([["1", "2"]], 0)
    with busy(engine):
        writing.put(3, 4, 5)
        writing.writer.turn()
    wait_for(lambda: writing.wakes == 1)
    wait_for(lambda: writing.writer.turn() and writing.writer.idle)
    assert (writing.done[1:], writing.wakes) == ([["3", "4"], ["5"]], 1)


def test_messages_without_readings_are_done_at_once_and_their_receipts_follow(engine):
    writing = Writing(engine)
    writing.put("open", topic="elsewhere")
    writing.writer.turn()
    assert writing.done == [["open"]]
    assert writing.writer.idle
    writing.put(1)
    writing.writer.turn()
    wait_for(lambda: writing.writer.idle)
    expected = receipt_of(1, "elsewhere", b"open") + receipt_of(1, "room/kitchen/temperature", b"1")
    assert engine.receipts().result(10) == expected


def test_a_new_session_is_a_transaction_of_its_own(engine):
    writing = Writing(engine)
    writing.put(1)
    writing.inbox.put(MqttMessage("", b"mark", 0, False, 0, NOW, 1, NEW_SESSION))
    writing.put(2)
    wait_for(lambda: writing.writer.turn() and writing.writer.idle)
    assert writing.done == [["1"], ["mark"], ["2"]]


def test_a_transaction_is_tried_again_while_the_disk_is_full_and_keeps_its_order(engine):
    outage = [StorageFailed("The disk is full")] * 3
    writing = Writing(Refusing(engine, lambda _: outage.pop() if outage else None), max_batch=1)
    values = Values(engine)
    writing.put(1, 2, 3)
    assert writing.writer.turn() <= 0.02
    assert writing.done == []
    wait_for(lambda: writing.writer.turn() and writing.writer.idle)
    assert writing.done == [["1"], ["2"], ["3"]]
    assert [value for _, value in values.added] == ["1", "2", "3"]


def test_a_message_that_the_engine_refuses_costs_no_other_one(engine):
    writing = Writing(Refusing(engine, lambda value: UpdateFailed("refused") if value == "2" else None))
    writing.put(1, 2, 3)
    wait_for(lambda: writing.writer.turn() and writing.writer.idle)
    assert writing.done == [["1"], ["2"], ["3"]]
    assert value_of(engine, KITCHEN) == "3"
    [entry] = writing.ingest.bad_values.listed()
    assert (entry["reason"], entry["last_payload"]) == ("refused", "2")
    assert writing.ingest.readings == 3


def test_a_fault_of_the_engine_after_the_commit_does_not_process_messages_twice(engine):
    class Faulty(Refusing):
        def carry_out(self) -> None:
            self.engine.on_writer(lambda: None).result(10)
            wait_for(lambda: writing.done or self.engine.carry_out())
            raise RuntimeError("a fault")

    writing = Writing(Faulty(engine, lambda _: None))
    writing.put(1)
    with pytest.raises(RuntimeError, match="a fault"):
        writing.writer.turn()
    assert writing.done == [["1"]]
    assert writing.writer.idle
    assert not writing.ingest.bad_values.listed()
