"""The request queue: order, fair shares and priorities."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_harness import WAIT, Harness, insert

from edge.engine.admission.fair_queue import LEAD, LEAST_COST, FairQueue
from edge.engine.admission.fair_share import GATEWAY
from edge.engine.admission.round_robin import RoundRobin
from edge.engine.admission.slots import Slots
from edge.engine.admission.token_bucket import TokenBuckets
from edge.engine.clock import SystemClock
from edge.engine.journal.journal import Journal
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.scheduling.request_queue import RequestQueue
from edge.engine.scheduling.work import Work
from edge.protocol.access import Access, Priority
from edge.protocol.errors import TooManyRequests

CLIENTS = ("a", "b", "c")
SOURCES = st.sampled_from((GATEWAY, *CLIENTS))
PRIORITY = st.sampled_from(("high", "normal", "low"))


@dataclass(eq=False)
class Item:
    source: str
    priority: Priority = "normal"
    number: int = 0
    cost: int = 1_000
    ready: bool = True


items = st.builds(Item, SOURCES, PRIORITY, st.just(0), st.integers(0, 100_000), st.booleans())
steps = st.lists(st.one_of(items, st.sampled_from(("take", "ready", "back"))), max_size=120)


class Play:
    """A queue whose items have fixed costs, and may be held back or not ready."""

    def __init__(self) -> None:
        self.queue: FairQueue[Item] = FairQueue()
        self.put: list[Item] = []
        self.taken: list[Item] = []
        self.held: list[Item] = []

    def enter(self, item: Item) -> None:
        item.number = len(self.put)
        self.put.append(item)
        self.queue.put(item)

    def take(self) -> Item | None:
        item = self.queue.take()
        if item is not None:
            self.queue.charge(item.source, max(LEAST_COST, item.cost))
            self.taken.append(item)
        return item

    def hold(self) -> None:
        """Hold back the next item."""
        item = self.queue.take()
        if item is not None:
            self.queue.hold(item)
            self.held.append(item)

    def back(self) -> None:
        while self.held:
            self.queue.put_back(self.held.pop())

    def ready(self) -> None:
        for item in self.put:
            if not item.ready:
                item.ready = True
                self.queue.look_again(item.source)

    def drain(self) -> list[str]:
        """Return the sources of the items taken from now on."""
        before = len(self.taken)
        while self.take():
            pass
        return [item.source for item in self.taken[before:]]


def played(moves: list[Item | str]) -> Play:
    play = Play()
    for move in moves:
        if isinstance(move, Item):
            play.enter(Item(move.source, move.priority, 0, move.cost, move.ready))
        elif move == "take":
            play.take()
        elif move == "ready":
            play.ready()
        elif play.held:
            play.back()
        else:
            play.hold()
    return play


@given(steps)
def test_requests_of_one_client_stay_in_order_and_none_is_lost(moves):
    """This holds even if a client's priority changes, or one of its items is evaluated elsewhere or not ready."""
    play = played(moves)
    play.back()
    play.ready()
    play.drain()
    assert play.queue.empty
    assert not play.queue
    assert sorted(item.number for item in play.taken) == [item.number for item in play.put]
    by_client: dict[str, list[int]] = defaultdict(list)
    for item in play.taken:
        by_client[item.source].append(item.number)
    for numbers in by_client.values():
        assert numbers == sorted(numbers)


def test_clients_get_equal_time_not_equal_turns():
    play = Play()
    for _ in range(1_000):
        play.enter(Item("expensive", cost=100_000))
        play.enter(Item("cheap", cost=1_000))
    spent: dict[str, int] = defaultdict(int)
    for _ in range(500):
        item = play.take()
        spent[item.source] += item.cost
    assert abs(spent["expensive"] - spent["cheap"]) <= 100_000


@given(st.lists(st.integers(0, 100_000), min_size=1, max_size=40), st.integers(1, 4))
def test_a_small_request_waits_no_longer_than_one_piece_of_each_other_takes(costs, others):
    """This holds for any number of requests that other clients have queued."""
    play = Play()
    for number, cost in enumerate(costs * others):
        play.enter(Item(f"flood {number % others}", cost=cost))
    play.take()
    play.enter(Item("victim", cost=LEAST_COST))
    waited = 0
    while (item := play.take()).source != "victim":
        waited += max(LEAST_COST, item.cost)
    assert waited <= others * max(LEAST_COST, *costs)


def test_a_client_with_few_requests_is_always_next():
    """It waits for the running piece only. A new client may wait for one piece of each other client."""
    play = Play()
    play.enter(Item("victim", cost=1_000))
    play.take()
    for number in range(400):
        play.enter(Item(f"flood {number % 10}", cost=4_000 + number % 7 * 500))
    for pause in (50, 7, 23, 60, 31):
        for _ in range(pause):
            assert play.take().source != "victim"
        play.enter(Item("victim", cost=1_000))
        assert play.take().source == "victim"


