"""A landing zone as the gateway sees it: where segments are put, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from edge.outbox.segmenter import Segment


class LandingFailed(Exception):
    """The landing zone took nothing or told nothing. The text says why; to try again later may help."""


@dataclass(frozen=True, slots=True)
class KnownOutbox:
    """What a landing zone knows of one outbox."""

    acknowledged: int = 0
    """All observations up to this number are in the table; 0: none."""
    held: tuple[tuple[int, int], ...] = ()
    """First and last number of each segment that is whole there."""

    @property
    def last(self) -> int:
        """The last observation that it knows of."""
        return max([self.acknowledged, *(last for _, last in self.held)])

    def missing(self, last: int) -> Iterator[tuple[int, int]]:
        """The ranges up to `last` that are neither acknowledged nor held, in order."""
        first = self.acknowledged + 1
        for begin, end in sorted(self.held):
            if begin > last:
                break
            if first < begin:
                yield first, begin - 1
            first = max(first, end + 1)
        if first <= last:
            yield first, last


class Landing(Protocol):
    """A landing zone."""

    def look(self, gateway: str, epoch: str) -> KnownOutbox:
        """What it knows of this outbox. Raises `LandingFailed`."""

    def put(self, segment: Segment) -> None:
        """Have it hold a segment, durably, the manifest last. Raises `LandingFailed`: it may hold a part of it."""


def acknowledged(body: Any, epoch: str) -> int:  # noqa: ANN401 - JSON of others
    """The acknowledgement of an outbox in the member `acknowledged` of a JSON object; 0: none that can be read."""
    try:
        last = body["acknowledged"][epoch]["last"]
    except (KeyError, TypeError, IndexError):
        return 0
    return last if type(last) is int and last > 0 else 0


def held(ranges: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """Pairs of numbers that are ranges; what is none is left out."""
    found = []
    for pair in ranges:
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(type(number) is int for number in pair):
            first, last = pair
            if 1 <= first <= last:
                found.append((first, last))
    return tuple(found)


def parsed(text: bytes) -> Any:  # noqa: ANN401 - JSON of others
    """JSON; None where it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return None
