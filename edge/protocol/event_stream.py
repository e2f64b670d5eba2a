"""The event stream of stored observations: its nodes and members, independent of the transport.

The stream has *sections*: the values of one log of the recent history. A section has pages with a fixed number of
members. The last section may be open: then its last page still gets members.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge.protocol.series import Value

PAGE_SIZE: Final = 500
"""Members of a page. It is no setting: a complete page must never change."""
_NAME: Final = re.compile(r"([0-9a-f]{12})(?:-([0-9]{1,10}))?", re.ASCII)


class NodeName(NamedTuple):
    """Name of a section or page in its URL."""

    section: int
    """Identity of the section."""
    page: int | None
    """Number of the page in the section, from 0; None: the node of the section, which links to its pages."""

    def __str__(self) -> str:
        return f"{self.section:012x}" if self.page is None else f"{self.section:012x}-{self.page}"


def read_name(text: str) -> NodeName | None:
    """Return the node with a name; None: no node ever has this name."""
    found = _NAME.fullmatch(text)
    name = None if found is None else NodeName(int(found[1], 16), None if found[2] is None else int(found[2]))
    return name if str(name) == text else None


class Member(NamedTuple):
    """One stored value of an observation. Times are microseconds since 1970."""

    observation: str
    """IRI."""
    section: int
    position: int
    """Position in the section, from 0. With the section, it is the identity of the member."""
    time: int
    """Time of the measurement."""
    published: int
    """Time at which the value was on the disk. It never decreases along the stream."""
    value: Value


class Link(NamedTuple):
    """Link to a section or page. Times are microseconds since 1970."""

    name: NodeName
    begins: int
    """Time at which the first member was published."""
    ends: int | None
    """The same of the last member; None: further members may come."""


@dataclass(frozen=True, slots=True)
class StreamNode:
    """A section with links to its pages, or a page with members."""

    links: Sequence[Link]
    members: Sequence[Member]
    """Those that the client may read, in the order of the stream."""
    complete: bool
    """Whether the node cannot change any more."""


@dataclass(frozen=True, slots=True)
class StreamOutline:
    """The sections of the stream in order, and what clients can rely on."""

    sections: Sequence[Link]
    retention: int
    """Seconds for which members stay in the stream."""
    interval: int
    """Seconds between two batches of new members."""