def test_a_client_with_many_requests_after_a_pause_gets_only_its_quota():
    play = Play()
    play.enter(Item("pauses"))
    for number in range(3_000):
        play.enter(Item(f"flood {number % 2}"))
    for _ in range(1_000):
        play.take()
    for _ in range(1_000):
        play.enter(Item("pauses"))
    before = len(play.taken)
    for _ in range(300):
        play.take()
    assert sum(item.source == "pauses" for item in play.taken[before:]) <= 100 + LEAD // 1_000


def test_clients_that_come_and_go_do_not_overtake_one_that_stays():
    """A client that opens a connection for each request gets no more than its share."""
    play = Play()
    for _ in range(10):
        play.enter(Item("stays"))
    fresh = (f"fresh {number}" for number in itertools.count())
    for _ in range(2):
        play.enter(Item(next(fresh)))
    for _ in range(60):
        if play.take().source != "stays":
            play.enter(Item(next(fresh)))
    assert sum(item.source == "stays" for item in play.taken) == 10


def test_idle_clients_are_evicted():
    play = Play()
    play.enter(Item("stays"))
    for number in range(10_000):
        play.enter(Item(f"fresh {number}"))
        play.enter(Item("stays"))
        play.take()
        play.take()
        assert len(play.queue._clients) <= 2_000


def test_the_gateway_and_high_priority_overtake():
    play = Play()
    for number in range(3):
        play.enter(Item("low", "low"))
        play.enter(Item("usual"))
        play.enter(Item("urgent", "high", cost=10))
        play.enter(Item(GATEWAY, cost=number))
    order = play.drain()
    assert sorted(order[:6]) == [GATEWAY] * 3 + ["urgent"] * 3
    assert order[6:] == ["usual"] * 3 + ["low"] * 3


@pytest.mark.parametrize("cost", [LEAST_COST, 1_000, 300_000])
def test_low_priority_is_not_starved(cost):
    """A lower priority has its share of the time, however many items have a higher one."""
    play = Play()
    for number in range(20_000):
        play.enter(Item(GATEWAY, cost=cost))
        if number < 500:
            play.enter(Item("usual", cost=20_000))
            play.enter(Item("slow", "low", cost=20_000))
    spent: dict[str, int] = defaultdict(int)
    for _ in range(10_000):
        item = play.take()
        spent[item.source] += item.cost
    total = sum(spent.values())
    assert total < 1_000_000 or spent["usual"] / total > 0.15 or spent["usual"] == 500 * 20_000
    assert total < 1_000_000 or spent["slow"] / total > 0.04 or spent["slow"] == 500 * 20_000
    assert spent[GATEWAY] / total > 0.6


def test_a_client_over_its_budget_waits_behind_others():
    late: set[str] = set()
    queue: FairQueue[Item] = FairQueue(late.__contains__)
    for _ in range(3):
        queue.put(Item("much"))
        queue.put(Item("little"))
    late.add("much")
    queue.look_late("much")
    taken = []
    for _ in range(4):
        taken.append(queue.take().source)
        queue.charge(taken[-1], 100)
    assert taken == ["little", "little", "little", "much"]
    late.clear()
    queue.look_late("much")
    queue.put(Item("little"))
    assert sorted([queue.take().source, queue.take().source, queue.take().source]) == ["little", "much", "much"]
    assert not queue


def test_the_bucket_of_a_client_is_filled_in_time():
    rate = TokenBuckets(1_000, burst=5_000)
    assert not rate.delay("a", 0)
    rate.spend("a", 5_000, 0)
    assert not rate.delay("a", 0)
    rate.spend("a", 1_000, 0)
    assert rate.delay("a", 0)
    assert not rate.delay("b", 0)
    assert not rate.delay("a", 1.0)
    rate.spend(GATEWAY, 1_000_000, 0)
    assert not rate.delay(GATEWAY, 0)
    for number in range(10_000):
        rate.spend(f"client {number}", 1, number / 100)
    assert len(rate._full_at) <= 2_000


def test_a_client_that_took_too_many_steps_waits_behind_others(open_harness):
    """Each INSERT DATA of 200 quads costs 200 steps: the sixth exceeds the client's burst of 1,000."""
    harness = open_harness(client_steps=1, max_steps=1_000, max_batch=1)
    quads = [" . ".join(f"<a:s{n}> <a:q> {m}" for m in range(200)) for n in range(7)]
    for text in quads[:6]:
        ask(harness, "much", f"INSERT DATA {{ {text} }}").result(WAIT)
    order: list[str] = []
    harness.busy()
    futures = []
    for source, text in (("much", quads[6]), ("other", quads[0]), ("other", quads[1])):
        future = ask(harness, source, f"INSERT DATA {{ {text} }}")
        future.add_done_callback(lambda _, source=source: order.append(source))
        futures.append(future)
    harness.door.set()
    for future in futures:
        future.result(WAIT)
    assert order == ["other", "other", "much"]


def test_an_item_that_does_not_fit_stays_next():
    queue: FairQueue[Item] = FairQueue()
    one, two = Item("a"), Item("b")
    queue.put(one)
    queue.put(two)
    assert queue.take(lambda item: item.source == "b") is None
    assert queue.take() is one


