"""A slow client: its notifications give the exact result, whichever were merged meanwhile."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import weakref
from collections import Counter
from concurrent.futures import Future
from copy import deepcopy
from typing import Any

import pyoxigraph as ox
import pytest
from gate_client import rows
from hypothesis import given
from hypothesis import strategies as st

from edge.engine import requests
from edge.engine.requests import Delta, QueryRequest, SubscriberNotification, UpdateOutcome, UpdateRequest
from edge.gates.guard import OPEN_GUARD
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.outgoing import Outgoing, to_text
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.gates.settings import SessionLimits, WsGateSettings
from edge.gates.suspended_subscription import SuspendedSubscription, SwitchableSink
from edge.metrics import Metrics
from tests.support.waiting import PATIENCE, eventually


class Reader:
    """A connection whose client reads only as many messages as the test permits."""

    unsent = 0

    def __init__(self) -> None:
        self.reading = True
        self.received: list[dict[str, Any]] = []
        self.closed: int | None = None
        self.lost = False
        self._allowed = asyncio.Semaphore(0)

    @property
    def writable(self) -> bool:
        return self.reading

    def write(self, text: str) -> None:
        self.received.append(json.loads(text))

    async def write_and_wait(self, text: str) -> bool:
        await self._allowed.acquire()
        if not self.lost:
            self.received.append(json.loads(text))
        return not self.lost

    async def taken(self) -> bool:
        return not self.lost

    def close(self, code: int, reason: str) -> None:
        self.closed = code

    def abort(self) -> None:
        self.closed = 1006

    async def read(self, messages: int) -> None:
        """Let the client read up to this number of waiting messages."""
        for _ in range(messages):
            self._allowed.release()
        for _ in range(2 * messages + 2):
            await asyncio.sleep(0)
        while not self._allowed.locked():  # unused permits expire
            await self._allowed.acquire()


class Clock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


class Teller:
    """A publisher of one subscription: its result, a bag of small numbers, and the notifications of its changes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.result: Counter[int] = Counter()
        self.sequence = 0

    def change(self, target: Counter[int]) -> SubscriberNotification:
        """Return the notification of the step from the result to another one."""
        added, removed = target - self.result, self.result - target
        self.result = target
        notification = SubscriberNotification(
            self.name,
            None,
            self.sequence,
            Delta(("n",), tuple(map(_row, added.elements())), tuple(map(_row, removed.elements()))),
        )
        self.sequence += 1
        return notification


class Follower:
    """A client that applies the notifications of one subscription."""

    def __init__(self) -> None:
        self.result: Counter[int] = Counter()
        self.sequence = -1

    def take(self, body: dict[str, Any]) -> None:
        assert body["sequence"] == self.sequence + body.get("merged", 1)
        self.sequence = body["sequence"]
        removed, added = (Counter(_numbers(body[name])) for name in ("removedResults", "addedResults"))
        assert not removed & added or body.get("merged", 1) == 1
        assert removed <= self.result
        self.result = self.result - removed + added


UNMERGED = st.sampled_from([0, 300, 1_000_000])
BAGS = st.lists(st.integers(0, 4), max_size=5).map(Counter)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("change"), st.integers(0, 2), BAGS),
        st.tuples(st.just("answer")),
        st.tuples(st.just("pause")),
        st.tuples(st.just("read"), st.integers(1, 3)),
        st.tuples(st.just("pass"), st.floats(0, 2)),
        st.tuples(st.just("resume")),
    ),
    max_size=40,
)


@given(STEPS, BAGS, UNMERGED, st.sampled_from([0, 500, 1_000_000]))
def test_a_client_can_resume_wherever_its_connection_breaks(steps, last, unmerged, kept):
    asyncio.run(_break(steps, last, unmerged, kept))


