"""Whose turn it is: order, fair shares, priorities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_house import WAIT, House, insert

from edge.engine.lanes import PATIENCE, Lanes
from edge.engine.places import HOUSE, Places
from edge.engine.requests import QueryRequest, UpdateRequest
from edge.engine.turns import Turns
from edge.protocol.access import Access, Priority
from edge.protocol.errors import TooManyRequests

CLIENTS = ("a", "b", "c")
SOURCES = st.sampled_from((HOUSE, *CLIENTS))
PRIORITY = st.sampled_from(("high", "normal", "low"))


@dataclass(frozen=True)
class Item:
    source: str
    priority: Priority
    number: int
    size: int = field(default=1)
    alone: bool = field(default=False)


def fits(item: Item, taken: Sequence[Item]) -> bool:
    return not item.alone and not taken[0].alone and sum(one.size for one in taken) + item.size <= 8


items = st.builds(Item, SOURCES, PRIORITY, st.just(0), st.integers(1, 5), st.booleans())
steps = st.lists(st.one_of(items, st.just(None)), max_size=120)


def play(given_steps: list[Item | None]) -> tuple[list[Item], list[list[Item]]]:
    """Put items in and take batches out, in any order. Returns both."""
    lanes: Lanes[Item] = Lanes()
    put: list[Item] = []
    batches: list[list[Item]] = []
    for step in given_steps:
        if step is not None:
            put.append(Item(step.source, step.priority, len(put), step.size, step.alone))
            lanes.put(put[-1])
        elif lanes:
            batches.append(lanes.take(fits))
    while lanes:
        batches.append(lanes.take(fits))
    return put, batches


@given(steps)
def test_nothing_is_lost_and_what_one_client_asked_for_stays_in_order(given_steps):
    """Also if its priority changes while something of it waits."""
    put, batches = play(given_steps)
    taken = [item for batch in batches for item in batch]
    assert sorted(item.number for item in taken) == [item.number for item in put]
    by_client: dict[str, list[int]] = defaultdict(list)
    for item in taken:
        if item.source:
            by_client[item.source].append(item.number)
    for numbers in by_client.values():
        assert numbers == sorted(numbers)


@given(steps)
def test_without_priorities_it_is_first_come_first_served(given_steps):
    plain = [step and Item(step.source, "normal", 0, step.size, step.alone) for step in given_steps]
    put, batches = play(plain)
    assert [item for batch in batches for item in batch] == put


@given(steps)
def test_a_batch_is_what_may_share_a_commit(given_steps):
    for batch in play(given_steps)[1]:
        assert len(batch) == 1 or not any(item.alone for item in batch)
        assert len(batch) == 1 or sum(item.size for item in batch) <= 8


@given(st.lists(st.sampled_from(("high", "normal")), min_size=60, max_size=60), st.integers(0, 20))
def test_nothing_starves(flood, before):
    """However much comes that goes first: what waits is next when it has been passed over so many times."""
    lanes: Lanes[Item] = Lanes()
    for number in range(before):
        lanes.put(Item(HOUSE, "high", number))
    lanes.put(Item("slow", "low", -1))
    lanes.put(Item("usual", "normal", -2))
    taken_at: dict[str, int] = {}
    for turn, priority in enumerate(flood):
        lanes.put(Item(HOUSE, "high", turn))
        lanes.put(Item(HOUSE, priority, turn))
        (item,) = lanes.take(lambda item, taken: False)
        taken_at.setdefault(item.source, turn)
    assert taken_at["slow"] <= PATIENCE["low"]
    assert taken_at["usual"] <= PATIENCE["normal"] + 1


@given(st.integers(1, 30), st.lists(st.tuples(SOURCES, st.integers(-5, 5)), max_size=80))
def test_clients_share_the_places(limit, changes):
    """No client keeps others out, and none keeps the gateway out."""
    places = Places(limit)
    held: dict[str, list[int]] = defaultdict(list)
    for who, count in changes:
        mine = held[who]
        if count > 0:
            of_all = sum(sum(counts) for source, counts in held.items() if (source == HOUSE) == (who == HOUSE))
            took = places.take(who, count)
            if not of_all:
                assert took  # however much it is: it could never be done otherwise
            if took and of_all:
                assert of_all + count <= limit
                assert who == HOUSE or not mine or sum(mine) <= limit - of_all
            if took:
                mine.append(count)
        elif mine:
            places.give_back(who, mine.pop())
    assert places.taken == sum(map(sum, held.values()))
    assert {who: sum(counts) for who, counts in held.items() if counts} == places.held


def test_a_client_that_floods_has_half_of_the_places_and_two_a_third_each():
    places = Places(90)
    while places.take("one", 1):
        pass
    assert places.held == {"one": 45}
    places.give_back("one", 45)
    while any([places.take("one", 1), places.take("two", 1)]):
        pass
    assert places.held == {"one": 30, "two": 30}
    assert places.take("three", 1)
    assert places.take(HOUSE, 90)


@given(st.lists(st.one_of(st.sampled_from(CLIENTS), st.none()), max_size=60))
def test_clients_take_turns(moves):
    """What a client asked first is next after one of each other that waits, at the most; its own stay in order."""
    turns: Turns[int] = Turns(100)
    number = 0
    waiting: dict[str, list[int]] = defaultdict(list)
    passed: dict[str, int] = defaultdict(int)
    for move in moves:
        if move is not None:
            if turns.put(move, number):
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
        turns.done(who)
    assert turns.pending == sum(map(len, waiting.values()))


# In the engine


def ask(house: House, source: str, *texts: str, priority: Priority = "normal"):
    access = Access(source, priority=priority)
    return house.scheduler.update([UpdateRequest(text, access=access, source=source) for text in texts])


def test_a_client_that_floods_is_refused_and_nobody_else(open_house):
    house = open_house(max_pending_updates=10)
    house.busy()
    flood = [ask(house, "flood", insert(n)) for n in range(20)]
    other = ask(house, "other", insert(100))
    own = house.queue(*(insert(200 + n) for n in range(8)))
    refused = [future for future in flood if future.done()]
    assert len(refused) == 15
    with pytest.raises(TooManyRequests, match=r"5 of them of this client.*max_pending_updates"):
        refused[0].result(WAIT)
    assert not other.done()
    assert not own.done()
    house.door.set()
    assert other.result(WAIT)[0].added == 1
    assert own.result(WAIT)[0].added == 1
    assert all(future.result(WAIT) for future in flood if future not in refused)
    assert len(house.values()) == 5 + 1 + 8


def test_who_has_priority_goes_first_and_order_of_one_client_stays(open_house):
    house = open_house(max_batch=1)
    order: list[str] = []
    house.busy()
    futures = []
    for source, priority in (("slow", "low"), ("usual", "normal"), ("slow", "low"), ("urgent", "high")):
        future = ask(house, source, insert(len(futures)), priority=priority)
        future.add_done_callback(lambda _, source=source: order.append(source))
        futures.append(future)
    query = QueryRequest("SELECT ?o { ?s <a:p> ?o }", access=Access("urgent", priority="high"), source="urgent")
    house.scheduler.subscribe(query, lambda _: None).add_done_callback(lambda _: order.append("subscribed"))
    house.door.set()
    for future in futures:
        future.result(WAIT)
    assert order == ["urgent", "subscribed", "usual", "slow", "slow"]
