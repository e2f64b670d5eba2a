"""Interface of a landing zone: upload segments and read their state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from edge.outbox.segmenter import Segment


class LandingFailed(Exception):
    """The landing zone did not accept data or gave no valid answer. The text gives the reason; a retry may help."""


@dataclass(frozen=True, slots=True)
class KnownOutbox:
    """State of one outbox in a landing zone."""

    acknowledged: int = 0
    """All observations up to this number are in the table; 0 for none."""
    held: tuple[tuple[int, int], ...] = ()
    """First and last number of each complete segment."""

    @property
    def last(self) -> int:
        """The highest number in the landing zone."""
        return max([self.acknowledged, *(last for _, last in self.held)])

    def missing(self, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges up to `last` that are neither acknowledged nor held, in order."""
        first = self.acknowledged + 1
        for begin, end in sorted(self.held):
            if begin > last:
                break
            if first < begin:
                yield first, begin - 1
            first = max(first, end + 1)
        if first <= last:
            yield first, last


class LandingTarget(Protocol):
    """A landing zone."""

    def look(self, gateway: str, epoch: str) -> KnownOutbox:
        """Return the state of this outbox. Raises `LandingFailed`."""

    def put(self, segment: Segment) -> None:
        """Store a segment durably, the manifest last. Raises `LandingFailed`: parts of it may be stored."""


def acknowledged(body: Any, epoch: str) -> int:  # noqa: ANN401 - external JSON
    """Return the acknowledged number from the member `acknowledged` of a JSON object; 0 if it is not valid."""
    try:
        last = body["acknowledged"][epoch]["last"]
    except (KeyError, TypeError, IndexError):
        return 0
    return last if type(last) is int and last > 0 else 0


def held(ranges: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """Return the valid ranges among the pairs; ignore the others."""
    found = []
    for pair in ranges:
        if isinstance(pair, list | tuple) and len(pair) == 2 and all(type(number) is int for number in pair):
            first, last = pair
            if 1 <= first <= last:
                found.append((first, last))
    return tuple(found)


def parsed(text: bytes) -> Any:  # noqa: ANN401 - external JSON
    """Parse JSON; return None if it is not valid."""
    try:
        return json.loads(text)
    except ValueError:
        return None
