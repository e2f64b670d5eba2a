"""The queue of waiting messages, and the list of values that no mapping could read."""

from datetime import UTC, datetime

import pytest

from edge.adapters.messages import InvalidMessage, MessageQueue, MqttMessage, decode
from edge.adapters.redelivery import receipt_of
from edge.adapters.registry import BadValues, UnmappedTopics

NOW = datetime(2024, 5, 1, tzinfo=UTC)


def message(mid: int = 1) -> MqttMessage:
    return MqttMessage("t", b"1", 1, False, mid, NOW, 1, receipt_of(mid, "t", b"1"))


def test_an_inbox_returns_messages_in_order_up_to_the_requested_number():
    inbox = MessageQueue(10, 1000)
    sent = [message(mid) for mid in range(5)]
    assert all(inbox.offer(each) for each in sent)
    assert inbox.take(3) == sent[:3]
    assert inbox.take(3) == sent[3:]


def test_a_full_inbox_refuses_messages_but_not_those_that_must_be_processed():
    inbox = MessageQueue(1, 1000)
    first, second, third = message(1), message(2), message(3)
    assert inbox.offer(first)
    assert not inbox.offer(second)
    inbox.put(third)
    assert inbox.take(5) == [first, third]


def test_an_inbox_is_full_by_bytes_too_unless_it_is_empty():
    inbox = MessageQueue(10, 3)
    large = MqttMessage("topic", b"larger than the limit", 0, False, 0, NOW, 1, b"")
    assert inbox.offer(large)
    assert not inbox.offer(message(1))
    assert inbox.take(5) == [large]
    assert inbox.offer(message(1))
    assert not inbox.offer(message(2))
    assert len(inbox.take(5)) == 1
    assert inbox.offer(message(2))


def test_a_closed_inbox_returns_the_rest_and_takes_nothing():
    inbox = MessageQueue(10, 1000)
    inbox.offer(message(1))
    inbox.close()
    assert not inbox.offer(message(2))
    assert len(inbox.take(5)) == 1
    assert inbox.take(5) == []


def publish(topic: bytes, rest: bytes) -> bytes:
    return len(topic).to_bytes(2, "big") + topic + rest


@pytest.mark.parametrize(
    ("first", "content", "five", "expected"),
    [
        (0x30, publish(b"a/b", b"21"), False, ("a/b", b"21", 0, False, 0, False)),
        (0x33, publish(b"a", b"\x01\x02x"), False, ("a", b"x", 1, True, 258, False)),
        (0x3C, publish(b"a", b"\x00\x07\x00"), True, ("a", b"", 2, False, 7, True)),
        (0x30, publish(b"a", b"\x05\x08\x00\x02ab!"), True, ("a", b"!", 0, False, 0, False)),
        (0x30, publish(b"a", b"\x80\x01" + b"p" * 128 + b"!"), True, ("a", b"!", 0, False, 0, False)),
        (0x30, publish(b"a/\xff", b"1"), False, ("a/\ufffd", b"1", 0, False, 0, False)),
    ],
)
def test_publish_packets_are_decoded(first, content, five, expected):
    found, again = decode(first, content, NOW, 1, five=five)
    assert (found.topic, found.payload, found.qos, found.retain, found.mid, again) == expected


@pytest.mark.parametrize(
    ("first", "content", "five"),
    [
        (0x30, b"", False),
        (0x30, b"\x00\x05a", False),
        (0x32, publish(b"a", b"\x00"), False),
        (0x32, publish(b"a", b"\x00\x00x"), False),
        (0x36, publish(b"a", b"\x00\x01x"), False),
        (0x30, publish(b"a", b""), True),
        (0x30, publish(b"a", b"\x80"), True),
        (0x30, publish(b"a", b"\xff\xff\xff\xff\x01"), True),
        (0x30, publish(b"a", b"\x05ab"), True),
    ],
)
def test_malformed_publish_packets_are_refused(first, content, five):
    with pytest.raises(InvalidMessage):
        decode(first, content, NOW, 1, five=five)


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
