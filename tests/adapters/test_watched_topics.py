"""The newest messages of the topics that an operator watches."""

from __future__ import annotations

import pytest

from edge.adapters.registry import SAMPLE
from edge.adapters.watched_topics import MOST, WATCHED, WatchedTopics
from edge.protocol.errors import InvalidRequest


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


def test_memory_is_bounded():
    watched = WatchedTopics()
    for number in range(MOST + 2):
        watched.newest(f"t/{number}")
        watched.newest("t/0")  # this one is asked for again and again
        watched.offer(f"t/{number}", b"x" * 100_000)
    assert len(watched.watches) == MOST
    assert {len(each.message[1]) for each in watched.watches if each.message} == {SAMPLE + 1}
    assert watched.newest("t/0") is not None
    assert watched.newest("t/1") is None


@pytest.mark.parametrize("topic_filter", ["", "a/#/b", "a#", "a/b+", "+a", "x" * 1001])
def test_a_filter_that_is_not_valid_is_refused(topic_filter):
    watched = WatchedTopics()
    with pytest.raises(InvalidRequest, match="topic filter"):
        watched.newest(topic_filter)
    assert watched.watches == ()
