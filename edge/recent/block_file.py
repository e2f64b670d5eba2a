"""Files of finished blocks: raw samples, or one-minute aggregates, of all series of a period.

A file is written once, as a whole, and never changed. It consists of a header, a directory, the blocks, and the names
of all series with the batches of their samples. The directory has the 8-byte hashes of the observations in ascending
order, and the positions of their blocks, so a reader finds the block of a series without reading those of others. (With
100,000 observations, two have the same hash with a probability of 3e-10.) Each part has a checksum.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, Literal, NamedTuple

from edge import durable
from edge.recent.batches import Batch, packed, unpacked
from edge.recent.columns import (
    DamagedColumn,
    Number,
    deflated,
    inflated,
    inflated_first,
    pack_integers,
    pack_numbers,
    unpack_integers,
    unpack_numbers,
)
from edge.recent.series import KINDS, Kind, SeriesKey

Level = Literal["raw", "minutes"]

SUFFIX: Final = ".blocks"
_MAGIC: Final = b"EDGEblk1"
_PREFIX: Final = struct.Struct("<8sII")
"""Magic, length and checksum of the header."""
_CHECKSUM: Final = struct.Struct("<I")


class DamagedFile(ValueError):
    """A file that fails a checksum; the text names the problem."""


class Samples(NamedTuple):
    """Samples of one series."""

    times: list[int]
    """Ticks."""
    values: list[Number]
    """Numbers; 1 or 0 for booleans; positions in `texts`."""
    texts: list[str]


class Minutes(NamedTuple):
    """One-minute aggregates of one series, in the order of time. Empty minutes have none."""

    times: list[int]
    """Beginnings of the minutes in ticks."""
    last: list[Number]
    """As `Samples.values`."""
    counts: list[int]
    low: list[Number]
    """Minima; empty for texts, as are `high` and `mean`."""
    high: list[Number]
    mean: list[Number]
    texts: list[str]


Block = Samples | Minutes


@dataclass(frozen=True, slots=True)
class Header:
    """Description of a file."""

    level: Level
    generation: int
    """Raw: number of the file, from 1. Aggregates: number of the last raw file that they include."""
    first: int
    """Time of its first sample or the beginning of the recorded period in ticks."""
    last: int
    recorded: tuple[tuple[int, int], ...]
    """Recorded periods in ticks."""
    series: int = 0
    """Number of blocks."""
    blocks: int = 0
    """Length of all blocks in bytes."""
    directory: int = 0
    """Checksum of the directory."""


def name_of(level: Level, generation: int) -> str:
    """Return the name of a file."""
    return f"{level}-{generation:08d}{SUFFIX}"


def write(
    directory: Path, header: Header, blocks: Iterable[tuple[SeriesKey, Block]], batches: Sequence[Batch] = ()
) -> Path:
    """Write a file atomically and durably. `batches` number the series in the order of `blocks`. Raises `OSError`."""
    encoded = sorted(
        (_hash(key.observation), key, _encoded(key, block), number) for number, (key, block) in enumerate(blocks)
    )
    hashes = array("Q", [each[0] for each in encoded])
    places = array("I", [0])
    for _, _, data, _ in encoded:
        places.append(places[-1] + len(data))
    index = hashes.tobytes() + places.tobytes()
    names = deflated([json.dumps([key for _, key, _, _ in encoded], ensure_ascii=False).encode()])
    if batches:
        order = {number: place for place, (_, _, _, number) in enumerate(encoded)}
        names += packed(batches, [order[number] for number in range(len(encoded))])
    about = {
        "level": header.level,
        "generation": header.generation,
        "first": header.first,
        "last": header.last,
        "recorded": header.recorded,
        "series": len(encoded),
        "blocks": places[-1],
        "directory": zlib.crc32(index),
    }
    head = json.dumps(about, separators=(",", ":")).encode()
    content = [_PREFIX.pack(_MAGIC, len(head), zlib.crc32(head)), head, index, *(data for _, _, data, _ in encoded)]
    path = directory / name_of(header.level, header.generation)
    durable.write(path, b"".join([*content, _CHECKSUM.pack(zlib.crc32(names)), names]), mode=0o640)
    return path


class BlockFile:
    """An open file. Close it after use. Raises `OSError` and `DamagedFile`, as its methods do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)
        try:
            prefix = self._read(0, _PREFIX.size)
            magic, length, checksum = _PREFIX.unpack(prefix)
            if magic != _MAGIC:
                raise DamagedFile("it does not begin as such a file does")
            head = self._read(_PREFIX.size, length)
            if zlib.crc32(head) != checksum:
                raise DamagedFile("its header fails the checksum")
            about = json.loads(head)
            about["recorded"] = tuple((begin, end) for begin, end in about["recorded"])
            self.header = Header(**about)
            self._index = _PREFIX.size + length
            self._begin = self._index + 12 * self.header.series + 4
        except (struct.error, ValueError, TypeError, KeyError) as error:
            os.close(self._descriptor)
            raise error if isinstance(error, DamagedFile) else DamagedFile("its header is damaged") from error
        except BaseException:
            os.close(self._descriptor)
            raise
        self._hashes: memoryview | None = None
        self._places: memoryview = memoryview(b"")

    def __enter__(self) -> BlockFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def blocks(self, observation: str) -> Iterator[tuple[SeriesKey, Block]]:
        """Yield the blocks of an observation: one for each graph and kind."""
        hashes = self._directory()
        wanted = _hash(observation)
        position = bisect_left(hashes, wanted)
        while position < len(hashes) and hashes[position] == wanted:
            begin, end = self._places[position], self._places[position + 1]
            graph, kind, block = _decoded(self._read(self._begin + begin, end - begin), self.header.level)
            yield SeriesKey(graph, observation, kind), block
            position += 1

    def names(self) -> list[SeriesKey]:
        """Return the series of the file."""
        return [SeriesKey(*each) for each in json.loads(bytes(inflated(self._ending())))]

    def batches(self) -> list[Batch]:
        """Return the batches of the samples, with numbers of series as in `names`; none in files without them."""
        try:
            _, packed_batches = inflated_first(self._ending())
            return unpacked(packed_batches) if packed_batches else []
        except DamagedColumn as error:
            raise DamagedFile(str(error)) from error

    def _ending(self) -> bytes:
        """Return the compressed list of series, and the batches after it."""
        place = self._begin + self.header.blocks
        size = os.fstat(self._descriptor).st_size - place
        data = self._read(place, max(4, size))
        (checksum,) = _CHECKSUM.unpack_from(data)
        if zlib.crc32(data[4:]) != checksum:
            raise DamagedFile("its list of series fails the checksum")
        return data[4:]

    def verify(self) -> None:
        """Check all checksums."""
        self._directory()
        for key in dict.fromkeys(key.observation for key in self.names()):
            if not any(True for _ in self.blocks(key)):
                raise DamagedFile(f"the block of {key} is missing")

    def _directory(self) -> memoryview:
        if self._hashes is None:
            count = self.header.series
            index = self._read(self._index, 12 * count + 4)
            if zlib.crc32(index) != self.header.directory:
                raise DamagedFile("its directory fails the checksum")
            view = memoryview(index)
            self._hashes, self._places = view[: 8 * count].cast("Q"), view[8 * count :].cast("I")
        return self._hashes

    def _read(self, place: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, place)
        if len(data) != length:
            raise DamagedFile("it is cut off")
        return data


