"""The backlog of a slow application: bounded, merged, and always consistent with the broker's result."""

from collections import Counter

import pyoxigraph as ox
from hypothesis import given
from hypothesis import strategies as st

from edge.client.backlog import Notification, NotificationBacklog
from edge.client.rows import Row

ROWS = [Row({"n": ox.Literal(n)}) for n in range(4)]
bags = st.lists(st.sampled_from(ROWS), max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("replace"), bags),
        st.tuples(st.just("change"), bags, bags),
        st.tuples(st.just("take")),
    ),
    max_size=30,
)


def apply(state, notification):
    state.subtract(notification.removed)
    assert not state or min(state.values()) >= 0, "more removed than there was"
    state.update(notification.added)


@given(steps=steps, limit=st.integers(1, 4))
def test_merged_notifications_give_the_result(steps, limit):
    backlog = NotificationBacklog(limit)
    backlog.replace([])
    truth, state, sequences = Counter(), Counter(), []

    def take():
        notification = backlog.take()
        if notification is not None:
            assert not Counter(notification.added) & Counter(notification.removed)
            apply(state, notification)
            sequences.append(notification.sequence)
        return notification

    for step in steps:
        if step[0] == "replace":
            truth = Counter(step[1])
            backlog.replace(step[1])
        elif step[0] == "change":
            truth = (truth - Counter(step[2])) + Counter(step[1])
            backlog.change(step[1], step[2])
        else:
            take()
        assert Counter(backlog.rows()) == truth
    taken = 0
    while take():
        taken += 1
    assert taken <= limit
    assert +state == truth
    assert sequences == list(range(len(sequences)))


def test_an_empty_first_result_is_delivered_and_an_empty_change_is_not():
    backlog = NotificationBacklog(10)
    backlog.replace([])
    assert backlog.take() == Notification((), (), 0)
    backlog.replace([])
    backlog.change([], [ROWS[0]])
    assert backlog.take() is None


def test_unread_rows_that_come_and_go_cancel_out():
    backlog = NotificationBacklog(1)
    backlog.replace([ROWS[0]])
    backlog.take()
    backlog.change([ROWS[1]], [])
    backlog.change([], [ROWS[1]])
    assert backlog.take() is None


def test_only_the_difference_is_delivered_after_a_reconnection():
    backlog = NotificationBacklog(10)
    backlog.replace([ROWS[0], ROWS[0], ROWS[1]])
    backlog.take()
    backlog.replace([ROWS[0], ROWS[2]])
    notification = backlog.take()
    assert (notification.added, notification.removed) == ((ROWS[2],), (ROWS[0], ROWS[1]))


def test_merged_notifications_are_counted():
    first, second, third, _ = ROWS
    backlog = NotificationBacklog(1)
    backlog.replace([first])
    assert backlog.take().merged == 1
    backlog.change([second], [])
    backlog.change([third], [second], merged=3)
    assert backlog.take() == Notification((third,), (), 1, merged=4)
    backlog.change([second], [])
    backlog.change([], [second])
    assert backlog.take() is None
    backlog.change([second], [])
    assert backlog.take() == Notification((second,), (), 2, merged=3), "also those whose changes cancelled out"


def test_restart_replaces_the_waiting_notifications_by_the_whole_result():
    first, second, *_ = ROWS
    backlog = NotificationBacklog(4)
    backlog.replace([first])
    backlog.take()
    backlog.change([second], [])
    backlog.restart()
    assert backlog.take() == Notification((first, second), (), 0)
    backlog.change([], [first])
    assert backlog.take() == Notification((), (first,), 1)
    assert backlog.rows() == [second]
