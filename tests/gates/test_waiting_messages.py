"""The queue of one client's messages, without a connection: order, exact sizes, and what is never merged."""

from __future__ import annotations

from itertools import count

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.engine import requests
from edge.engine.requests import Delta, SubscriberNotification
from edge.gates.waiting_messages import WaitingMessages, answer_size, is_answer

SPUIDS = ("a", "b")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("notify"), st.sampled_from(SPUIDS), st.integers(0, 3)),
        st.tuples(st.just("answer")),
        st.tuples(st.just("write")),
        st.tuples(st.just("take")),
        st.tuples(st.just("pass")),
        st.tuples(st.just("withdraw"), st.sampled_from(SPUIDS)),
    ),
    max_size=40,
)


def notification(spuid: str, sequence: int, rows: int) -> SubscriberNotification:
    added = tuple((ox.Literal(f"{sequence} {row}"),) for row in range(rows))
    return SubscriberNotification(spuid, None, sequence, Delta(("n",), added, ()))


@given(STEPS, st.sampled_from([0, 300, 1_000_000]))
def test_sizes_are_exact_and_messages_stay_in_order(steps, unmerged):
    time = [0.0]
    queue = WaitingMessages(unmerged, 1.0, lambda: None, lambda: time[0])
    put, taken = dict.fromkeys(SPUIDS, 0), dict.fromkeys(SPUIDS, 0)
    answers: list[str] = []
    numbers = count()

    def take() -> None:
        message = queue.take()
        if is_answer(message):
            assert message == answers.pop(0)
        else:
            assert message.sequence == taken[message.spuid] + message.merged
            taken[message.spuid] = message.sequence

    for step in steps:
        if step[0] == "notify":
            put[step[1]] += 1
            queue.put(notification(step[1], put[step[1]], step[2]))
        elif step[0] == "answer":
            answers.append(f"answer {next(numbers)}")
            queue.put(answers[-1])
        elif step[0] == "write" and queue:
            assert not queue.write_piece(), "a short one is complete at once"
        elif step[0] == "take" and queue:
            take()
        elif step[0] == "pass":
            time[0] += 0.6
        elif step[0] == "withdraw":
            queue.withdraw(step[1])
            taken[step[1]] = put[step[1]]
        assert (queue.answers, queue.answers_size) == (len(answers), sum(map(answer_size, answers)))
        waiting = {one.spuid: one.sequence for one in queue.notifications()}
        assert waiting == {spuid: put[spuid] for spuid in SPUIDS if put[spuid] > taken[spuid]}
    while queue:
        take()
    assert taken == put
    assert queue.size == 0


def test_nothing_is_merged_into_a_message_that_is_being_written(monkeypatch):
    monkeypatch.setattr(requests, "PIECE", 10)
    merged: list[None] = []
    queue = WaitingMessages(0, 1000, lambda: merged.append(None))
    queue.put(notification("a", 1, 100))
    assert queue.write_piece()
    for sequence in (2, 3):
        queue.put(notification("a", sequence, 5))
    assert [one.sequence for one in queue.notifications()] == [1, 3]
    assert len(merged) == 1


@pytest.mark.parametrize("sequence", [0, 1])
def test_only_the_first_notification_is_an_answer(sequence):
    queue = WaitingMessages(0, 0, lambda: None)
    for _ in range(2):
        queue.put(notification("a", sequence, 1))
    assert queue.answers == (2 if sequence == 0 else 0)
    assert len(list(queue.notifications())) == (0 if sequence == 0 else 1)