async def _break(steps: list[Any], last: Counter[int], unmerged: int, kept: int) -> None:
    reader, clock = Reader(), Clock()
    outgoing = Outgoing(reader, 1000, unmerged, lambda: None, lambda: None, merge_after=1, kept=kept, now=clock)
    whole = kept == 1_000_000  # all sent notifications are kept, so that every client can resume
    teller = Teller("0")
    outgoing.remember(teller.name)
    outgoing.send(teller.change(Counter()))
    for step in steps:
        await _step(step, outgoing, reader, teller, clock)
    unread = outgoing.unread().get(teller.name, [])
    reported = teller.sequence - 1
    suspended = SuspendedSubscription(
        SwitchableSink(lambda _: None), QueryRequest(""), teller.name, ("n",), reported, unread
    )
    outgoing.close()
    suspended.add(teller.change(last))
    follower = Follower()
    for message in reader.received:  # any of them may be the last one that arrived
        follower.take(message["notification"])
        missed = suspended.since("again", follower.sequence)
        assert missed is not None or not whole
        if missed is not None:
            back = deepcopy(follower)
            back.take(json.loads(to_text(missed))["notification"])
            assert (back.result, back.sequence) == (teller.result, suspended.sequence)
    for unheard_of in (follower.sequence + 1000, reported + 1):
        assert suspended.since(None, unheard_of) is None


async def _step(step: Any, outgoing: Outgoing, reader: Reader, teller: Teller, clock: Clock) -> None:
    if step[0] == "change":
        outgoing.send(teller.change(step[2]))
    elif step[0] == "pause":
        reader.reading = False
    elif step[0] == "read":
        await reader.read(step[1])
    elif step[0] == "pass":
        clock.time += step[1]
    elif step[0] == "resume":
        reader.reading = True
        await reader.read(100)


@given(STEPS, UNMERGED)
def test_a_client_of_any_speed_gets_the_exact_result(steps, unmerged):
    asyncio.run(_tell(steps, unmerged))


async def _tell(steps: list[Any], unmerged: int) -> None:
    reader, clock = Reader(), Clock()
    merged: list[None] = []
    outgoing = Outgoing(reader, 1000, unmerged, lambda: None, lambda: merged.append(None), merge_after=1, now=clock)
    tellers = [Teller(str(number)) for number in range(3)]
    sent = 0
    answers: list[dict[str, int]] = []
    for teller in tellers:
        outgoing.send(teller.change(Counter()))
    for step in steps:
        if step[0] == "change":
            outgoing.send(tellers[step[1]].change(step[2]))
            sent += 1
        elif step[0] == "answer":
            answers.append({teller.name: teller.sequence - 1 for teller in tellers})
            outgoing.send(json.dumps({"answer": len(answers) - 1}))
        elif step[0] == "pause":
            reader.reading = False
        elif step[0] == "read":
            await reader.read(step[1])
        elif step[0] == "pass":
            clock.time += step[1]
        else:
            reader.reading = True
            await reader.read(100)
    await reader.read(100)
    followers = {teller.name: Follower() for teller in tellers}
    answered = 0
    for message in reader.received:
        if "answer" in message:
            assert message["answer"] == answered
            for name, sequence in answers[answered].items():
                assert followers[name].sequence >= sequence, "what happened before the answer comes before it"
            answered += 1
        else:
            followers[message["notification"]["spuid"]].take(message["notification"])
    assert answered == len(answers)
    for teller in tellers:
        assert followers[teller.name].result == teller.result
        assert followers[teller.name].sequence == teller.sequence - 1
    reported = sum("notification" in message for message in reader.received) - len(tellers)
    assert reported == sent - len(merged)


