"""Values of the keys of a reading, which may be inherited from its mapping or from [defaults]."""

from __future__ import annotations

from dataclasses import dataclass

from edge.mapping.model import MappingSpec, ReadingKeys, ReadingSpec


@dataclass(frozen=True, slots=True)
class InheritedKeys:
    """Where a reading gets its keys from. A mapping with a single reading is this reading itself."""

    reading: ReadingSpec
    mapping: MappingSpec
    defaults: ReadingKeys

    def get(self, key: str) -> object:
        """Return the value of a key: that of the reading, else of its mapping, else of [defaults] of the file."""
        for source in (self.reading, self.mapping, self.defaults):
            value: object = getattr(source, key)
            if value is not None:
                return value
        return None
