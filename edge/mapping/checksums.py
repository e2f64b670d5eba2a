"""Checksums by their names in the catalogue of CRC RevEng (https://reveng.sourceforge.io/crc-catalogue/)."""

from __future__ import annotations

import binascii
import operator
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, reduce
from typing import Final, Literal

_REVERSED: Final = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One checksum algorithm."""

    size: int
    """Size in bytes."""
    endian: Literal["big", "little"]
    """Usual byte order: reflected CRCs are sent with the lowest byte first."""
    of: Callable[[bytes], int]


def _hqx(start: int, *, reflected: bool = False, flip: int = 0) -> Callable[[bytes], int]:
    """CRC-16 with polynomial 0x1021, computed in C. The reflected variant reverses the bits of each byte."""
    if not reflected:
        return lambda data: binascii.crc_hqx(data, start) ^ flip

    def crc(data: bytes) -> int:
        found = binascii.crc_hqx(data.translate(_REVERSED), _reverse(start, 16))
        return _reverse(found, 16) ^ flip

    return crc


def _reverse(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


@cache
def _table(width: int, polynomial: int, *, reflected: bool) -> tuple[int, ...]:
    top, full = 1 << (width - 1), (1 << width) - 1
    table = []
    for byte in range(256):
        value = byte if reflected else byte << (width - 8)
        for _ in range(8):
            if reflected:
                value = value >> 1 ^ (_reverse(polynomial, width) if value & 1 else 0)
            else:
                value = (value << 1 ^ (polynomial if value & top else 0)) & full
        table.append(value)
    return tuple(table)


def _by_table(width: int, polynomial: int, start: int, *, reflected: bool, flip: int = 0) -> Callable[[bytes], int]:
    """Parameters as in the catalogue. The table of 256 entries is built at first use."""

    def crc(data: bytes) -> int:
        table = _table(width, polynomial, reflected=reflected)
        value = start
        if reflected:
            for byte in data:
                value = value >> 8 ^ table[(value ^ byte) & 0xFF]
        else:
            full, shift = (1 << width) - 1, width - 8
            for byte in data:
                value = (value << 8 & full) ^ table[value >> shift ^ byte]
        return value ^ flip

    return crc


ALGORITHMS: Final[dict[str, Algorithm]] = {
    "sum8": Algorithm(1, "big", lambda data: sum(data) & 0xFF),
    "xor8": Algorithm(1, "big", lambda data: reduce(operator.xor, data, 0)),
    "crc-8/smbus": Algorithm(1, "big", _by_table(8, 0x07, 0, reflected=False)),
    "crc-8/maxim-dow": Algorithm(1, "little", _by_table(8, 0x31, 0, reflected=True)),
    "crc-8/rohc": Algorithm(1, "little", _by_table(8, 0x07, 0xFF, reflected=True)),
    "crc-16/arc": Algorithm(2, "little", _by_table(16, 0x8005, 0, reflected=True)),
    "crc-16/modbus": Algorithm(2, "little", _by_table(16, 0x8005, 0xFFFF, reflected=True)),
    "crc-16/usb": Algorithm(2, "little", _by_table(16, 0x8005, 0xFFFF, reflected=True, flip=0xFFFF)),
    "crc-16/ibm-3740": Algorithm(2, "big", _hqx(0xFFFF)),
    "crc-16/xmodem": Algorithm(2, "big", _hqx(0)),
    "crc-16/kermit": Algorithm(2, "little", _hqx(0, reflected=True)),
    "crc-16/mcrf4xx": Algorithm(2, "little", _hqx(0xFFFF, reflected=True)),
    "crc-16/ibm-sdlc": Algorithm(2, "little", _hqx(0xFFFF, reflected=True, flip=0xFFFF)),
    "crc-32/iso-hdlc": Algorithm(4, "little", zlib.crc32),
    "crc-32/iscsi": Algorithm(4, "little", _by_table(32, 0x1EDC6F41, 0xFFFFFFFF, reflected=True, flip=0xFFFFFFFF)),
    "crc-32/bzip2": Algorithm(4, "big", _by_table(32, 0x04C11DB7, 0xFFFFFFFF, reflected=False, flip=0xFFFFFFFF)),
}
ALIASES: Final = {
    "crc-8": "crc-8/smbus",
    "crc-8/maxim": "crc-8/maxim-dow",
    "crc-16": "crc-16/arc",
    "crc-16/ccitt-false": "crc-16/ibm-3740",
    "crc-16/ccitt": "crc-16/kermit",
    "crc-16/x-25": "crc-16/ibm-sdlc",
    "crc-32": "crc-32/iso-hdlc",
    "crc-32c": "crc-32/iscsi",
}
"""Alternative names in common use."""


@dataclass(frozen=True, slots=True)
class Checksum:
    """Checksum of frames: algorithm, position and range."""

    algorithm: Algorithm
    endian: Literal["big", "little"]
    at: int | None
    """Position in the frame; None: at its end."""
    start: int
    """First byte of the range. It extends to the end, without the checksum itself."""

    def _parts(self, frame: bytes | bytearray) -> tuple[int, bytes]:
        size = self.algorithm.size
        at = len(frame) - size if self.at is None else self.at
        covered = bytes(frame[self.start : at]) if self.start < at else b""
        return at, covered + bytes(frame[max(self.start, at + size) :])

    def fits(self, frame: bytes) -> bool:
        """Whether the checksum of a frame is correct."""
        at, covered = self._parts(frame)
        size = self.algorithm.size
        if at < 0 or at + size > len(frame):
            return False
        return int.from_bytes(frame[at : at + size], self.endian) == self.algorithm.of(covered)

    def put(self, frame: bytearray) -> None:
        """Write the checksum to its position in the frame, which has room for it."""
        at, covered = self._parts(frame)
        frame[at : at + self.algorithm.size] = self.algorithm.of(covered).to_bytes(self.algorithm.size, self.endian)