async def test_a_long_notification_is_written_in_pieces_in_order(monkeypatch):
    monkeypatch.setattr(requests, "PIECE", 10)
    reader, teller, follower = Reader(), Teller("long"), Follower()
    outgoing = Outgoing(reader, 10, 0, lambda: None, lambda: None, merge_after=0)
    numbers = [range(200), range(100, 400), range(5), range(7)]
    for number in numbers:
        outgoing.send(teller.change(Counter(number)))
    outgoing.send('{"answer": 1}')
    assert not reader.received
    turns = 0
    while outgoing._writer is not None:
        reader._allowed.release()
        await asyncio.sleep(0)
        turns += 1
        assert turns < 1000
        reported = [each["notification"] for each in reader.received if "notification" in each]
        unread = outgoing.unread().get("long", [])
        assert sum(each.get("merged", 1) for each in reported) + sum(each.merged for each in unread) >= len(numbers) - 1
    assert turns >= 20 + 20
    for message in reader.received[:-1]:
        follower.take(message["notification"])
    assert follower.result == teller.result
    assert reader.received[-1] == {"answer": 1}


async def test_answers_wait_up_to_the_limit_and_notifications_do_not_count():
    reader = Reader()
    overflowed: list[None] = []
    outgoing = Outgoing(reader, 3, 0, lambda: overflowed.append(None), lambda: None, merge_after=1)
    reader.reading = False
    tellers = [Teller(str(number)) for number in range(10)]
    for teller in tellers:
        teller.change(Counter([1]))
        for number in range(10):
            outgoing.send(teller.change(Counter([number])))
    for number in range(3):
        outgoing.send(json.dumps({"answer": number}))
    assert not overflowed
    outgoing.send(json.dumps({"answer": 3}))
    assert (len(overflowed), reader.closed) == (1, 1013)


async def test_waiting_answers_are_counted_and_their_decrease_is_reported():
    reader = Reader()
    seen: list[tuple[int, int]] = []
    outgoing = Outgoing(
        reader, 100, 0, lambda: None, lambda: None, lambda: seen.append(outgoing.waiting), merge_after=1
    )
    reader.reading = False
    teller = Teller("busy")
    outgoing.send(teller.change(Counter(range(100))))
    for length in (1000, 100_000):
        outgoing.send(json.dumps({"answer": "x" * length}))
    outgoing.send(teller.change(Counter([1])))  # a slow client always has waiting messages
    answers, size = outgoing.waiting
    assert answers == 3
    await reader.read(4)
    (_, after_one), (_, after_two), *rest = seen
    assert size - after_one > 1000
    assert after_one - after_two > 1000
    assert after_two > 100_000
    assert (rest[0], rest[-1], outgoing.waiting) == ((0, 0), (0, 0), (0, 0))
    outgoing.close()


async def test_long_waiting_notifications_are_merged_and_recent_ones_are_not():
    reader, clock = Reader(), Clock()
    outgoing = Outgoing(reader, 100, 1_000_000, lambda: None, lambda: None, merge_after=1, now=clock)
    reader.reading = False
    one, other = Teller("one"), Teller("other")
    for teller in (one, other):
        outgoing.send(teller.change(Counter()))
    for number in range(1, 4):
        outgoing.send(one.change(Counter([number])))
        outgoing.send(other.change(Counter([number])))
        clock.time += 0.4
    outgoing.send(json.dumps({"answer": 0}))
    await reader.read(100)
    reported = [message["notification"] for message in reader.received if "notification" in message]
    assert [(each["spuid"], each["sequence"]) for each in reported[2:]] == [
        ("one", 3),
        ("other", 3),
    ], "those of both waited for 1.2 s"
    assert "answer" in reader.received[-1]
    for number in range(4, 7):
        outgoing.send(one.change(Counter([number])))
        clock.time += 0.3
    await reader.read(100)
    assert [message["notification"]["sequence"] for message in reader.received[-3:]] == [4, 5, 6]
    outgoing.close()


