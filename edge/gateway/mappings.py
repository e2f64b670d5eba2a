"""What messages mean: mappings in files and in the graph, from messages to readings, from changes to commands."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from edge.adapters import settings as adapters
from edge.adapters.actuation import Actuation
from edge.adapters.files import MappingFiles
from edge.adapters.intake import Intake
from edge.adapters.observations import Observations
from edge.config import Settings
from edge.config.parts import part
from edge.engine import Scheduler
from edge.gateway.errors import StartError
from edge.gateway.watchdog import StandsStill
from edge.mapping.errors import MappingError
from edge.mapping.mapper import Mapper
from edge.mapping.outcome import Declared
from edge.mapping.reading import XSD_STRING, Reading


class Mappings:
    """The mapping files, and what follows them: the intake of messages, and the actuators."""

    def __init__(self, settings: Settings, engine: Scheduler, observations: Observations) -> None:
        """Reads the files. Raises `StartError`."""
        of_mappings = part(adapters.MappingsSettings, settings.mappings, dir=settings.mappings_dir)
        self._observations = observations
        self.intake = Intake(lambda: self.files.mapper, observations, of_mappings)
        self.actuation = Actuation(engine, part(adapters.ActuationSettings, settings.actuation), self.intake.bad_values)
        try:
            self.files = MappingFiles(of_mappings, self._changed)
        except MappingError as error:
            raise StartError(f"mappings.packs: {error}") from error
        self._changed(self.files.mapper)

    def start(self, stack: AsyncExitStack) -> None:
        """Follow the files as they change; `stack` ends it."""
        self.files.start()
        stack.push_async_callback(asyncio.to_thread, self.files.stop)

    async def prove(self) -> None:
        """Raises `StandsStill` where changed files are not seen any more."""
        if not self.files.alive:
            raise StandsStill("its thread has ended")

    async def take(self, topic: str, payload: bytes) -> int:
        """Take in one message that came otherwise than over MQTT. Returns how many readings it held."""
        return await asyncio.to_thread(self._take, topic, payload)

    def faults(self) -> list[dict[str, object]]:
        """Mapping files and actuators that cannot be used."""
        return self.files.faults() + self.actuation.faults()

    def _take(self, topic: str, payload: bytes) -> int:
        arrivals = self.intake.read(topic, payload, datetime.now(UTC))
        if arrivals:
            self.intake.write(arrivals)
        return len(arrivals)

    def _changed(self, mapper: Mapper) -> None:
        self.actuation.follow(mapper.actuators)
        self._observations.declare(_as_reading(declared) for declared in mapper.declared())


def _as_reading(declared: Declared) -> Reading:
    """What a mapping declares, as the reading without a value that `Observations.declare` takes."""
    return Reading(
        declared.observation,
        "",
        XSD_STRING,
        unit=declared.unit,
        location=declared.location,
        property=declared.property,
        sensor=declared.sensor,
        label=declared.label,
        comment=declared.comment,
        topic=declared.topic,
    )
