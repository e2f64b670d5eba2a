"""Framing: finds frames in a byte stream, resynchronises after noise, and encodes
payloads. Has no port and no clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from edge.adapters.serial_stuffing import cobs_decoded, cobs_encoded, escaped, unescaped
from edge.mapping.serial_ports import Delimited, LengthPrefixed, SerialPort

_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters that are invalid in lines of text. Tabs, form feeds and terminal escapes are allowed."""
_CRC: Final = "the checksum is wrong"


@dataclass(slots=True)
class FrameStatistics:
    """Statistics of a byte stream."""

    frames: int = 0
    """Number of valid frames."""
    bad: int = 0
    """Number of byte sequences that looked like a frame but were invalid."""
    discarded: int = 0
    """Bytes outside valid frames."""
    reason: str = ""
    """Problem of the last invalid frame."""
    excerpt: bytes = b""
    """Its first bytes."""

    def refuse(self, frame: bytes, reason: str) -> None:
        """Count an invalid frame."""
        self.bad += 1
        self.reason = reason
        self.excerpt = frame[:64]


class Frames(Protocol):
    """Frame decoder of a port. Noise costs no more than a byte search in C."""

    tally: FrameStatistics

    def feed(self, data: bytes) -> list[bytes]:
        """Process the next bytes; return the payloads of completed frames."""

    def silence(self) -> list[bytes]:
        """Process a pause in the data: incomplete frames will not be completed. Returns payloads found after them."""

    @property
    def waits(self) -> bool:
        """Whether `silence` would change the state."""


def frames(port: SerialPort, longest: int, tally: FrameStatistics | None = None) -> Frames:
    """Return the frame decoder of a port. `longest`: maximum frame length in bytes. `tally`: receives the counts."""
    tally = FrameStatistics() if tally is None else tally
    if isinstance(port.framing, LengthPrefixed):
        return _LengthPrefixedFrames(port, port.framing, longest, tally)
    return _DelimitedFrames(port, port.framing, longest, tally)


def encoded(port: SerialPort, payload: bytes) -> bytes:
    """Return the frame with a payload. Raises `ValueError` if the payload does not fit."""
    framing, checksum = port.framing, port.checksum
    if isinstance(framing, LengthPrefixed):
        head = framing.sync + bytes(max(0, port.spec.skip - len(framing.sync)))
        frame = bytearray(head[: port.spec.skip] + payload)
    else:
        if not framing.escape and not framing.cobs:
            payload = payload.removesuffix(framing.end)
        frame = bytearray(bytes(port.spec.skip) + payload)
    if checksum is not None and checksum.at is None:
        frame += bytes(checksum.algorithm.size)
    if checksum is not None and checksum.at is not None and len(frame) < checksum.at + checksum.algorithm.size:
        raise ValueError(f"the frame has {len(frame)} bytes, and its checksum stands at {checksum.at}")
    if isinstance(framing, LengthPrefixed):
        _put_length(frame, framing)
    if checksum is not None:
        checksum.put(frame)
    return bytes(frame) if isinstance(framing, LengthPrefixed) else _wrapped(bytes(frame), framing)


def _put_length(frame: bytearray, framing: LengthPrefixed) -> None:
    behind = framing.at + framing.size
    if len(frame) < behind or not frame.startswith(framing.sync):
        raise ValueError(f"the frame does not begin with {framing.sync.hex(' ')} and a length at {framing.at}")
    try:
        frame[framing.at : behind] = (len(frame) - framing.plus).to_bytes(framing.size, framing.endian)
    except OverflowError:
        raise ValueError(f"{len(frame)} bytes are more than the frame can say") from None


def _wrapped(frame: bytes, framing: Delimited) -> bytes:
    if framing.cobs:
        return cobs_encoded(frame) + framing.end
    if framing.escape:
        frame = escaped(frame, framing.changed, framing.escape)
    if (frame + framing.end).find(framing.end) < len(frame) or (framing.start and framing.start in frame):
        raise ValueError("it holds the bytes that end a frame")
    return framing.start + frame + framing.end