async def test_a_client_that_does_not_read_delays_no_other_and_gets_one_merged_delta(serve):
    # On a loaded machine the client pauses for longer than the gateway's usual limit.
    settings = WsGateSettings(port=0, max_pending_answers=5, max_unmerged=0, ping_interval=0, ping_timeout=600)
    async with serve(ws=settings) as gateway:
        slow, quick = await gateway.client(max_queue=1, ping_interval=None), await gateway.client()
        follower = Follower()
        first = await slow.subscribe("SELECT ?n { <urn:a> <urn:b> ?n }")
        follower.sequence = first["sequence"]
        await quick.subscribe("SELECT ?n { <urn:a> <urn:b> ?n }")
        slow.socket.transport.pause_reading()
        count = 80
        for number in range(1, count + 1):
            value = f"{number}{'x' * 200_000}"
            await gateway.update(f"DELETE WHERE {{ <urn:a> <urn:b> ?o }} ; INSERT DATA {{ <urn:a> <urn:b> '{value}' }}")
            assert (await quick.notification())["sequence"] == number
        slow.socket.transport.resume_reading()
        values: Counter[str] = Counter()
        most = 1
        while follower.sequence < count:
            body = await slow.notification()
            merged = body.get("merged", 1)
            assert body["sequence"] == follower.sequence + merged
            follower.sequence = body["sequence"]
            values.subtract(value for (value,) in rows(body["removedResults"]))
            values.update(value for (value,) in rows(body["addedResults"]))
            most = max(most, merged)
        assert list((+values).elements()) == [f"{count}{'x' * 200_000}"]
        assert most > 1
        assert gateway.metric("edge_merged_notifications_total", gate="ws") >= most - 1
        assert gateway.metric("edge_slow_clients_total", gate="ws") == 0
        await eventually(lambda: gateway.metric("edge_subscriptions", gate="ws") == 2, "both go on")


class Asked:
    """An engine whose queries are answered on request."""

    def __init__(self) -> None:
        self.running: list[Future[str]] = []
        self.updates: list[Future[list[UpdateOutcome]]] = []
        self.begun = 0

    def read(self, request: QueryRequest, read: Any) -> Future[str]:
        self.begun += 1
        self.running.append(Future())
        return self.running[-1]

    def update(self, requests: list[UpdateRequest]) -> Future[list[UpdateOutcome]]:
        self.updates.append(Future())
        return self.updates[-1]

    async def answer(self, length: int) -> None:
        """Answer the oldest query with this number of characters."""
        self.running.pop(0).set_result(json.dumps({"x": "x" * (length - 10)}))
        for _ in range(4):
            await asyncio.sleep(0)


def _session(engine: Any, reader: Reader) -> Session:
    limits = SessionLimits.of(WsGateSettings(max_result=10_000, max_waiting=40_000, max_pending_requests=30))
    shared = Sessions(
        engine, LoopDispatcher(asyncio.get_running_loop()), Metrics(), guard=OPEN_GUARD, gate="ws", limits=limits
    )
    return Session(shared, reader, "a client")


QUESTION = '{"query": {"sparql": "ASK {}"}}'


@given(st.lists(st.one_of(st.integers(10, 9_900), st.just("query"), st.just("read")), max_size=60))
def test_queries_begin_as_far_as_their_results_may_wait_and_all_are_answered(steps):
    asyncio.run(_ask(steps))


async def _ask(steps: list[Any]) -> None:
    engine, reader = Asked(), Reader()
    session = _session(engine, reader)
    reader.reading = False
    asked = 0
    for step in steps:
        if step == "query":
            session.receive(QUESTION)
            asked += 1
        elif step == "read":
            await reader.read(1)
        elif engine.running:
            await engine.answer(step)
        spoken_for = session.outgoing.waiting[1] + 10_000 * len(engine.running)
        assert spoken_for < 50_000
        assert engine.begun == asked or spoken_for >= 40_000, "it does not wait without need"
    for _ in range(asked):
        if engine.running:
            await engine.answer(100)
        await reader.read(1)
    assert len(reader.received) == asked
    session.close()


