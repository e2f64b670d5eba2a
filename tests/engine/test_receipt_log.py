"""The log of receipts: records of a partly processed message are replaced, and receipts of others are kept."""

from edge.engine.journal.receipt_log import ReceiptLog

NEW_SESSION = bytes(6)


def of(identifier, digest=b"mess"):
    return identifier.to_bytes(2, "big") + digest


def part(count, identifier):
    return count.to_bytes(6, "big") + of(identifier)


def log_of(*receipts, limit=600):
    return bytes(ReceiptLog(limit, receipts))


def test_a_later_part_replaces_the_earlier_one():
    assert log_of(of(1), part(50, 2), part(100, 2)) == of(1) + part(100, 2)


def test_the_receipt_of_the_message_replaces_its_parts():
    assert log_of(of(1), part(50, 2), of(2), of(3)) == of(1) + of(2) + of(3)
    assert log_of(part(50, 2), of(1) + of(2)) == of(1) + of(2)


def test_a_part_stays_last_while_other_messages_follow():
    assert log_of(part(50, 2), of(3), of(4)) == of(3) + of(4) + part(50, 2)


def test_a_new_session_or_another_message_with_the_identifier_removes_a_part():
    assert log_of(part(50, 2), NEW_SESSION) == NEW_SESSION
    assert log_of(part(50, 2), of(2, b"else")) == of(2, b"else")
    assert log_of(NEW_SESSION + of(1)) == NEW_SESSION + of(1)


def test_receipts_before_a_part_in_the_same_commit_are_kept():
    assert log_of(of(1) + part(50, 2), part(100, 2)) == of(1) + part(100, 2)


def test_a_stored_log_with_a_part_is_read_again():
    stored = log_of(of(1), part(50, 2))
    assert log_of(stored, part(100, 2)) == of(1) + part(100, 2)


def test_parts_displace_no_receipt_of_another_message():
    """A large message has many parts, and the log must cover each identifier of a session."""
    log = ReceiptLog(60)
    for identifier in range(1, 11):
        for count in range(50, 1000, 50):
            log.append(part(count, identifier))
        log.append(of(identifier))
    log.append(part(50, 11))
    assert bytes(log) == b"".join(of(identifier) for identifier in range(1, 11)) + part(50, 11)
