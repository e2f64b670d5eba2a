"""Redelivery: the adapter recognizes by their receipts the messages that a broker delivers again."""

import random

import pytest

from edge.adapters.redelivery import IDENTIFIERS, NEW_SESSION, RECEIPT, Receipts, part_of, receipt_of


def of(identifier, payload=b"1"):
    return receipt_of(identifier, "t", payload)


def test_receipts_distinguish_identifier_topic_and_payload():
    receipts = {of(1), of(2), receipt_of(1, "u", b"1"), of(1, b"2")}
    assert len(receipts) == 4
    assert {len(receipt) for receipt in receipts} == {RECEIPT}


def test_the_last_message_of_each_identifier_is_known():
    receipts = Receipts(of(7) + of(8))
    receipts.add([of(1), of(7, b"2")])
    assert [receipt in receipts for receipt in (of(1), of(7), of(7, b"2"), of(8), of(9))] == [
        True,
        False,
        True,
        True,
        False,
    ]


def test_all_identifiers_of_a_session_are_remembered_over_a_restart():
    stored = b"".join(of(identifier) for identifier in range(1, IDENTIFIERS + 1))
    receipts = Receipts(stored)
    assert all(of(identifier) in receipts for identifier in range(1, IDENTIFIERS + 1))


def test_receipts_of_an_ended_session_are_removed():
    receipts = Receipts(of(1) + of(2) + NEW_SESSION + of(3))
    assert [of(identifier) in receipts for identifier in (1, 2, 3)] == [False, False, True]
    receipts.add([NEW_SESSION])
    assert not receipts


@pytest.mark.parametrize("last", [40, IDENTIFIERS - 3, 20])
def test_a_broker_that_fell_back_repeats_messages_with_recent_identifiers(last):
    """All payloads are equal, as those of many sensors are. The identifiers restart after the last one."""
    receipts = Receipts(b"".join(of((last + number) % IDENTIFIERS + 1) for number in range(-IDENTIFIERS, 10)))
    newest = (last + 9) % IDENTIFIERS + 1
    assert receipts.repeats(of(newest))
    assert receipts.repeats(of((newest - 1000 - 1) % IDENTIFIERS + 1))
    assert not receipts.repeats(of(newest % IDENTIFIERS + 1)), "the next identifier is that of a new message"
    assert not receipts.repeats(of(newest, b"2"))


def test_a_broker_that_uses_the_lowest_free_identifier_repeats_nothing_without_saying_so():
    chance = random.Random(1)
    receipts = Receipts()
    for _ in range(100):
        receipts.add([of(identifier) for identifier in range(1, chance.randint(2, 20))])
    assert of(1) in receipts
    assert not receipts.repeats(of(1))


def test_a_partly_committed_message_is_known_with_its_count_and_is_not_complete():
    receipts = Receipts(of(1) + of(2) + part_of(3, of(3)))
    assert (receipts.partial, receipts.committed) == (of(3), 3)
    assert of(2) in receipts
    assert of(3) not in receipts


def test_the_latest_part_of_a_message_counts():
    receipts = Receipts(of(1) + part_of(3, of(2)) + part_of(6, of(2)))
    assert (receipts.partial, receipts.committed) == (of(2), 6)


def test_the_receipt_of_the_message_completes_it():
    receipts = Receipts(of(1) + part_of(3, of(2)) + of(2))
    assert (receipts.partial, receipts.committed) == (b"", 0)
    assert of(2) in receipts
    later = Receipts(of(1) + part_of(3, of(2)))
    later.add([of(2)])
    assert not later.partial
    assert of(2) in later


def test_a_partly_committed_message_ends_with_its_session_and_with_its_identifier():
    assert not Receipts(part_of(3, of(2)) + NEW_SESSION).partial
    assert not Receipts(part_of(3, of(2)) + of(2, b"another")).partial
    assert Receipts(part_of(3, of(2)) + of(1)).partial == of(2)


def test_receipts_that_hold_only_a_partly_committed_message_are_not_empty():
    """A new session must invalidate this message too."""
    assert Receipts(part_of(3, of(2)))


def test_a_partly_committed_message_is_not_taken_for_an_equal_older_one_with_its_identifier():
    receipts = Receipts(of(2) + of(3) + part_of(1, of(2)))
    assert of(2) not in receipts
    assert not receipts.repeats(of(2))


def test_a_broker_that_fell_back_continues_a_partly_committed_message():
    receipts = Receipts(b"".join(of(identifier) for identifier in range(1, 20)) + part_of(50, of(20)))
    assert receipts.repeats(of(19))
    assert receipts.continues(of(20), again=False, replaying=True)
    assert receipts.continues(of(20), again=True, replaying=False)
    assert not receipts.continues(of(20), again=False, replaying=False)
    assert not receipts.continues(of(20, b"2"), again=True, replaying=True)
    assert not receipts.repeats(of(21))


def test_parts_do_not_count_as_identifiers_out_of_order():
    receipts = Receipts(b"".join(part_of(50, of(identifier)) + of(identifier) for identifier in range(1, 200)))
    assert receipts.repeats(of(199))


def test_messages_of_qos_0_have_no_receipts_of_parts():
    assert part_of(50, b"") == b""
    assert len(part_of(50, of(1))) == 2 * RECEIPT


def test_a_part_of_a_message_that_the_broker_lost_does_not_hide_later_messages():
    """The log of receipts holds the part behind the receipts of these messages."""
    receipts = Receipts(b"".join(of(identifier) for identifier in range(51, 20_000)) + part_of(50, of(50)))
    assert receipts.repeats(of(19_000))
