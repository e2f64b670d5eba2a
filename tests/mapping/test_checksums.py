"""Checksums: the check values of the catalogue, in both byte orders, anywhere in a frame."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping.checksums import ALGORITHMS, ALIASES, Checksum

CHECK = b"123456789"
"""The input for the check values of the catalogue."""
VALUES = {
    "sum8": 0xDD,
    "xor8": 0x31,
    "crc-8/smbus": 0xF4,
    "crc-8/maxim-dow": 0xA1,
    "crc-8/rohc": 0xD0,
    "crc-16/arc": 0xBB3D,
    "crc-16/modbus": 0x4B37,
    "crc-16/usb": 0xB4C8,
    "crc-16/ibm-3740": 0x29B1,
    "crc-16/xmodem": 0x31C3,
    "crc-16/kermit": 0x2189,
    "crc-16/mcrf4xx": 0x6F91,
    "crc-16/ibm-sdlc": 0x906E,
    "crc-32/iso-hdlc": 0xCBF43926,
    "crc-32/iscsi": 0xE3069283,
    "crc-32/bzip2": 0xFC891918,
}


def test_checksums_have_the_values_of_the_catalogue():
    assert {name: algorithm.of(CHECK) for name, algorithm in ALGORITHMS.items()} == VALUES
    assert set(ALIASES.values()) <= set(ALGORITHMS)
    assert not set(ALIASES) & set(ALGORITHMS)


@given(
    name=st.sampled_from(sorted(ALGORITHMS)),
    endian=st.sampled_from(["big", "little"]),
    at=st.one_of(st.none(), st.integers(0, 6)),
    start=st.integers(0, 12),
    frame=st.binary(min_size=12, max_size=40),
    bit=st.integers(0, 7),
)
def test_written_checksums_match_and_detect_a_changed_bit(name, endian, at, start, frame, bit):
    algorithm = ALGORITHMS[name]
    checksum = Checksum(algorithm, endian, at, start)
    sent = bytearray(frame)
    checksum.put(sent)
    assert checksum.fits(bytes(sent))
    where = len(sent) - algorithm.size if at is None else at
    sent[where] ^= 1 << bit
    assert not checksum.fits(bytes(sent))


@pytest.mark.parametrize("at", [None, 3])
def test_frame_too_short_for_a_checksum_is_invalid(at):
    assert not Checksum(ALGORITHMS["crc-32/iso-hdlc"], "little", at, 0).fits(b"abc")
