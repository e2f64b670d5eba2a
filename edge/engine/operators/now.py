"""Time of a request: the value of NOW() (SPARQL 1.1 Query, 17.4.5.1) and `<urn:sepa:function:now>()`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pyoxigraph as ox

NOW_FUNCTION: Final = ox.NamedNode("urn:sepa:function:now")
"""A function without arguments: microseconds since 1970 as an xsd:integer. NOW() is the same instant."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Now:
    """Time of the running request."""

    __slots__ = ("now",)

    def __init__(self, now: int = 0) -> None:
        self.now = now
        """Microseconds since 1970."""


def date_time(now: int) -> str:
    """Return microseconds since 1970 as an xsd:dateTime lexical form in UTC."""
    return (_EPOCH + timedelta(microseconds=now)).isoformat().replace("+00:00", "Z")
