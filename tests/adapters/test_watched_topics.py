"""The newest messages of the topics that an operator watches."""

from __future__ import annotations

import pytest

from edge.adapters.registry import SAMPLE
from edge.adapters.watched_topics import MOST, WATCHED, WatchedTopics
from edge.protocol.errors import InvalidRequest, TooManyRequests


class Clock:
    """A clock that stands still."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("topic_filter", "topic", "matches"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/bc", False),
        ("a/+", "a/b", True),
        ("a/+", "a/", True),
        ("a/+", "a/b/c", False),
        ("+/b/#", "a/b/c/d", True),
        ("a/#", "a", True),
        ("a/#", "ab", False),
        ("#", "any/topic\nat all", True),
        ("a.c", "abc", False),
        ("/#", "/a", True),
        ("/#", "a/b", False),
        ("#", "$SYS/uptime", False),
        ("+/uptime", "$SYS/uptime", False),
        ("$SYS/#", "$SYS/uptime", True),
    ],
)
def test_messages_of_a_filter_are_kept(topic_filter, topic, matches):
    watched = WatchedTopics()
    watched.offer(topic, b"before")
    assert watched.newest(topic_filter) is None
    watched.offer(topic, b"1")
    watched.offer(topic, b"2")
    assert watched.newest(topic_filter) == ((topic, b"2") if matches else None)


def test_a_watch_ends_without_requests():
    clock = Clock()
    watched = WatchedTopics(clock)
    assert watched.newest("a") is None
    clock.now += WATCHED - 1
    watched.offer("a", b"1")
    assert watched.newest("a") == ("a", b"1")
    clock.now += WATCHED - 1
    assert watched.newest("a") == ("a", b"1")
    clock.now += WATCHED
    watched.offer("b", b"2")
    assert watched.watches == ()
    assert watched.newest("a") is None


def test_memory_is_bounded_and_a_further_filter_takes_no_place():
    clock = Clock()
    watched = WatchedTopics(clock)
    for number in range(MOST):
        watched.newest(f"t/{number}")
        watched.offer(f"t/{number}", b"x" * 100_000)
    clock.now += 20
    watched.newest("t/1")
    with pytest.raises(TooManyRequests) as refused:
        watched.newest("t/other")
    assert refused.value.retry_after == WATCHED - 20
    assert {len(each.message[1]) for each in watched.watches if each.message} == {SAMPLE + 1}
    assert all(watched.newest(f"t/{number}") for number in range(MOST))
    clock.now += WATCHED
    assert watched.newest("t/other") is None
    assert len(watched.watches) == 1


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a#", "a/b+", "+a", "x" * 1001])
def test_a_filter_that_is_not_valid_is_refused(topic_filter):
    watched = WatchedTopics()
    with pytest.raises(InvalidRequest, match="topic filter"):
        watched.newest(topic_filter)
    assert watched.watches == ()