async def test_reading_from_a_client_with_too_many_waiting_answers_stops():
    engine, reader = Asked(), Reader()
    session = _session(engine, reader)
    reader.reading = False
    for _ in range(10):
        session.receive(QUESTION)
    session.receive('{"update": {"sparql": "CLEAR ALL"}}')
    assert (engine.begun, len(engine.updates)) == (4, 1)
    await asyncio.wait_for(session.room(), PATIENCE)
    for _ in range(5):
        await engine.answer(9_900)
    assert engine.begun == 5
    room = asyncio.create_task(session.room())
    await asyncio.sleep(0)
    assert not room.done()
    await reader.read(1)
    await asyncio.wait_for(room, PATIENCE)
    assert engine.begun == 6
    session.close()
    await engine.answer(9_900)
    assert engine.begun == 6, "nobody wants the others any more"


async def test_nothing_is_evaluated_for_a_disconnected_client():
    engine, reader = Asked(), Reader()
    session = _session(engine, reader)
    reader.reading = False
    for _ in range(10):
        session.receive(QUESTION)
    await engine.answer(100)
    reader.lost = True
    await reader.read(1)
    for _ in range(4):
        await engine.answer(9_900)
    assert engine.begun == 5
    await asyncio.wait_for(session.room(), PATIENCE)
    session.close()


async def test_changes_after_a_disconnection_are_stored_for_the_resumption():
    reader = Reader()
    outgoing = Outgoing(reader, 100, 0, lambda: None, lambda: None, merge_after=1, kept=1_000_000)
    teller = Teller("one")
    outgoing.remember("one")
    outgoing.send(teller.change(Counter()))
    reader.reading, reader.lost = False, True
    outgoing.send(teller.change(Counter([1])))
    await reader.read(1)
    reader.reading = True  # nothing is in flight any more
    for number in range(2, 5):
        outgoing.send(teller.change(Counter([number])))
    unread = outgoing.unread()["one"]
    assert [(each.sequence - each.merged, each.sequence) for each in unread] == [(-1, 0), (0, 1), (1, 4)]
    assert len(reader.received) == 1
    outgoing.close()


async def test_a_sent_result_is_released():
    engine, reader = Asked(), Reader()
    session = _session(engine, reader)
    session.receive(QUESTION)
    result = Result('{"x": 1}')
    last = weakref.ref(result)
    gc.disable()
    try:
        engine.running.pop().set_result(result)
        del result
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(reader.received) == 1
        assert last() is None, "without the collector of what refers to itself"
    finally:
        gc.enable()
    session.close()


class Result(str):
    """A text whose lifetime can be observed."""

    __slots__ = ("__weakref__",)


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the kernel's queue cannot be limited here")
async def test_a_stalled_client_gets_the_current_state_with_few_notifications(serve):
    async with serve(ws=WsGateSettings(port=0, max_unmerged=0)) as gateway:
        slow = await gateway.client(max_queue=1)
        await slow.subscribe("SELECT ?n { <urn:a> <urn:b> ?n }")
        slow.socket.transport.pause_reading()
        count = 1000
        updates = [
            UpdateRequest(
                f"DELETE WHERE {{ <urn:a> <urn:b> ?o }} ; INSERT DATA {{ <urn:a> <urn:b> '{number}{'x' * 1000}' }}"
            )
            for number in range(count)
        ]
        await asyncio.wrap_future(gateway.engine.update(updates))
        reported = count + 1
        await eventually(
            lambda: gateway.metric("edge_notifications_total", gate="ws") == reported, "all are handed over"
        )
        assert gateway.metric("edge_merged_notifications_total", gate="ws") > count / 2
        slow.socket.transport.resume_reading()
        last = await slow.notification()
        while last["sequence"] < count:
            last = await slow.notification()
        assert rows(last["addedResults"]) == [(f"{count - 1}{'x' * 1000}",)]


def _row(number: int) -> tuple[ox.Literal]:
    return (ox.Literal(number),)


def _numbers(results: dict[str, Any]) -> list[int]:
    return [int(value) for (value,) in rows(results)]
