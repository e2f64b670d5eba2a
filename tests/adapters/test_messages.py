"""Messages that wait, and the receipts of those that are done."""

import threading
from datetime import UTC, datetime

from edge.adapters.messages import Inbox, Message, Receipts, receipt_of
from edge.adapters.registry import BadValues, UnmappedTopics
from tests.support.processes import wait_for

NOW = datetime(2024, 5, 1, tzinfo=UTC)


def message(mid: int = 1) -> Message:
    return Message("t", b"1", 1, False, mid, NOW, 1, receipt_of(mid, "t", b"1"))


def test_receipts_tell_identifier_topic_and_payload_apart():
    receipts = {receipt_of(1, "t", b"1"), receipt_of(2, "t", b"1"), receipt_of(1, "u", b"1"), receipt_of(1, "t", b"2")}
    assert len(receipts) == 4
    assert {len(receipt) for receipt in receipts} == {10}


def test_only_the_latest_receipts_count():
    receipts = Receipts(2, [message(7).receipt + message(8).receipt])
    assert message(7).receipt in receipts
    assert message(8).receipt in receipts
    for mid in (1, 2, 3):
        receipts.add([message(mid).receipt])
    assert [mid for mid in (1, 2, 3, 7, 8) if message(mid).receipt in receipts] == [2, 3]


def test_an_inbox_gives_what_is_there_in_order_and_no_more_than_asked():
    inbox = Inbox(10)
    sent = [message(mid) for mid in range(5)]
    assert all(inbox.offer(each) for each in sent)
    assert inbox.take(3) == sent[:3]
    assert inbox.take(3) == sent[3:]


def test_a_full_inbox_refuses_or_makes_wait():
    inbox = Inbox(1)
    first, second = message(1), message(2)
    assert inbox.offer(first)
    assert not inbox.offer(second)
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(inbox.put(second)))
    thread.start()
    assert inbox.take(1) == [first]
    thread.join(5)
    assert done == [True]


def test_a_closed_inbox_gives_what_is_left_and_wakes_who_waits():
    inbox = Inbox(1)
    inbox.offer(message(1))
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(inbox.put(message(2))))
    thread.start()
    inbox.close()
    thread.join(5)
    assert done == [False]
    assert len(inbox.take(5)) == 1
    assert inbox.take(5) == []
    wait_for(lambda: not thread.is_alive())


def test_registers_are_bounded_and_forget_the_oldest():
    unmapped = UnmappedTopics(2)
    for topic in ("a", "b", "a", "c"):
        unmapped.add(topic, b"payload", NOW)
    assert [(entry["topic"], entry["count"]) for entry in unmapped.listed()] == [("c", 1), ("a", 2)]
    assert unmapped.total == 4


def test_entries_show_the_beginning_of_any_payload():
    bad = BadValues(2)
    bad.add("t", "m", "no number", b"\xff" + b"x" * 1000, NOW)
    [entry] = bad.listed()
    assert (entry["topic"], entry["mapping"], entry["reason"], entry["count"]) == ("t", "m", "no number", 1)
    assert len(str(entry["last_payload"])) == 201
    assert entry["last_seen"] == "2024-05-01T00:00:00.000+00:00"
