"""The announcements of all devices, within limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from edge.discovery.announcement import BadAnnouncement
from edge.discovery.mappings import CompiledAnnouncement
from edge.mapping.fault_reasons import because

_Limit = Literal["max_bytes", "max_device_bytes", "max_device_entities", "max_entities"]
"""Settings of the discovery; also the codes of their faults."""


class Limits(Protocol):
    """Settings of discovery."""

    @property
    def prefix(self) -> str:
        """First level of the topics of announcements."""

    @property
    def commands(self) -> bool:
        """Whether values of announced entities can be set."""

    @property
    def max_announcement(self) -> int:
        """Bytes of an announcement."""

    @property
    def max_entities(self) -> int:
        """Entities of all devices."""

    @property
    def max_bytes(self) -> int:
        """Bytes of all announcements."""

    @property
    def max_device_entities(self) -> int:
        """Entities of one device."""

    @property
    def max_device_bytes(self) -> int:
        """Bytes of the announcements of one device."""


@dataclass(frozen=True, slots=True)
class StoredAnnouncement:
    """An announcement and its mappings."""

    text: str
    size: int
    """Bytes, with its topic."""
    compiled: CompiledAnnouncement


class StoredAnnouncements:
    """Announcements by their topics, in the order in which the topics came first."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: dict[str, StoredAnnouncement] = {}
        self.entities = 0
        """Entities of all of them."""
        self._bytes = 0
        self._of_device: Counter[str] = Counter()
        """Entities by the identifier of their device."""
        self._bytes_of_device: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, topic: str) -> bool:
        return topic in self._all

    def get(self, topic: str) -> StoredAnnouncement | None:
        """Return the announcement of a topic."""
        return self._all.get(topic)

    def items(self) -> Iterator[tuple[str, StoredAnnouncement]]:
        """Yield topics and announcements."""
        yield from self._all.items()

    def put(self, topic: str, announcement: StoredAnnouncement) -> None:
        """Add or replace an announcement. Call `check` before."""
        known = self._all.get(topic)
        if known is not None:
            self._count(known, -1)
        self._count(announcement, 1)
        self._all[topic] = announcement

    def remove(self, topic: str) -> bool:
        """Remove an announcement. Returns whether there was one."""
        known = self._all.pop(topic, None)
        if known is not None:
            self._count(known, -1)
        return known is not None

    def check_room(self) -> None:
        """Raise `BadAnnouncement` if one more entity would be too many."""
        self._check(self.entities + 1, self._limits.max_entities, "max_entities")

    def check_device(self, entities: int) -> None:
        """Raise `BadAnnouncement` if a device cannot have so many entities."""
        self._check(entities, self._limits.max_device_entities, "max_device_entities")

    def check(self, topic: str, new: StoredAnnouncement) -> None:
        """Raise `BadAnnouncement` if the limits do not allow this announcement in the place of that of the topic."""
        limits, old = self._limits, self._all.get(topic)
        # The limits apply after the replacement, so the earlier announcement does not count.
        if old is not None:
            self._count(old, -1)
        try:
            for device in new.compiled.devices:
                self.check_device(self._of_device[device] + new.compiled.entities)
                size = self._bytes_of_device[device] + new.size
                self._check(size, limits.max_device_bytes, "max_device_bytes")
            entities = self.entities + new.compiled.entities
            self._check(entities, limits.max_entities, "max_entities")
            self._check(self._bytes + new.size, limits.max_bytes, "max_bytes")
        finally:
            if old is not None:
                self._count(old, 1)

    @staticmethod
    def _check(found: int, limit: int, name: _Limit) -> None:
        if found > limit:
            raise BadAnnouncement(because(name, limit=limit))

    def _count(self, announcement: StoredAnnouncement, sign: int) -> None:
        entities, size = sign * announcement.compiled.entities, sign * announcement.size
        self.entities += entities
        self._bytes += size
        for device in announcement.compiled.devices:
            for counter, amount in ((self._of_device, entities), (self._bytes_of_device, size)):
                counter[device] += amount
                if not counter[device]:
                    del counter[device]
