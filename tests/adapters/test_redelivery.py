"""Redelivery: the adapter recognizes by their receipts the messages that a broker delivers again."""

import random

import pytest

from edge.adapters.redelivery import IDENTIFIERS, NEW_SESSION, RECEIPT, Receipts, receipt_of


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
