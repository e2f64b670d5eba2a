"""Codec of journal entries: numbers and receipts first, then the quads of all entries as one N-Quads text.

A body is one flag byte (`r` raw, `z` zlib, `d` zlib with the dictionary `VOCABULARY`) and the content: the number of
entries (u32), for each entry its head and its receipt, and the text. One text for a whole commit compresses well and is
parsed at once. A head counts the lines of its entry: quads added, quads removed, graphs created, graphs dropped, in
this order. A line for a graph has the name of the graph as its subject. All numbers are little-endian.
"""

from __future__ import annotations

import re
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
"""Bytes of content from which a body is compressed. Compression saves nothing on shorter ones."""

_SMALL: Final = 1024
"""Bytes of content up to which a body has the preset dictionary. Longer ones repeat their own IRIs often enough.

The compressor for them has little state: the default state of 256 KiB is cold in the cache when single readings
arrive, and then takes twice as long.
"""
_SMALL_WINDOW_BITS: Final = 12
"""Base 2 logarithm of its window, which holds the dictionary and the content."""
_SMALL_STATE: Final = 3
"""Memory level of that compressor: some KiB of state in addition to the window."""

# Never change it: stored bodies cannot be read without exactly these bytes. Another dictionary needs another flag.
# The most frequent texts come last, because short distances take fewer bits.
VOCABULARY: Final = (
    b"<http://www.w3.org/2000/01/rdf-schema#comment> <http://www.w3.org/2000/01/rdf-schema#label> "
    b"<http://www.w3.org/ns/sosa/madeBySensor> <http://www.w3.org/ns/sosa/observedProperty> "
    b"<http://www.w3.org/ns/sosa/hasFeatureOfInterest> <http://www.w3.org/ns/sosa/Observation> "
    b"<http://www.w3.org/ns/sosa/hasResult> <http://qudt.org/1.1/schema/qudt#QuantityValue> "
    b"<http://qudt.org/1.1/schema/qudt#unit> <http://qudt.org/1.1/vocab/unit#"
    b"<http://mml.arces.unibo.it/monitor#hasMqttTopic> <http://mml.arces.unibo.it/monitor#hasMappingDigest> "
    b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2006/time#hasTime> "
    b"<http://www.w3.org/2006/time#Instant> <http://example.org/ <http://localhost/ <urn:uuid: _:"
    b'"false" "true"^^<http://www.w3.org/2001/XMLSchema#boolean> .\n"^^<http://www.w3.org/2001/XMLSchema#double> .\n'
    b'"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    b'-instant> <http://www.w3.org/2006/time#inXSDDateTimeStamp> "202-0-T:Z"^^<http://www.w3.org/2001/XMLSchema#dateTime'
    b"> .\n<http://mml.arces.unibo.it/monitor#QuantityValue-"
    b'> <http://qudt.org/1.1/schema/qudt#numericValue> "."^^<http://www.w3.org/2001/XMLSchema#decimal> .\n'
)
"""Preset dictionary for small bodies: the N-Quads of typical readings.

A single reading is about 700 bytes of text, most of it IRIs of vocabularies. With a preset dictionary (RFC 1950,
section 2.2) the compressor refers to them instead of writing them again.
"""

_COUNT = struct.Struct("<I")
_HEAD = struct.Struct("<qIIIII")


@dataclass(slots=True)
class JournalEntry:
    """One update in the journal.

    `at` is the time of the update in microseconds since 1970. `receipt` is an opaque value for the sender of the
    update, who can later check that the update is durable (empty: none).
    """

    at: int
    changes: ChangeSet
    receipt: bytes = b""
    quads: EncodedQuads | None = None
    """The quads of the changes, if they are encoded already."""


class NotRestorable(Exception):
    """Entries were written in a form that cannot be read back: a bug of this software."""


def encode(entries: Sequence[JournalEntry]) -> bytes:
    """Return the body for entries. Raises `NotRestorable`."""
    content = bytearray(_COUNT.pack(len(entries)))
    lines: list[str] = []
    for entry in entries:
        changes = entry.changes
        content += _HEAD.pack(entry.at, *changes.sizes, len(entry.receipt))
        content += entry.receipt
        lines += changes.lines()
        if changes.created or changes.dropped:
            lines += map(_graph_line, (*changes.created, *changes.dropped))
    content += _checked("".join(lines), len(lines))
    if len(content) < COMPRESS_FROM:
        return b"r" + content
    if len(content) <= _SMALL:
        compressor = zlib.compressobj(1, zlib.DEFLATED, _SMALL_WINDOW_BITS, _SMALL_STATE, zdict=VOCABULARY)
        return b"d" + compressor.compress(content) + compressor.flush()
    # Level 1, because the writer compresses while updates wait.
    return b"z" + zlib.compress(content, 1)


