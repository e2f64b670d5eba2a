"""Topic filters: one covers another exactly if it matches every topic that the other matches."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.topics import covers, is_filter, is_topic

LEVELS = st.sampled_from(["a", "b", "", "$a"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
FILTERS = st.tuples(
    st.lists(st.sampled_from(["a", "b", "", "$a", "+"]), max_size=3), st.sampled_from(["a", "+", "#"])
).map(lambda parts: "/".join([*parts[0], parts[1]]))
ALL_TOPICS = [
    "/".join(levels) for length in range(1, 5) for levels in itertools.product(["a", "$a", "z"], repeat=length)
]


def matches(topic_filter: str, topic: str) -> bool:
    """Match by the text of the standard, level by level."""

    def rest(wanted: list[str], found: list[str]) -> bool:
        if not wanted or not found:
            return wanted == found or wanted == ["#"]
        return wanted[0] == "#" or (wanted[0] in ("+", found[0]) and rest(wanted[1:], found[1:]))

    if topic.startswith("$") and topic_filter[0] in "+#":
        return False
    return rest(topic_filter.split("/"), topic.split("/"))


@given(FILTERS, TOPICS)
def test_a_filter_covers_the_topics_it_matches(wide, topic):
    assert covers(wide, topic) == matches(wide, topic)


@given(FILTERS, FILTERS)
def test_a_filter_that_is_covered_matches_nothing_else(wide, narrow):
    if covers(wide, narrow):
        assert [topic for topic in ALL_TOPICS if matches(narrow, topic) and not matches(wide, topic)] == []


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("#", "+/x/#"),
        ("kitchen/#", "kitchen"),
        ("kitchen/#", "kitchen/+/now"),
        ("kitchen/+", "kitchen/"),
        ("+/+", "/finish"),
        ("$SYS/#", "$SYS/broker/+"),
    ],
)
def test_topics_within_a_filter(wide, narrow):
    assert covers(wide, narrow)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("kitchen/#", "#"),
        ("kitchen/#", "+/temperature"),
        ("kitchen/#", "kitchens"),
        ("kitchen/+", "kitchen/#"),
        ("kitchen/+", "kitchen/a/b"),
        ("kitchen/+/now", "kitchen/+/+"),
        ("kitchen/#", "/kitchen/a"),
        ("#", "$SYS/#"),
        ("+/x", "$SYS/x"),
        ("#", "$share/group/kitchen/#"),
    ],
)
def test_topics_outside_a_filter(wide, narrow):
    assert not covers(wide, narrow)


def test_filters_and_topics_are_validated():
    assert all(map(is_filter, ["a", "+", "#", "a/+/#", "/", "$SYS/#", "a//b"]))
    assert not any(map(is_filter, ["", "a#", "#/a", "a+", "a/b+", "a\0b", "é" * 40_000]))
    assert is_topic("a//b")
    assert not any(map(is_topic, ["", "a/+", "#", "a\0"]))
