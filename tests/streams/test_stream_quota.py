"""A client may have as many streams, queries and observers as it leaves for others."""

from __future__ import annotations

import pytest

from edge.engine.settings import EngineSettings
from edge.engine.start import make_engine
from edge.protocol.access import ACTIONS, ANYBODY, Access
from edge.protocol.errors import TooManyRequests
from edge.streams.delivery import Delivery
from edge.streams.processor import Processor
from edge.streams.settings import StreamSettings
from edge.streams.store import StreamStore
from edge.streams.waiting import WaitingReports

ALICE, BOB, CAROL = (Access(name, ACTIONS, registration=name) for name in ("alice", "bob", "carol"))


class NoLiveData:
    def follow(self, *_):
        return (), lambda: None


class Clock:
    boot = "boot"

    def wall(self):
        return 1_000_000

    steady = wall

    def trusted(self):
        return True


@pytest.fixture
def store():
    store = StreamStore(None)
    yield store
    store.close()


def processor_on(store, **settings):
    processor = Processor(
        StreamSettings(**settings),
        store,
        lambda: make_engine(EngineSettings()),
        NoLiveData(),
        lambda access: access,
    )
    processor.restore(1_000_000)
    return processor


def register(processor, access, name):
    text = f"REGISTER QUERY {name} AS SELECT ?s FROM STREAM <urn:edge:stream:s> [RANGE 1s STEP 1s] {{ ?s ?p ?o }}"
    processor.register(name, text, access, 1_000_000)


def count(action, most=10):
    """Return how often an action succeeds until a limit refuses it."""
    for number in range(most):
        try:
            action(number)
        except TooManyRequests:
            return number
    raise AssertionError("no limit")


def test_a_client_may_have_half_of_all_streams_and_the_next_a_third(store):
    processor = processor_on(store, max_streams=8)
    assert count(lambda number: processor.put_stream(f"a{number}", None, ALICE)) == 4
    processor.close()
    processor = processor_on(store, max_streams=8)
    assert count(lambda number: processor.put_stream(f"x{number}", None, ALICE)) == 0
    assert count(lambda number: processor.put_stream(f"b{number}", None, BOB)) == 2
    processor.drop_stream("a0", ALICE)
    assert count(lambda number: processor.put_stream(f"c{number}", None, CAROL)) == 2
    processor.close()


def test_a_client_leaves_queries_for_others(store):
    processor = processor_on(store, max_queries=4)
    processor.put_stream("s", None, ANYBODY)
    assert count(lambda number: register(processor, ALICE, f"a{number}")) == 2
    assert count(lambda number: register(processor, BOB, f"b{number}")) == 1
    processor.unregister("a0", ALICE)
    assert count(lambda number: register(processor, CAROL, f"c{number}")) == 1
    processor.close()


def test_without_names_of_clients_the_limit_is_for_all(store):
    processor = processor_on(store, max_queries=4)
    processor.put_stream("s", None, ANYBODY)
    assert count(lambda number: register(processor, ANYBODY, f"a{number}")) == 4
    processor.close()


def test_a_client_leaves_observers_for_others(store):
    processor = processor_on(store)
    processor.put_stream("s", None, ANYBODY)
    for access in (ALICE, BOB):
        register(processor, access, access.client)
    waiting = WaitingReports(store, 1_000_000)
    delivery = Delivery(processor, waiting, 4, Clock(), lambda _: None, lambda _: None)
    assert count(lambda number: delivery.observe("alice", f"http://a/{number}", ALICE)) == 2
    assert count(lambda number: delivery.observe("bob", f"http://b/{number}", BOB)) == 1
    processor.close()


def test_an_engine_for_the_permissions_of_a_client_ends_with_its_last_query(store):
    engines = []

    def make():
        engines.append(make_engine(EngineSettings()))
        return engines[-1]

    processor = Processor(StreamSettings(), store, make, NoLiveData(), lambda access: access)
    processor.restore(1_000_000)
    processor.put_stream("s", None, ANYBODY)
    limited = Access("dan", ACTIONS, registration="dan", read=frozenset({"urn:edge:stream:s", ""}))
    for _ in range(3):
        register(processor, limited, "first")
        register(processor, limited, "second")
        register(processor, ALICE, "third")
        assert len(processor._engine._engines) == 2
        for name, owner in (("first", limited), ("second", limited), ("third", ALICE)):
            processor.unregister(name, owner)
        assert not processor._engine._engines
    assert len(engines) == 6
    processor.close()