def _hash(observation: str) -> int:
    return int.from_bytes(blake2b(observation.encode(), digest_size=8).digest(), "little")


def _encoded(key: SeriesKey, block: Block) -> bytes:
    columns: Sequence[bytes]
    if isinstance(block, Samples):
        columns = [pack_integers(block.times), pack_numbers(block.values)]
    else:
        numbers = (block.last, block.low, block.high, block.mean)
        columns = [pack_integers(block.times), pack_integers(block.counts), *map(pack_numbers, numbers)]
    head = json.dumps([key.graph, key.kind, block.texts], ensure_ascii=False, separators=(",", ":")).encode()
    data = deflated([struct.pack("<I", len(head)) + head, *columns])
    return _CHECKSUM.pack(zlib.crc32(data)) + data


def _decoded(data: bytes, level: Level) -> tuple[str, Kind, Block]:
    try:
        (checksum,) = _CHECKSUM.unpack_from(data)
        if zlib.crc32(data[4:]) != checksum:
            raise DamagedFile("a block fails its checksum")
        view = inflated(data[4:])
        (length,) = struct.unpack_from("<I", view)
        graph, name, texts = json.loads(bytes(view[4 : 4 + length]))
        kind = _kind(name)
        times, view = unpack_integers(view[4 + length :])
        if level == "raw":
            values, _ = unpack_numbers(view)
            return graph, kind, Samples(times, values, texts)
        counts, view = unpack_integers(view)
        last, view = unpack_numbers(view)
        low, view = unpack_numbers(view)
        high, view = unpack_numbers(view)
        mean, _ = unpack_numbers(view)
        return graph, kind, Minutes(times, last, counts, low, high, mean, texts)
    except (DamagedColumn, struct.error, ValueError, TypeError) as error:
        raise error if isinstance(error, DamagedFile) else DamagedFile(f"a block is damaged: {error}") from error


def _kind(text: str) -> Kind:
    for kind in KINDS:
        if kind == text:
            return kind
    raise DamagedFile(f'a block has values of an unknown kind, "{text}"')
