"""Order of the turns of observers: all without sockets and clocks."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from edge.streams.callback_order import CallbackOrder


def drain(turns: CallbackOrder) -> list[str]:
    """Take turns until no slot is free."""
    taken = []
    while (observer := turns.take()) is not None:
        taken.append(observer)
    return taken


def finish(turns: CallbackOrder, observer: str, *, answered: bool) -> None:
    turns.answered(observer, answered)
    turns.finished(observer)


def add(turns: CallbackOrder, observer: str, host: str) -> None:
    turns.add(observer, host)
    turns.ready(observer)


def test_silent_hosts_leave_slots_for_the_others() -> None:
    turns = CallbackOrder(slots=16)
    add(turns, "good", "good")
    assert drain(turns) == ["good"]
    finish(turns, "good", answered=True)
    for number in range(1000):
        add(turns, f"dead{number}", f"host{number}")
    assert len(drain(turns)) == 8
    turns.ready("good")
    assert drain(turns) == ["good"]


def test_a_new_observer_goes_before_those_that_are_silent() -> None:
    turns = CallbackOrder(slots=2)
    waiting = deque(f"dead{number}" for number in range(1000))
    for observer in waiting:
        add(turns, observer, observer)
    for _ in waiting:
        (observer,) = drain(turns)
        finish(turns, observer, answered=False)
        turns.ready(observer)
    (running,) = drain(turns)
    add(turns, "new", "new")
    assert drain(turns) == []
    finish(turns, running, answered=False)
    assert drain(turns) == ["new"]


def test_one_host_has_few_requests_and_hosts_take_turns() -> None:
    turns = CallbackOrder(slots=16, per_host=2)
    for number in range(100):
        add(turns, f"a{number}", "a")
    add(turns, "b0", "b")
    assert drain(turns) == ["a0", "b0", "a1"]
    finish(turns, "a0", answered=True)
    turns.ready("a0")
    assert turns.take() == "a0"  # it was answered: such observers go first
    assert drain(turns) == []


def test_a_dead_host_is_found_out_by_a_few_of_its_observers() -> None:
    turns = CallbackOrder(slots=16, per_host=2)
    observers = [f"o{number}" for number in range(6)]
    for observer in observers:
        turns.add(observer, "host")
        turns.ready(observer)
        assert turns.take() == observer
        finish(turns, observer, answered=True)
    for observer in observers:
        turns.ready(observer)
    for observer in drain(turns):
        finish(turns, observer, answered=False)
    add(turns, "first", "other")  # new ones go before silent ones
    assert turns.take() == "first"
    rest = drain(turns)
    assert rest == ["o2", "o3"]
    finish(turns, "o2", answered=True)  # the host is back
    turns.ready("o2")
    assert turns.take() in {"o2", "o4"}


def test_one_url_that_hangs_does_not_mark_its_host_as_dead() -> None:
    turns = CallbackOrder(slots=4, per_host=2)
    for observer in ("good", "bad"):
        add(turns, observer, "host")
    for observer in drain(turns):
        finish(turns, observer, answered=observer == "good")
    for _ in range(10):
        turns.ready("bad")
        assert turns.take() == "bad"
        finish(turns, "bad", answered=False)
    for number in range(10):
        add(turns, f"dead{number}", f"dead{number}")
    assert len(drain(turns)) == 2
    turns.ready("good")
    assert turns.take() == "good"


def test_silence_of_another_host_says_nothing_about_the_first_one() -> None:
    turns = CallbackOrder(slots=16, per_host=2)
    observers = ["good", *(f"o{number}" for number in range(4))]
    for observer in observers:
        add(turns, observer, "target")
        assert turns.take() == observer
        finish(turns, observer, answered=True)
    for observer in observers[1:]:
        turns.move(observer, "inbox", is_first=False)
        turns.ready(observer)
        assert turns.take() == observer
        finish(turns, observer, answered=False)
        turns.move(observer, "target", is_first=True)
        turns.ready(observer)
    add(turns, "new", "new")
    turns.ready("good")
    assert turns.take() == "good"


def test_the_answer_of_a_target_does_not_make_an_observer_with_a_silent_inbox_a_new_one() -> None:
    turns = CallbackOrder(slots=2)
    for observer in ("silent", "new"):
        turns.add(observer, "inbox")
    turns.ready("silent")
    assert turns.take() == "silent"
    finish(turns, "silent", answered=False)
    turns.move("silent", "target", is_first=True)
    turns.ready("silent")
    assert turns.take() == "silent"
    turns.found("silent")
    turns.finished("silent")
    turns.move("silent", "inbox", is_first=False)
    turns.ready("silent")
    turns.ready("new")
    assert turns.take() == "new"


def test_the_limit_of_a_host_applies_to_observers_that_were_moved_to_it() -> None:
    turns = CallbackOrder(slots=16, per_host=2)
    for number in range(4):
        turns.add(f"o{number}", f"host{number}")
        turns.move(f"o{number}", "inbox", is_first=True)
        turns.ready(f"o{number}")
    assert drain(turns) == ["o0", "o1"]
    turns.remove("o0")
    assert drain(turns) == ["o2"]


@given(st.lists(st.tuples(st.sampled_from("arfndm"), st.integers(0, 11)), max_size=120))
def test_turns_against_a_model(steps: list[tuple[str, int]]) -> None:
    """Each waiting observer gets a turn while slots are free, and limits hold."""
    turns = CallbackOrder(slots=4, per_host=2)
    state: dict[str, str] = {}
    hosts: dict[str, int] = {}
    for step, number in steps:
        name, host = f"o{number}", number % 4
        known = state.get(name)
        if step == "a" and known is None:
            turns.add(name, str(host))
            state[name] = "idle"
            hosts[name] = host
        elif step == "m" and known == "idle":
            hosts[name] = (hosts[name] + 1) % 4
            turns.move(name, str(hosts[name]), is_first=number > 5)
        elif step == "r" and known == "idle":
            turns.ready(name)
            state[name] = "ready"
        elif step in "fn" and known == "active":
            finish(turns, name, answered=step == "f")
            state[name] = "idle"
        elif step == "d" and known is not None:
            turns.remove(name)
            del state[name]
        for taken in drain(turns):
            assert state[taken] == "ready"
            state[taken] = "active"
        active = Counter(hosts[name] for name, what in state.items() if what == "active")
        assert turns.active == active.total() <= 4
        assert max(active.values(), default=0) <= 2
        if not active:
            assert "ready" not in state.values()
