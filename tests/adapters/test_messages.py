"""The queue of waiting messages, and the list of values that no mapping could read."""

import threading
from datetime import UTC, datetime

from edge.adapters.messages import Inbox, MqttMessage
from edge.adapters.receipts import receipt_of
from edge.adapters.registry import BadValues, UnmappedTopics
from tests.support.waiting import wait_for

NOW = datetime(2024, 5, 1, tzinfo=UTC)


def message(mid: int = 1) -> MqttMessage:
    return MqttMessage("t", b"1", 1, False, mid, NOW, 1, receipt_of(mid, "t", b"1"))


def test_an_inbox_gives_what_is_there_in_order_and_no_more_than_asked():
    inbox = Inbox(10, 1000)
    sent = [message(mid) for mid in range(5)]
    assert all(inbox.offer(each) for each in sent)
    assert inbox.take(3) == sent[:3]
    assert inbox.take(3) == sent[3:]


def test_a_full_inbox_refuses_or_makes_wait():
    inbox = Inbox(1, 1000)
    first, second = message(1), message(2)
    assert inbox.offer(first)
    assert not inbox.offer(second)
    done: list[bool] = []
    thread = threading.Thread(target=lambda: done.append(inbox.put(second)))
    thread.start()
    assert inbox.take(1) == [first]
    thread.join(5)
    assert done == [True]


def test_an_inbox_is_full_by_bytes_too_unless_it_is_empty():
    inbox = Inbox(10, 3)
    large = MqttMessage("topic", b"larger than the limit", 0, False, 0, NOW, 1, b"")
    assert inbox.offer(large)
    assert not inbox.offer(message(1))
    assert inbox.take(5) == [large]
    assert inbox.offer(message(1))
    assert not inbox.offer(message(2))
    assert len(inbox.take(5)) == 1
    assert inbox.offer(message(2))


def test_a_closed_inbox_gives_what_is_left_and_wakes_who_waits():
    inbox = Inbox(1, 1000)
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
