"""The writer of readings on a real engine: transactions, wake-ups, and retries."""

import json
import math
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Event

import pytest
from adapter_parts import MAPPINGS, Values, value_of

from edge.adapters.ingest import Ingest
from edge.adapters.messages import MessageQueue, MqttMessage
from edge.adapters.observations import Observations
from edge.adapters.redelivery import NEW_SESSION, part_of, receipt_of
from edge.adapters.writer import ReadingWriter
from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.engine.wakeups import together, wake
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.protocol.errors import StorageFailed, UpdateFailed
from tests.support.waiting import wait_for

NOW = datetime(2024, 5, 1, tzinfo=UTC)
KITCHEN = "http://example.org/kitchen-temperature"
LOG = "room/kitchen/log"
SERIES = "room/kitchen/series"


@dataclass
class Settings:
    max_batch: int = 100
    retry_min: float = 0.01
    retry_max: float = 0.02


class Writing:
    """A writer, and what it called."""

    def __init__(self, engine, **settings: object) -> None:
        observations = Observations(engine)
        observations.start()
        mapper = Mapper([load_pack(MAPPINGS, "test")])
        self.ingest = Ingest(lambda: mapper, observations)
        self.inbox = MessageQueue(1000, 1_000_000)
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

    def put_many(self, values, *, topic: str = LOG, qos: int = 1, retain: bool = False, committed: int = 0) -> bytes:
        """Queue one message with many readings. Return its receipt."""
        payload = json.dumps(list(values)).encode()
        receipt = receipt_of(1, topic, payload) if qos else b""
        self.inbox.put(MqttMessage(topic, payload, qos, retain, qos, NOW, 1, receipt, committed))
        return receipt

    def process(self) -> None:
        """Process all messages."""
        wait_for(lambda: self.writer.turn() and self.writer.idle)


class Recorded:
    """The real engine, with the values and the receipts of its transactions."""

    def __init__(self, engine) -> None:
        self.engine = engine
        self.transactions: list[list[int]] = []
        self.receipts: list[bytes] = []

    def write(self, requests, receipt, done):
        self.transactions.append([int(request.bindings["value"].value) for request in requests])
        self.receipts.append(receipt)
        self.engine.write(requests, receipt, done)

    def __getattr__(self, name):
        return getattr(self.engine, name)


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


def test_a_message_with_many_readings_is_divided_into_transactions_in_order(engine):
    recorded = Recorded(engine)
    writing = Writing(recorded)
    values = Values(engine)
    receipt = writing.put_many(range(120))
    writing.process()
    assert recorded.transactions == [list(range(50)), list(range(50, 100)), list(range(100, 120))]
    assert recorded.receipts == [part_of(50, receipt), part_of(100, receipt), receipt]
    assert [int(value) for _, value in values.added] == list(range(120))
    assert len(writing.done) == 1
    assert engine.receipts().result(10) == receipt


def test_a_divided_message_keeps_its_place_among_others(engine):
    recorded = Recorded(engine)
    writing = Writing(recorded, max_batch=3)
    writing.put(1, 2)
    writing.put_many(range(10, 17))
    writing.put(3)
    writing.process()
    assert recorded.transactions == [[1, 2], [10, 11, 12], [13, 14, 15], [16], [3]]
    assert [done[-1] for done in writing.done] == ["2", json.dumps(list(range(10, 17))), "3"]


def test_a_message_is_done_after_its_last_part(engine):
    writing = Writing(Recorded(engine), max_batch=3)
    for last in (3, 6):
        with busy(engine):
            writing.put_many(range(7)) if last == 3 else None
            writing.writer.turn()
        wait_for(lambda: not writing.writer._busy)
        assert int(value_of(engine, KITCHEN)) == last - 1
        assert writing.done == []
    assert engine.receipts().result(10) == part_of(6, receipt_of(1, LOG, json.dumps(list(range(7))).encode()))
    writing.process()
    assert len(writing.done) == 1


def test_a_later_delivery_continues_after_the_committed_readings(engine):
    recorded = Recorded(engine)
    writing = Writing(recorded, max_batch=3)
    receipt = writing.put_many(range(10), committed=3)
    writing.process()
    assert recorded.transactions == [[3, 4, 5], [6, 7, 8], [9]]
    assert recorded.receipts == [part_of(6, receipt), part_of(9, receipt), receipt]
    recorded.transactions.clear()
    writing.put_many(range(10), committed=9)
    writing.put_many(range(5), committed=9)
    writing.process()
    assert recorded.transactions == [[9]], "a changed mapping may give fewer readings than are committed"
    assert sum(map(len, writing.done)) == 3


