"""Devices that announce themselves to a mapper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from edge.adapters.settings import DiscoverySettings
from edge.discovery.registry import HomeAssistantDiscovery
from edge.mapping.mapper import Mapper
from edge.mapping.pack import MappingPack
from edge.mapping.reading import XSD_DECIMAL, XSD_STRING, Reading
from edge.mapping.settings import MappingLimits
from edge.mapping.solution import SolutionTerm

DISCOVERED = "urn:sepa-edge:discovered:"


class Announcing:
    """A mapper with the mappings of announcements, and of other packs."""

    def __init__(self, file: Path, *packs: MappingPack, clock=lambda: 0.0, **settings: object) -> None:
        self.packs = packs
        self.rebuilt = 0
        self.mapper = Mapper(packs)
        self.discovery = HomeAssistantDiscovery(
            SimpleNamespace(**{**DiscoverySettings().model_dump(), **settings}),
            MappingLimits(),
            file,
            announce=self._announce,
            declare=lambda: None,
            own_topics=("sepa/",),
            sends_on=lambda topic: self.mapper.sends_on(topic),
            clock=clock,
        )

    def _announce(self, packs: Sequence[MappingPack]) -> None:
        self.rebuilt += 1
        self.mapper = Mapper([*self.packs, *packs])

    def announce(self, where: str, config: object, *, apply: bool = True) -> bool:
        """Announce at a topic below the prefix. Returns whether it was taken as an announcement."""
        payload = config if isinstance(config, bytes) else b"" if config is None else json.dumps(config).encode()
        taken = self.discovery.take(f"homeassistant/{where}", payload)
        if apply:
            self.discovery.apply()
        return taken

    def readings(self, topic: str, payload: object) -> list[Reading]:
        """Return the readings of a message without problems."""
        mapped = self.mapper.map(topic, payload.encode() if isinstance(payload, str) else json.dumps(payload).encode())
        assert mapped.problems == ()
        return list(mapped.readings)

    def values(self, topic: str, payload: object) -> dict[str, str]:
        """Return the values of a message by the local name of their observations."""
        return {each.observation.removeprefix(DISCOVERED): each.value for each in self.readings(topic, payload)}

    def units(self, topic: str, payload: object) -> dict[str, str | None]:
        """Return the names of units by the local name of the observations."""
        return {
            each.observation.removeprefix(DISCOVERED): each.unit and each.unit.rpartition("#")[2].rpartition("/")[2]
            for each in self.readings(topic, payload)
        }

    def command(self, topic: str, observation: str, value: str) -> tuple[str, bytes]:
        """Return the message that sets a value."""
        found = self.mapper.setter(topic, DISCOVERED + observation)
        assert found is not None
        number = value.replace(".", "").isdigit()
        return found[0].render(found[1], SolutionTerm(value, XSD_DECIMAL if number else XSD_STRING))

    def reasons(self) -> list[str]:
        """Return the listed faults."""
        return [str(each["reason"]) for each in self.discovery.faults()]