class _DelimitedFrames:
    """Decoder for frames with an end delimiter; invalid data between two delimiters is dropped."""

    def __init__(self, port: SerialPort, framing: Delimited, longest: int, tally: FrameStatistics) -> None:
        self.tally = tally
        self._framing = framing
        self._checksum = port.checksum
        self._skip = port.spec.skip
        self._longest = longest
        # Byte stuffing can double a frame, and delimiters count too.
        self._max_chunk = (2 if framing.escape else 1) * longest + longest // 254 + 16
        self._rest = b""
        self._lost = False
        # The port may be opened in the middle of a frame, whose rest can look like a valid frame.
        self._middle = port.checksum is None

    @property
    def waits(self) -> bool:
        return self._middle and not self._rest

    def silence(self) -> list[bytes]:
        if self.waits:
            self._middle = False
        return []

    def feed(self, data: bytes) -> list[bytes]:
        end = self._framing.end
        *whole, rest = (self._rest + data).split(end)
        found = []
        for chunk in whole:
            if self._middle or self._lost:
                self._drop(chunk)
            elif (payload := self._payload(chunk)) is not None:
                found.append(payload)
                self.tally.frames += 1
            self._middle = self._lost = False
        if len(rest) > self._max_chunk:
            if not self._lost:
                self.tally.refuse(rest, f"it is longer than {self._longest} bytes")
            self._lost = True
            keep = len(end) - 1
            self.tally.discarded += len(rest) - keep
            rest = rest[len(rest) - keep :]
        self._rest = rest
        return found

    def _drop(self, chunk: bytes) -> None:
        self.tally.discarded += len(chunk)

    def _payload(self, chunk: bytes) -> bytes | None:
        """Return the payload of a frame; None: it is invalid, which is counted."""
        framing = self._framing
        before = len(chunk)
        if framing.text:
            chunk = chunk.removesuffix(b"\r")
        if framing.start and framing.start != framing.end:
            _, found, chunk = chunk.rpartition(framing.start)
            if not found:
                chunk = b""
            self.tally.discarded += before - len(chunk) - len(found)
        if not chunk:
            return None
        frame, reason = self._checked(chunk)
        if reason:
            self.tally.refuse(chunk, reason)
            self._drop(chunk)
            return None
        if self._checksum is not None and self._checksum.at is None:
            frame = frame[: -self._checksum.algorithm.size]
        return frame[self._skip :]

    def _checked(self, chunk: bytes) -> tuple[bytes, str]:
        """Return the frame without byte stuffing, and its problem."""
        framing = self._framing
        frame: bytes | None = chunk
        if framing.cobs:
            frame = cobs_decoded(chunk)
        elif framing.escape:
            frame = unescaped(chunk, framing.changed, framing.escape)
        if frame is None:
            return b"", "its byte stuffing is wrong"
        if len(frame) > self._longest:
            return b"", f"it is longer than {self._longest} bytes"
        if self._checksum is not None and not self._checksum.fits(frame):
            return b"", _CRC
        if framing.text and not _is_text(frame):
            return b"", "it is not a line of text"
        return frame, ""


class _LengthPrefixedFrames:
    """Decoder for frames with sync bytes and a length. After an invalid frame, it continues at the next byte."""

    def __init__(self, port: SerialPort, framing: LengthPrefixed, longest: int, tally: FrameStatistics) -> None:
        self.tally = tally
        self._framing = framing
        self._checksum = port.checksum
        self._skip = port.spec.skip
        self._longest = longest
        self._behind = framing.at + framing.size
        self._least = max(self._behind, port.spec.skip)
        if self._checksum is not None:
            self._least = max(self._least, (self._checksum.at or 0) + self._checksum.algorithm.size)
        self._buffer = b""

    @property
    def waits(self) -> bool:
        return len(self._buffer) >= len(self._framing.sync)

    def silence(self) -> list[bytes]:
        found = []
        while self.waits:
            self.tally.refuse(self._buffer, "it ended early")
            self.tally.discarded += 1
            self._buffer = self._buffer[1:]
            found += self.feed(b"")
        return found

    def feed(self, data: bytes) -> list[bytes]:
        buffer, sync, tally = self._buffer + data, self._framing.sync, self.tally
        found = []
        at = 0
        while (begin := buffer.find(sync, at)) >= 0:
            tally.discarded += begin - at
            at = begin
            if len(buffer) < begin + self._behind:
                break
            size = self._size(buffer, begin)
            if not self._least <= size <= self._longest:
                tally.refuse(buffer[begin : begin + 64], "its length field is invalid")
            elif len(buffer) < begin + size:
                break
            else:
                frame = buffer[begin : begin + size]
                if self._checksum is None or self._checksum.fits(frame):
                    found.append(self._payload(frame))
                    tally.frames += 1
                    at = begin + size
                    continue
                tally.refuse(frame, _CRC)
            tally.discarded += 1
            at = begin + 1
        else:
            # The buffer may end with the first sync bytes of the next frame.
            keep = max(at, len(buffer) - len(sync) + 1)
            tally.discarded += keep - at
            at = keep
        self._buffer = buffer[at:]
        return found

    def _size(self, buffer: bytes, begin: int) -> int:
        place = begin + self._framing.at
        length = int.from_bytes(buffer[place : place + self._framing.size], self._framing.endian)
        return length + self._framing.plus

    def _payload(self, frame: bytes) -> bytes:
        trailing = self._checksum.algorithm.size if self._checksum is not None and self._checksum.at is None else 0
        return frame[self._skip : len(frame) - trailing]


def _is_text(frame: bytes) -> bool:
    if _NO_TEXT.search(frame) is not None:
        return False
    try:
        frame.decode()
    except UnicodeDecodeError:
        return False
    return True