def test_a_message_of_qos_0_is_divided_without_receipts(engine):
    recorded = Recorded(engine)
    writing = Writing(recorded)
    writing.put_many(range(60), qos=0)
    writing.process()
    assert [len(values) for values in recorded.transactions] == [50, 10]
    assert recorded.receipts == [b"", b""]
    assert len(writing.done) == 1


def test_receipts_of_earlier_messages_are_stored_with_the_first_part(engine):
    recorded = Recorded(engine)
    writing = Writing(recorded, max_batch=3)
    writing.put("open", topic="elsewhere")
    earlier = receipt_of(1, "elsewhere", b"open")
    receipt = writing.put_many(range(4))
    writing.process()
    assert recorded.receipts == [earlier + part_of(3, receipt), receipt]


def test_a_temporary_error_repeats_only_the_failed_part(engine):
    outage = [StorageFailed("The disk is full")] * 3
    refusing = Refusing(engine, lambda value: outage.pop() if value == "4" and outage else None)
    writing = Writing(refusing, max_batch=3)
    values = Values(engine)
    writing.put_many(range(8))
    writing.put(100)
    writing.process()
    assert not outage
    assert [int(value) for _, value in values.added] == [*range(8), 100]
    assert len(writing.done) == 2


@pytest.mark.parametrize("refused", [0, 4, 7])
def test_a_permanent_error_costs_only_the_readings_of_its_part(engine, refused):
    refusing = Refusing(engine, lambda value: UpdateFailed("refused") if value == str(refused) else None)
    writing = Writing(refusing, max_batch=3)
    values = Values(engine)
    receipt = writing.put_many(range(8))
    writing.put(100)
    writing.process()
    lost = range(refused - refused % 3, refused - refused % 3 + 3)
    assert [int(value) for _, value in values.added] == [*(set(range(8)) - set(lost)), 100]
    assert len(writing.done) == 2
    [entry] = writing.ingest.bad_values.listed()
    assert (entry["reason"], entry["count"]) == ("refused", len(set(lost) & set(range(8))))
    assert engine.receipts().result(10) == receipt + receipt_of(1, "room/kitchen/temperature", b"100")


def test_a_refused_batch_is_tried_message_by_message_before_the_parts_that_follow(engine):
    refusing = Refusing(engine, lambda value: UpdateFailed("refused") if value == "2" else None)
    writing = Writing(refusing, max_batch=3)
    values = Values(engine)
    writing.put(1, 2)
    writing.put_many(range(10, 17))
    writing.process()
    assert [int(value) for _, value in values.added] == [1, *range(10, 17)]


def test_the_counts_of_a_retained_message_include_readings_that_the_graph_has(engine):
    """Another delivery may find other values in the graph."""
    recorded = Recorded(engine)
    writing = Writing(recorded, max_batch=3)
    writing.put_many(range(10), topic=SERIES)
    writing.process()
    recorded.transactions.clear()
    recorded.receipts.clear()
    known = {0, 1, 4, 9}
    receipt = writing.put_many([n if n in known else n + 100 for n in range(10)], topic=SERIES, retain=True)
    writing.process()
    assert recorded.transactions == [[102, 103, 105], [106, 107, 108]]
    assert recorded.receipts == [part_of(6, receipt), receipt]


def test_updates_of_other_clients_run_between_the_parts():
    """Readings have priority, and all parts together are shorter than the time for which other clients would wait."""
    engine = open_engine(None, EngineSettings(max_batch_time=0))
    parts = 12
    order: list[str] = []

    class WithClient(Recorded):
        """While a part is carried out, a client sends an update."""

        def write(self, requests, receipt, done):
            number = len(self.receipts)

            def note(error):
                order.append(f"part {number}")
                done(error)

            super().write(requests, receipt, note)
            update = UpdateRequest("INSERT DATA { <urn:s> <urn:p> 1 }", source="client")
            self.engine.update([update]).add_done_callback(lambda _: order.append(f"update {number}"))

    writing = Writing(WithClient(engine), max_batch=5)
    writing.put_many(range(5 * parts))
    writing.process()
    wait_for(lambda: len(order) == 2 * parts)
    assert order == [f"{kind} {number}" for number in range(parts) for kind in ("part", "update")]
    assert engine.close()


def test_subscribers_of_a_transaction_do_not_wait_for_the_next_one(engine):
    order = []

    class Notifying(Recorded):
        def write(self, requests, receipt, done):
            order.append("commit")
            super().write(requests, receipt, done)
            wake(partial(order.append, "wake"))

        def carry_out(self, *, wait: bool = False) -> None:
            if wait:
                order.append("others")
            self.engine.carry_out(wait=wait)

    writing = Writing(Notifying(engine))
    writing.put(1)
    writing.put_many(range(80))
    with together():
        writing.process()
    assert order == ["commit", "wake", "commit", "wake", "others", "commit", "wake"]