@given(st.integers(1, 30), st.lists(st.tuples(SOURCES, st.integers(-5, 5)), max_size=80))
def test_clients_share_the_slots(limit, changes):
    """A client cannot exclude the others, nor can clients exclude the gateway itself."""
    places = Slots(limit)
    held: dict[str, list[int]] = defaultdict(list)
    for who, count in changes:
        mine = held[who]
        if count > 0:
            of_all = sum(sum(counts) for source, counts in held.items() if (source == GATEWAY) == (who == GATEWAY))
            took = places.take(who, count)
            if not of_all:
                assert took  # any size fits if nothing else waits: it could never run otherwise
            if took and of_all:
                assert of_all + count <= limit
                assert who == GATEWAY or not mine or sum(mine) <= limit - of_all
            if took:
                mine.append(count)
        elif mine:
            places.give_back(who, mine.pop())
    assert places.taken == sum(map(sum, held.values()))
    assert all(places.held(who) == sum(counts) for who, counts in held.items())


def test_a_flooding_client_gets_half_of_the_slots_and_two_get_a_third_each():
    places = Slots(90)
    while places.take("one", 1):
        pass
    assert places.held("one") == places.taken == 45
    places.give_back("one", 45)
    while any([places.take("one", 1), places.take("two", 1)]):
        pass
    assert (places.held("one"), places.held("two"), places.taken) == (30, 30, 60)
    assert places.take("three", 1)
    assert places.take(GATEWAY, 90)


@given(st.lists(st.one_of(st.sampled_from(CLIENTS), st.none()), max_size=60))
def test_clients_take_turns(moves):
    """The first request of a client follows at most one request of each other waiting client; its own stay in order."""
    turns: RoundRobin[int] = RoundRobin()
    number = 0
    waiting: dict[str, list[int]] = defaultdict(list)
    passed: dict[str, int] = defaultdict(int)
    for move in moves:
        if move is not None:
            turns.put(move, number)
            waiting[move].append(number)
            number += 1
            continue
        taken = turns.take()
        if taken is None:
            assert not any(waiting.values())
            continue
        who, item = taken
        assert item == waiting[who].pop(0)
        passed[who] = 0
        for other, theirs in waiting.items():
            if other != who and theirs:
                passed[other] += 1
                assert passed[other] < len(CLIENTS)
    assert len(turns) == sum(map(len, waiting.values()))


# In the engine


def ask(harness: Harness, source: str, *texts: str, priority: Priority = "normal"):
    access = Access(source, priority=priority)
    return harness.scheduler.update([UpdateRequest(text, access=access, source=source) for text in texts])


def test_only_the_flooding_client_is_refused(open_harness):
    harness = open_harness(max_pending_updates=10)
    harness.busy()
    flood = [ask(harness, "flood", insert(n)) for n in range(20)]
    other = ask(harness, "other", insert(100))
    own = harness.queue(*(insert(200 + n) for n in range(8)))
    refused = [future for future in flood if future.done()]
    assert len(refused) == 15
    with pytest.raises(TooManyRequests, match=r"5 of them of this client.*max_pending_updates"):
        refused[0].result(WAIT)
    assert not other.done()
    assert not own.done()
    harness.door.set()
    assert other.result(WAIT)[0].added == 1
    assert own.result(WAIT)[0].added == 1
    assert all(future.result(WAIT) for future in flood if future not in refused)
    assert len(harness.values()) == 5 + 1 + 8


def test_priority_goes_first_and_the_order_of_one_client_stays(open_harness):
    # With a fake clock: a low priority that has waited for long gets its share before high ones.
    harness = open_harness(journal=Journal.open(None), max_batch=1)
    order: list[str] = []
    harness.busy()
    futures = []
    for source, priority in (("slow", "low"), ("usual", "normal"), ("slow", "low"), ("urgent", "high")):
        future = ask(harness, source, insert(len(futures)), priority=priority)
        future.add_done_callback(lambda _, source=source: order.append(source))
        futures.append(future)
    query = QueryRequest("SELECT ?o { ?s <a:p> ?o }", access=Access("urgent", priority="high"), source="urgent")
    harness.scheduler.subscribe(query, lambda _: None).add_done_callback(lambda _: order.append("subscribed"))
    harness.door.set()
    for future in futures:
        future.result(WAIT)
    assert order == ["urgent", "subscribed", "usual", "slow", "slow"]


class Compiling(Work):
    """Work whose text another thread compiles. It is done after `looks` looks, or when the callback is set."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    @property
    def ready(self) -> bool:
        self._looks -= 1
        return self._looks < 0

    def when_ready(self, action) -> None:
        self._looks = 0
        action()

    def execute(self, now: int) -> None: ...
    def done(self) -> None: ...
    def failed(self, error: Exception) -> None: ...


@pytest.mark.parametrize("looks", range(4))
def test_work_that_becomes_ready_while_it_joins_the_queue_is_carried_out(looks):
    """Its callback is called at once, by the thread that joins it."""
    queue = RequestQueue(10, SystemClock())
    work = Compiling(looks)
    joining = threading.Thread(target=queue.put, args=(work,), daemon=True)
    joining.start()
    joining.join(10)
    assert not joining.is_alive()
    assert queue.take(list) is work
