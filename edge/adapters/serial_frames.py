"""Frames in a stream of bytes: found again after any noise, and made of payloads. Knows no port and no clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Protocol

from edge.adapters.serial_stuffing import cobs_decoded, cobs_encoded, escaped, unescaped
from edge.mapping.serial_ports import Delimited, LengthPrefixed, SerialPort

_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters that no line of text has; tabs, form feeds and the escapes of coloured terminals it may."""
_CRC: Final = "the checksum is wrong"


@dataclass(slots=True)
class Tally:
    """What a stream of bytes held."""

    frames: int = 0
    """Good ones."""
    bad: int = 0
    """What looked like a frame and was none."""
    discarded: int = 0
    """Bytes that belong to no good frame."""
    reason: str = ""
    """What was wrong with the last bad one."""
    excerpt: bytes = b""
    """How that began."""

    def refuse(self, frame: bytes, reason: str) -> None:
        """Count a bad frame."""
        self.bad += 1
        self.reason = reason
        self.excerpt = frame[:64]


class Frames(Protocol):
    """Finds the frames in what a port receives. Costs no more than what C takes to search, for bytes that are noise."""

    tally: Tally

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; returns the payloads of the frames that are complete now."""

    def silence(self) -> list[bytes]:
        """Nothing has come for a while: what has begun in the middle of something will not be completed."""

    @property
    def waits(self) -> bool:
        """Whether `silence` would make a difference."""


def frames(port: SerialPort, longest: int, tally: Tally | None = None) -> Frames:
    """The frames of a port, of `longest` bytes at the most, counted in `tally`."""
    tally = Tally() if tally is None else tally
    if isinstance(port.framing, LengthPrefixed):
        return _LengthPrefixedFrames(port, port.framing, longest, tally)
    return _DelimitedFrames(port, port.framing, longest, tally)


def encoded(port: SerialPort, payload: bytes) -> bytes:
    """The frame that carries a payload. Raises ValueError where none can."""
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
    """Splits at the end of frames; what is between two ends and is no frame is dropped."""

    def __init__(self, port: SerialPort, framing: Delimited, longest: int, tally: Tally) -> None:
        self.tally = tally
        self._framing = framing
        self._checksum = port.checksum
        self._skip = port.spec.skip
        self._longest = longest
        # Stuffing can double a frame, and the bytes around it belong to it.
        self._most = (2 if framing.escape else 1) * longest + longest // 254 + 16
        self._rest = b""
        self._lost = False
        # A port may be opened in the middle of a frame, of which the rest can look like another one.
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
        if len(rest) > self._most:
            if not self._lost:
                self.tally.refuse(rest, f"it is longer than {self._longest} bytes")
            self._lost = True
            kept = len(end) - 1
            self.tally.discarded += len(rest) - kept
            rest = rest[len(rest) - kept :]
        self._rest = rest
        return found

    def _drop(self, chunk: bytes) -> None:
        self.tally.discarded += len(chunk)

    def _payload(self, chunk: bytes) -> bytes | None:
        """What the frame holds; None: it is none, which is counted."""
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
        """The frame without stuffing, and what is wrong with it."""
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
    """Looks for the bytes that frames begin with; where what follows is no frame, from the byte after these."""

    def __init__(self, port: SerialPort, framing: LengthPrefixed, longest: int, tally: Tally) -> None:
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
                tally.refuse(buffer[begin : begin + 64], "it tells a length that no frame has")
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
            # The bytes that frames begin with may have begun to come.
            kept = max(at, len(buffer) - len(sync) + 1)
            tally.discarded += kept - at
            at = kept
        self._buffer = buffer[at:]
        return found

    def _size(self, buffer: bytes, begin: int) -> int:
        place = begin + self._framing.at
        said = int.from_bytes(buffer[place : place + self._framing.size], self._framing.endian)
        return said + self._framing.plus

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
