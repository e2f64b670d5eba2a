"""How journal entries become bytes: numbers and receipts in front, then the quads of all as one N-Quads text.

A body is one flag byte (`r` raw, `z` zlib) and the content: the number of entries (u32), for each entry its head and
its receipt, and the text. One text for a whole commit compresses well and is parsed in one go. A head counts the lines
that belong to its entry: quads added, quads removed, graphs created, graphs dropped, in this order. Lines that tell
a graph have its name as their subject. All numbers are little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyoxigraph as ox

from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.oxigraph_transaction import GraphName

COMPRESS_FROM = 256
"""Bytes of content from which a body is compressed; below, there is nothing to win."""

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<qIIIII")


@dataclass(slots=True)
class JournalEntry:
    """One update in the journal.

    `at` is the time of the update in microseconds since the epoch. `receipt` are opaque bytes by which the sender of
    the update can later be told that it was made durable (empty: none wanted).
    """

    at: int
    changes: ChangeSet
    receipt: bytes = b""
    quads: EncodedQuads | None = None
    """The quads of the changes, if they were encoded before."""


class NotRestorable(Exception):
    """These entries could be written, but not read again: a fault of this software."""


def encode(entries: Sequence[JournalEntry]) -> bytes:
    """The body that holds these entries. Raises `NotRestorable`."""
    content = bytearray(_COUNT.pack(len(entries)))
    lines: list[str] = []
    for entry in entries:
        changes = entry.changes
        content += _HEAD.pack(entry.at, *changes.sizes, len(entry.receipt))
        content += entry.receipt
        lines += changes.lines()
        lines += map(_graph_line, (*changes.created, *changes.dropped))
    text = "".join(lines).encode()
    _check(text, len(lines))
    content += text
    return b"r" + content if len(content) < COMPRESS_FROM else b"z" + zlib.compress(content, 1)


class EncodedQuads:
    """The quads of one large change, encoded in pieces before the change is committed.

    Of a quad that another client changed meanwhile too many lines may stand here, which have no effect when they are
    read: one that adds it although it is there, or removes it although it is not.
    """

    def __init__(self) -> None:
        self._pieces: list[tuple[_Section, _Section]] = []
        """What each piece adds and removes."""

    def add(self, added: Sequence[Statement], removed: Sequence[Statement]) -> None:
        """Encode another piece. Raises `NotRestorable`."""
        self._pieces.append(_piece(added, removed))

    def replace(self, number: int, added: Sequence[Statement], removed: Sequence[Statement]) -> None:
        """Encode a piece anew. Raises `NotRestorable`."""
        self._pieces[number] = _piece(added, removed)

    def body(self, entry: JournalEntry) -> bytes:
        """The body that holds this entry alone, whose quads these are. Raises `NotRestorable`."""
        changes = entry.changes
        added, removed = ([piece[kind] for piece in self._pieces if piece[kind].lines] for kind in (0, 1))
        counts = sum(section.lines for section in added), sum(section.lines for section in removed)
        graphs = [_graph_line(name) for name in (*changes.created, *changes.dropped)]
        sizes = *counts, len(changes.created), len(changes.dropped), len(entry.receipt)
        start = _Section.of(_COUNT.pack(1) + _HEAD.pack(entry.at, *sizes) + entry.receipt)
        parts, checksum = bytearray(_ZLIB_HEADER), 1
        for section in (start, *added, *removed, _Section.of_lines(graphs)):
            parts += section.compressed
            checksum = _joined_checksum(checksum, section.checksum, section.length)
        return b"z" + parts + _DEFLATE_END + checksum.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class _Section:
    """A part of the content of a body, compressed without a look at what comes before it."""

    compressed: bytes
    """Deflate blocks, the last of which is not marked as the last of the stream."""
    length: int
    """Bytes of the content."""
    checksum: int
    """Its Adler-32."""
    lines: int = 0

    @classmethod
    def of(cls, content: bytes, lines: int = 0) -> _Section:
        """Compress bytes."""
        compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        # A full flush ends on a byte, and what follows does not refer to what stands before.
        compressed = compressor.compress(content) + compressor.flush(zlib.Z_FULL_FLUSH)
        return cls(compressed, len(content), zlib.adler32(content), lines)

    @classmethod
    def of_lines(cls, lines: Sequence[str]) -> _Section:
        """Compress lines of N-Quads. Raises `NotRestorable`."""
        text = "".join(lines).encode()
        _check(text, len(lines))
        return cls.of(text, len(lines))


def _piece(added: Sequence[Statement], removed: Sequence[Statement]) -> tuple[_Section, _Section]:
    return _Section.of_lines(list(ChangeSet(added).lines())), _Section.of_lines(list(ChangeSet(removed).lines()))


_ZLIB_HEADER: Final = b"\x78\x01"
"""Of a stream of fast compression with a window of 32 KiB (RFC 1950, section 2.2)."""
_DEFLATE_END: Final = b"\x03\x00"
"""An empty block that is the last one (RFC 1951, section 3.2.6)."""
_ADLER: Final = 65_521
"""Modulus of both sums of Adler-32."""


def _joined_checksum(first: int, second: int, length: int) -> int:
    """The Adler-32 of two texts, one after the other, by those of each. `length` is that of the second one.

    After the second text its sum of bytes is ahead by the first sum less one, and its sum of these sums by that for
    each byte.
    """
    ahead = (first & 0xFFFF) - 1
    low = (second & 0xFFFF) + ahead
    high = (first >> 16) + (second >> 16) + length * ahead
    return high % _ADLER << 16 | low % _ADLER


def decode(body: bytes) -> Iterator[JournalEntry]:
    """The entries of a body, in order. Raises `ValueError` where it is not a body that `encode` made."""
    content = _content(body)
    heads, start = _heads(content)
    quads = _parse(content[start:])
    for at, added, removed, created, dropped, receipt in heads:
        changes = ChangeSet(
            tuple(islice(quads, added)),
            tuple(islice(quads, removed)),
            tuple(_graph_name(quad) for quad in islice(quads, created)),
            tuple(_graph_name(quad) for quad in islice(quads, dropped)),
        )
        if changes.sizes != (added, removed, created, dropped):
            raise ValueError("there are fewer quads than the entry counts")
        yield JournalEntry(at, changes, receipt)
    if next(quads, None) is not None:
        raise ValueError("there are more quads than the entries count")


def receipts(body: bytes) -> list[bytes]:
    """One receipt for each entry of a body, empty where it has none; no quad is parsed. Raises as `decode` does."""
    return [head[-1] for head in _heads(_content(body))[0]]


_Head = tuple[int, int, int, int, int, bytes]


def _content(body: bytes) -> bytes:
    if body[:1] == b"r":
        return body[1:]
    if body[:1] != b"z":
        raise ValueError("the encoding is unknown")
    try:
        return zlib.decompress(body[1:])
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error


def _heads(content: bytes) -> tuple[list[_Head], int]:
    """The heads with their receipts, and where the text begins."""
    heads: list[_Head] = []
    try:
        (count,) = _COUNT.unpack_from(content)
        position = _COUNT.size
        for _ in range(count):
            *numbers, length = _HEAD.unpack_from(content, position)
            position += _HEAD.size + length
            heads.append((*numbers, content[position - length : position]))
    except struct.error as error:
        raise ValueError(f"it is too short: {error}") from error
    return heads, position


def _parse(text: bytes) -> Iterator[ox.Quad]:
    """The quads of an N-Quads text. Lenient: what was in the graph comes back, strict parsers or not."""
    try:
        yield from ox.parse(text, ox.RdfFormat.N_QUADS, lenient=True)
    except (SyntaxError, MemoryError) as error:  # a token beyond the parser's buffer is a MemoryError
        raise ValueError(f"its quads cannot be read: {error}") from error


def _check(text: bytes, lines: int) -> None:
    """Check that the quads of a text can be read again. Raises `NotRestorable`.

    Updates refuse the terms that N-Quads cannot carry, so this finds nothing. It is here because a body that cannot be
    read makes everything after it unreadable as well, and because it costs little: 0.75 us a quad.
    """
    try:
        found = sum(1 for _ in _parse(text))
    except ValueError as error:
        raise NotRestorable(str(error)) from error
    if found != lines:
        raise NotRestorable(f"{lines} quads were written and {found} read again")


def _graph_line(name: GraphName) -> str:
    return f"{name} <urn:g> <urn:g> .\n"


def _graph_name(line: ox.Quad) -> ox.NamedNode | ox.BlankNode:
    name = line.subject
    if not isinstance(name, ox.NamedNode | ox.BlankNode):
        raise ValueError(f"{name} cannot name a graph")  # noqa: TRY004 (it is the body that is wrong)
    return name