class EncodedQuads:
    """Quads of one large change, encoded in pieces before the change is committed.

    If another client changed some of the quads meanwhile, there may be redundant lines, which are harmless: they add a
    quad that exists, or remove one that does not.
    """

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        """Added and removed quads of each piece."""
        self._groups: dict[int, _Piece] = {}
        """Pieces that are joined in advance, by number of the group: 1,600 pieces at once would take 1.5 ms."""

    def add(self, added: Sequence[Statement], removed: Sequence[Statement]) -> None:
        """Encode another piece. Raises `NotRestorable`."""
        self._pieces.append(_piece(added, removed))
        number, rest = divmod(len(self._pieces), _GROUP)
        if not rest:
            self._groups[number - 1] = _joined_pieces(self._pieces[-_GROUP:])

    def replace(self, number: int, added: Sequence[Statement], removed: Sequence[Statement]) -> None:
        """Encode a piece again. Raises `NotRestorable`."""
        self._pieces[number] = _piece(added, removed)
        self._groups.pop(number // _GROUP, None)

    def body(self, entry: JournalEntry) -> bytes:
        """Return the body for one entry with these quads. Raises `NotRestorable`."""
        changes = entry.changes
        groups = [
            self._groups.get(first // _GROUP) or _joined_pieces(self._pieces[first : first + _GROUP])
            for first in range(0, len(self._pieces), _GROUP)
        ]
        added, removed = _joined_pieces(groups)
        graphs = [_graph_line(name) for name in (*changes.created, *changes.dropped)]
        sizes = added.lines, removed.lines, len(changes.created), len(changes.dropped), len(entry.receipt)
        start = _Section.of(_COUNT.pack(1) + _HEAD.pack(entry.at, *sizes) + entry.receipt)
        whole = _Section.joined((start, added, removed, _Section.of_lines(graphs)))
        return b"z" + _ZLIB_HEADER + whole.compressed + _DEFLATE_END + whole.checksum.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class _Section:
    """Part of the content of a body, compressed independently of the preceding parts."""

    compressed: bytes
    """Deflate blocks, none of which is marked as the last of the stream."""
    length: int
    """Bytes of the content."""
    checksum: int
    """Adler-32 of the content."""
    lines: int = 0

    @classmethod
    def of(cls, content: bytes, lines: int = 0) -> _Section:
        """Compress bytes."""
        compressor = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        # A full flush ends on a byte boundary, and later data does not refer to earlier data.
        compressed = compressor.compress(content) + compressor.flush(zlib.Z_FULL_FLUSH)
        return cls(compressed, len(content), zlib.adler32(content), lines)

    @classmethod
    def of_lines(cls, lines: Sequence[str]) -> _Section:
        """Compress lines of N-Quads. Raises `NotRestorable`."""
        return cls.of(_checked("".join(lines), len(lines)), len(lines))

    @classmethod
    def joined(cls, sections: Sequence[_Section]) -> _Section:
        """Join sections. They are raw deflate blocks, so only the checksum of the whole must be computed."""
        checksum = 1
        for section in sections:
            checksum = _joined_checksum(checksum, section.checksum, section.length)
        compressed = b"".join([section.compressed for section in sections])
        return cls(compressed, sum(each.length for each in sections), checksum, sum(each.lines for each in sections))


_Piece = tuple[_Section, _Section]
"""Added and removed quads."""

_GROUP: Final = 64
"""Pieces that are joined in advance."""


def _piece(added: Sequence[Statement], removed: Sequence[Statement]) -> _Piece:
    return _Section.of_lines(ChangeSet(added).lines()), _Section.of_lines(ChangeSet(removed).lines())


def _joined_pieces(pieces: Sequence[_Piece]) -> _Piece:
    added, removed = ([piece[kind] for piece in pieces if piece[kind].lines] for kind in (0, 1))
    return _Section.joined(added), _Section.joined(removed)


_ZLIB_HEADER: Final = b"\x78\x01"
"""Header of a stream with fast compression and a window of 32 KiB (RFC 1950, section 2.2)."""
_DEFLATE_END: Final = b"\x03\x00"
"""An empty final block (RFC 1951, section 3.2.6)."""
_ADLER: Final = 65_521
"""Modulus of both sums of Adler-32."""


def _joined_checksum(first: int, second: int, length: int) -> int:
    """Return the Adler-32 of two concatenated texts, from the checksums of both. `length`: that of the second text.

    The first text adds its low sum, less the initial 1, to the low sum of the second text, and the same amount to the
    high sum for each byte of the second text.
    """
    ahead = (first & 0xFFFF) - 1
    low = (second & 0xFFFF) + ahead
    high = (first >> 16) + (second >> 16) + length * ahead
    return high % _ADLER << 16 | low % _ADLER


def decode(body: bytes) -> Iterator[JournalEntry]:
    """Yield the entries of a body, in order. Raises `ValueError` unless `encode` made the body."""
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
    """Return one receipt for each entry of a body, empty if it has none. Parses no quads. Errors as in `decode`."""
    return [head[-1] for head in _heads(_content(body))[0]]


_Head = tuple[int, int, int, int, int, bytes]


def _content(body: bytes) -> bytes:
    if body[:1] == b"r":
        return body[1:]
    if body[:1] not in (b"z", b"d"):
        raise ValueError("the encoding is unknown")
    try:
        if body[:1] == b"z":
            return zlib.decompress(body[1:])
        decompressor = zlib.decompressobj(zdict=VOCABULARY)
        content = decompressor.decompress(body[1:])
    except zlib.error as error:
        raise ValueError(f"it cannot be decompressed: {error}") from error
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("it cannot be decompressed: it has another length")
    return content


def _heads(content: bytes) -> tuple[list[_Head], int]:
    """Return the heads with their receipts, and the offset of the text."""
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
    """Yield the quads of an N-Quads text. Lenient, so that everything that the graph accepted can be restored."""
    try:
        yield from ox.parse(text, ox.RdfFormat.N_QUADS, lenient=True)
    except _UNREADABLE as error:
        raise ValueError(f"its quads cannot be read: {error}") from error


def _count(text: bytes) -> int:
    """Return the number of quads in an N-Quads text. Errors as in `_parse`."""
    quads: Iterator[ox.Quad] = ox.parse(text, ox.RdfFormat.N_QUADS, lenient=True)
    count = 0
    try:
        # In C, but in pieces: it holds the GIL.
        while piece := len(list(islice(quads, _COUNTED_TOGETHER))):
            count += piece
    except _UNREADABLE as error:
        raise ValueError(f"its quads cannot be read: {error}") from error
    return count


_UNREADABLE: Final = (SyntaxError, MemoryError)  # a token beyond the parser's buffer raises MemoryError
_COUNTED_TOGETHER: Final = 500
"""Quads that are counted at a time: less than a millisecond."""


_IRI: Final = r'<[a-z][a-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\\ud800-\udfff]*+>'
_LITERAL: Final = rf'"[^"\\\n\r\ud800-\udfff]*+"(?:\^\^{_IRI})?'
_PLAIN_LINES: Final = re.compile(rf"(?>(?:{_IRI} {_IRI} (?:{_IRI}|{_LITERAL})(?: {_IRI})? \.\n)*)")
"""N-Quads of absolute IRIs, and of literals without escape sequence and language: most readings."""


def _checked(text: str, lines: int) -> bytes:
    """Return the encoded quads after a check that they can be read back. Raises `NotRestorable`.

    Updates reject the terms that N-Quads cannot represent, so this check should never fail. It remains because an
    unreadable body makes all later ones useless, and because it is cheap: 0.75 us a quad. The pattern is as fast as the
    parser, but a third of it when a single reading finds the parser cold in the cache.
    """
    encoded = text.encode()
    if len(text) <= _SMALL and _PLAIN_LINES.fullmatch(text) and text.count("\n") == lines:
        return encoded
    try:
        found = _count(encoded)
    except ValueError as error:
        raise NotRestorable(str(error)) from error
    if found != lines:
        raise NotRestorable(f"{lines} quads were written and {found} read again")
    return encoded


def _graph_line(name: GraphName) -> str:
    return f"{name} <urn:g> <urn:g> .\n"


def _graph_name(line: ox.Quad) -> ox.NamedNode | ox.BlankNode:
    name = line.subject
    if not isinstance(name, ox.NamedNode | ox.BlankNode):
        raise ValueError(f"{name} cannot name a graph")  # noqa: TRY004  ValueError, because the body is invalid
    return name
