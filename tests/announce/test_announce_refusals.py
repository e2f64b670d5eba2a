"""Which topics the broker refuses is found out from lost connections, without blame for messages before them."""

from __future__ import annotations

from edge.announce.refusals import QUIET, Refusals


def lose(refusals: Refusals, now: float, *topics: str) -> None:
    """Acknowledge messages of the group of their first letter, and lose the connection at once."""
    for topic in topics:
        refusals.acknowledged(topic, topic[0], now)
    refusals.lost([], now + 0.01)


def test_a_lost_connection_alone_refuses_nothing():
    refusals = Refusals()
    lose(refusals, 1.0, "s1", "c1")
    assert refusals.is_careful(1.1)
    assert refusals.fault == ""
    assert not refusals.holds("c1", "c")


def test_a_connection_that_is_lost_without_a_message_is_no_sign_of_a_refusal():
    refusals = Refusals()
    refusals.acknowledged("s1", "s", 1.0)
    refusals.lost([], 1.5)
    assert not refusals.is_careful(1.6)
    refusals.lost([], 2.0)
    assert not refusals.is_careful(2.1)


def test_the_last_message_before_the_end_is_tried_later_and_then_much_later():
    refusals = Refusals()
    lose(refusals, 1.0, "c1")
    lose(refusals, 2.0, "s1", "c1")
    assert refusals.holds("c1", "c")
    assert not refusals.holds("s1", "s")
    assert "refuses c1" in refusals.fault
    assert refusals.released(11.0) == (set(), set())
    assert refusals.released(12.1) == ({"c1"}, set())
    assert refusals.is_careful(12.2)
    lose(refusals, 13.0, "c1")
    assert round(refusals.wait(13.01)) == 600


def test_a_long_wait_for_the_next_connection_does_not_end_the_search():
    refusals = Refusals()
    lose(refusals, 1.0, "c1")
    for attempt in range(2, 100):
        refusals.lost([], float(attempt))
    refusals.connected(100.0)
    lose(refusals, 101.0, "c1")
    assert refusals.holds("c1", "c")
    refusals.connected(200.0)
    assert refusals.is_careful(209.0)
    assert not refusals.is_careful(211.0)


def test_a_message_that_is_accepted_at_last_is_no_longer_suspected():
    refusals = Refusals()
    lose(refusals, 1.0, "c1")
    lose(refusals, 2.0, "c1")
    refusals.released(20.0)
    refusals.acknowledged("c1", "c", 21.0)
    refusals.settle(21.1 + QUIET)
    assert refusals.fault == ""
    lose(refusals, 22.0, "c1")
    assert round(refusals.wait(22.01)) == 10


def test_all_topics_of_a_group_are_refused_after_three_of_them():
    refusals = Refusals()
    lose(refusals, 1.0, "c0")
    for number in range(1, 4):
        lose(refusals, 1.0 + number, "s1", f"c{number}")
    assert refusals.holds("c9", "c")
    assert not refusals.holds("s1", "s")
    assert refusals.released(605.0)[1] == {"c"}
    lose(refusals, 606.0, "c9")
    assert refusals.holds("c8", "c")


def test_a_group_with_accepted_messages_is_not_refused():
    refusals = Refusals()
    lose(refusals, 1.0, "c0")
    for number in range(1, 9):
        lose(refusals, 1.0 + number, "c_good", f"c{number}")
    assert not refusals.holds("c9", "c")
    assert refusals.holds("c8", "c")


def test_refusals_with_a_reason_need_no_lost_connection():
    refusals = Refusals()
    for number in range(3):
        refusals.refused(f"c{number}", "c", "Not authorized", 1.0)
    assert refusals.holds("c9", "c")
    assert "c2: Not authorized" in refusals.fault


def test_a_connection_that_is_lost_after_a_reported_refusal_is_explained():
    refusals = Refusals()
    lose(refusals, 1.0, "s1")
    refusals.acknowledged("s1", "s", 2.0)
    refusals.refused("c1", "c", "Not authorized", 2.0)
    refusals.lost([("s2", "s")], 2.01)
    assert refusals.topics == {"c1"}


def test_an_unacknowledged_message_is_the_cause_if_it_was_the_only_one():
    refusals = Refusals()
    refusals.lost([("c1", "c"), ("c2", "c")], 1.0)
    assert refusals.fault == ""
    refusals.lost([("c1", "c")], 2.0)
    assert refusals.holds("c1", "c")
