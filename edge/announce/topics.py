"""Topics of announcements, states and commands, and identifiers in them that no name of a client can break."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

COMPONENTS: Final = ("binary_sensor", "light", "number", "select", "sensor", "switch", "text")
"""Components of Home Assistant that the gateway announces."""
ONLINE: Final = b"online"
OFFLINE: Final = b"offline"
_BEGINNING: Final = re.compile(r"[^+#$\x00-\x1f/][^+#\x00-\x1f]*(?<!/)")
_UNSAFE: Final = re.compile("[^A-Za-z0-9_-]+")
_DIGITS: Final = 20
_LONGEST: Final = 40
"""Characters of the readable part of an identifier."""


def is_beginning(text: str) -> bool:
    """Whether topics can begin with this text and a slash: it has no wildcards, and is UTF-8."""
    return _BEGINNING.fullmatch(text) is not None and text.encode("utf-8", "ignore").decode() == text


def identifier(text: str, readable: str = "") -> str:
    """Return an identifier for a topic: a readable part, and a digest, which differs for each text."""
    name = _UNSAFE.sub("_", readable)[:_LONGEST].strip("_")
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name}_{digest}" if name else digest


def node_of(client_id: str) -> str:
    """Return the level of the gateway in topics: its client identifier, if that is valid there."""
    return client_id if client_id and _UNSAFE.search(client_id) is None else identifier(client_id, client_id)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gateway announces."""

    prefix: str
    """First level of the topics of announcements."""
    root: str
    """Beginning of the topics of states."""
    node: str
    """Identifier of the gateway."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for a place that would have topics with wildcards."""
        if not (is_beginning(self.prefix) and is_beginning(self.root)):
            raise ValueError("a place must be a topic without wildcards, and without a slash at its end")
        if not self.node or _UNSAFE.search(self.node):
            raise ValueError(f"the identifier of a gateway has letters, digits, _ and -, unlike {self.node!r:.100}")

    @property
    def base(self) -> str:
        """Beginning of all topics of states and commands, without a slash."""
        return f"{self.root}/{self.node}"

    @property
    def status(self) -> str:
        """Availability of the gateway; retained, and its will."""
        return f"{self.base}/status"

    @property
    def sync(self) -> str:
        """A message to itself: it comes after the retained messages of this connection."""
        return f"{self.base}/sync"

    @property
    def commands(self) -> str:
        """Filter of all commands."""
        return f"{self.base}/+/set"

    @property
    def online(self) -> str:
        """Home Assistant reports there that it has started."""
        return f"{self.prefix}/status"

    @property
    def announcements(self) -> tuple[str, ...]:
        """Filters of all announcements, also those of others."""
        return f"{self.prefix}/+/+/config", f"{self.prefix}/+/+/+/config"

    @property
    def own(self) -> tuple[str, ...]:
        """Beginnings of all topics on which the gateway publishes."""
        return (f"{self.base}/", *(f"{self.prefix}/{component}/{self.node}/" for component in COMPONENTS))

    @property
    def retained(self) -> tuple[str, ...]:
        """Filters of its retained messages."""
        return f"{self.prefix}/+/{self.node}/+/config", f"{self.base}/+/state", self.status

    def config(self, component: str, object_id: str) -> str:
        """Topic of an announcement."""
        return f"{self.prefix}/{component}/{self.node}/{object_id}/config"

    def state(self, object_id: str) -> str:
        """Topic of a state; retained."""
        return f"{self.base}/{object_id}/state"

    def command(self, object_id: str) -> str:
        """Topic of a command."""
        return f"{self.base}/{object_id}/set"

    def announced(self, topic: str) -> tuple[str, str] | None:
        """Return component and object of an own announcement; None: the topic is another."""
        found = re.fullmatch(rf"{re.escape(self.prefix)}/(\w+)/{re.escape(self.node)}/([A-Za-z0-9_-]+)/config", topic)
        return None if found is None else (found[1], found[2])
