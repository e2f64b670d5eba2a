"""New elements as clients send them, and the limits of one element."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.engine.store.terms import problem
from edge.protocol.errors import InvalidRequest, TooLarge
from edge.streams.encoding import serialized
from edge.streams.model import Element
from edge.streams.settings import StreamSettings

_SECOND: Final = 1_000_000


class NewElement(NamedTuple):
    """An element as a client sends it."""

    triples: tuple[ox.Triple, ...]
    time: int | None = None
    """Application time; None: the time of its arrival."""


def read_element(new: NewElement, number: int, now: int, settings: StreamSettings) -> tuple[Element, bytes]:
    """Return a new element with its number, and its triples as N-Triples. Raises `InvalidRequest`, `TooLarge`."""
    time = _time_of(new, now, settings)
    triples = tuple(dict.fromkeys(new.triples))
    for triple in triples:
        for term in (triple.subject, triple.object):
            if found := problem(term):
                raise InvalidRequest(f"The term {str(term)[:100]} of the element {found}")
    graph = serialized(triples)
    check_size(graph, settings)
    return Element(time, number, triples), graph


def check_size(graph: bytes, settings: StreamSettings) -> None:
    """Raise `TooLarge` if an element is too large."""
    if len(graph) > settings.max_element:
        raise TooLarge(
            f"An element has {len(graph):,} bytes as N-Triples; the limit streams.max_element is "
            f"{settings.max_element:,}"
        )


def _time_of(new: NewElement, now: int, settings: StreamSettings) -> int:
    time = now if new.time is None else new.time
    if time > now + settings.max_ahead * _SECOND:
        raise InvalidRequest(
            f"The time of an element is more than {settings.max_ahead:g} s in the future "
            "(streams.max_ahead); set the clock of its source"
        )
    return time
