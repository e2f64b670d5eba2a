"""Byte stuffing: removes delimiters from the content of frames (SLIP, RFC 1055; HDLC, RFC 1662; COBS)."""

from __future__ import annotations

from collections.abc import Sequence

Changed = Sequence[tuple[bytes, bytes]]
"""Bytes that must be escaped, the escape first, each with the byte that follows the escape in its place."""


def escaped(frame: bytes, changed: Changed, escape: bytes) -> bytes:
    """Return the frame with all special bytes escaped."""
    for byte, instead in changed:
        frame = frame.replace(byte, escape + instead)
    return frame


def unescaped(chunk: bytes, changed: Changed, escape: bytes) -> bytes | None:
    """Return the unescaped frame; None if an escape sequence is invalid."""
    first, *parts = chunk.split(escape)
    if not parts:
        return chunk
    meant = {instead: byte for byte, instead in changed}
    found = [first]
    for part in parts:
        byte = meant.get(part[:1])
        if byte is None:
            return None
        found += (byte, part[1:])
    return b"".join(found)


def cobs_encoded(frame: bytes) -> bytes:
    """Encode with Consistent Overhead Byte Stuffing, which removes zeros (Cheshire and Baker, 1999)."""
    found: list[bytes] = []
    for block in frame.split(b"\0"):
        while len(block) >= 254:
            found += (b"\xff", block[:254])
            block = block[254:]
        found += (bytes([len(block) + 1]), block)
    return b"".join(found)


def cobs_decoded(chunk: bytes) -> bytes | None:
    """Decode a chunk without zeros; None if it is invalid."""
    found = []
    at = 0
    while at < len(chunk):
        code = chunk[at]
        end = at + code
        if code == 0 or end > len(chunk):
            return None
        found.append(chunk[at + 1 : end])
        if code < 255 and end < len(chunk):
            found.append(b"\0")
        at = end
    return b"".join(found)
