"""Encoded notifications that are kept while attempts repeat: found for the same report, within a bound."""

from __future__ import annotations

from edge.streams.kept_notifications import KeptNotifications
from edge.streams.observer import StoredReport


def report(number: int, size: int = 10, byte: bytes = b"a") -> StoredReport:
    return StoredReport(number, 0, "text/plain", byte * size)


def test_a_notification_is_found_for_the_same_report_only() -> None:
    kept = KeptNotifications(1_000)
    kept.keep("o", report(1), b"one")
    assert kept.find("o", report(1)) == b"one"
    assert kept.find("p", report(1)) is None
    assert kept.find("o", report(2)) is None
    assert kept.find("o", report(1, byte=b"b")) is None
    kept.keep("o", report(2), b"two")
    assert kept.find("o", report(1)) is None
    kept.drop("o")
    kept.drop("o")
    assert kept.find("o", report(2)) is None
    assert kept.size == 0


def test_the_oldest_notifications_are_dropped_beyond_the_bound() -> None:
    kept = KeptNotifications(100)
    for name in ("a", "b", "c", "a"):
        kept.keep(name, report(1), b"x" * 20)
    assert kept.size == 90
    kept.keep("d", report(1), b"x" * 20)
    assert [name for name in "abcd" if kept.find(name, report(1))] == ["a", "c", "d"]
    kept.keep("e", report(1, 50), b"x" * 51)
    assert kept.find("e", report(1, 50)) is None
    assert kept.size == 90
    kept.keep("a", report(2, 50), b"x" * 51)
    assert kept.find("a", report(1)) is None
    assert kept.size == 60
