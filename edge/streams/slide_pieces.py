"""A large change of windows, divided into pieces that are applied one after the other.

The sum of the changes of a result over all pieces is the change of the result, in whatever order the elements come: so
a query reports only after the last piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from edge.streams.model import Element
from edge.streams.window_graph import WindowGraph

_ORDERED: Final = 8_000
"""Elements that are ordered at once. This takes less time than a piece."""


class Move(NamedTuple):
    """Elements that enter and leave a window at one time."""

    window: WindowGraph
    entering: Sequence[Element]
    leaving: Sequence[Element]


class SlidePieces:
    """The moves of all windows at one time, in pieces."""

    def __init__(self, moves: Sequence[Move], most: int) -> None:
        """`most`: triples up to which all moves are one piece. Otherwise `order` has to be called."""
        self._moves = moves
        self._left = sum(len(move.entering) + len(move.leaving) for move in moves)
        """Elements that are not taken."""
        self._steps: Iterator[tuple[int, bool, Element]] = iter(())
        """The place of a window, whether an element enters it, and the element."""
        self.is_large = self._left > most or _triples(moves) > most
        self.is_done = not moves
        """Whether no piece is left. A slide has one piece at least."""

    def order(self) -> Iterator[int]:
        """Order the elements by their first subjects. Yields the number of those that are ordered now and then.

        A query on one subject, such as the readings of one sensor, then computes its change once, in one piece.
        """
        by_subject: dict[int, list[tuple[int, bool, Element]]] = {}
        for place, move in enumerate(self._moves):
            for enters, elements in ((True, move.entering), (False, move.leaving)):
                for begin in range(0, len(elements), _ORDERED):
                    some = elements[begin : begin + _ORDERED]
                    for element in some:
                        by_subject.setdefault(_subject(element), []).append((place, enters, element))
                    yield len(some)
        self._steps = chain.from_iterable(by_subject.values())

    def take(self, most: int) -> tuple[int, Sequence[Move]]:
        """Return the number of triples of the next piece, and its moves. `most`: triples of a piece of a large slide,
        with which it ends.
        """
        if not self.is_large:
            self.is_done = True
            return _triples(self._moves), self._moves
        found: dict[int, tuple[list[Element], list[Element]]] = {}
        size = 0
        for place, enters, element in self._steps:
            entering, leaving = found.setdefault(place, ([], []))
            (entering if enters else leaving).append(element)
            self._left -= 1
            size += len(element.triples)
            if size >= most:
                break
        self.is_done = not self._left
        return size, [Move(self._moves[place].window, *elements) for place, elements in found.items()]


def _triples(moves: Sequence[Move]) -> int:
    return sum(len(each.triples) for move in moves for each in chain(move.entering, move.leaving))


def _subject(element: Element) -> int:
    return hash(element.triples[0].subject) if element.triples else 0
