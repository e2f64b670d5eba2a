"""Mappings in files and in the graph: convert messages to readings, and changes to commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from edge.adapters import actuation
from edge.adapters.actuation import Actuation
from edge.adapters.desired_values import DesiredValues
from edge.adapters.files import MappingFiles
from edge.adapters.ingest import Ingest
from edge.adapters.observations import Observations
from edge.adapters.settings import MqttSettings
from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.errors import StartError
from edge.gateway.mapping_documents import MappingDocuments
from edge.gateway.watchdog import Component, Stalled
from edge.mapping.errors import MappingError
from edge.mapping.mapper import Mapper
from edge.mapping.outcome import Declared
from edge.mapping.reading import XSD_STRING, Reading
from edge.metrics import Metrics

if TYPE_CHECKING:
    from edge.discovery.registry import HomeAssistantDiscovery


_ANNOUNCEMENTS: Final = "home-assistant.json"
"""File in the data directory with the announcements of devices."""


Faults = Callable[[], list[dict[str, object]]]
"""Returns what cannot be used: `file`, `reason`, `previous_version_applies`."""


class Mappings:
    """The mapping files and their users: the handling of messages, actuators, serial ports and Modbus devices."""

    def __init__(self, settings: Settings, engine: Scheduler, observations: Observations) -> None:
        """Read the files. Raises `StartError`."""
        of_mappings = settings.mappings.model_copy(update={"dir": settings.mappings_dir})
        self._observations = observations
        self._has_messages = settings.mqtt.enabled or settings.coap.enabled
        self._port_faults: list[Faults] = []
        self._port_followers: list[Callable[[Mapper], None]] = []
        self._sets_values = settings.actuation.desired_values
        self._desired = DesiredValues()
        self.ingest = Ingest(lambda: self.files.mapper, observations, of_mappings)
        self.actuation = Actuation(engine, settings.actuation, self.ingest.bad_values)
        try:
            self.files = MappingFiles(of_mappings, self._changed)
        except MappingError as error:
            raise StartError(f"mappings.packs: {error}") from error
        self.documents = MappingDocuments(self.files, self.ingest.watched, settings.mappings_dir, settings.data_dir)
        self.discovery = self._discovery(settings)
        self._changed(self.files.mapper)

    def _discovery(self, settings: Settings) -> HomeAssistantDiscovery | None:
        if not (settings.discovery.home_assistant and settings.mqtt.enabled):
            return None
        # Imported here: without discovery, the gateway saves the memory and start-up time.
        from edge.discovery.registry import HomeAssistantDiscovery

        return HomeAssistantDiscovery(
            settings.discovery,
            self.files.limits,
            settings.data_dir / _ANNOUNCEMENTS,
            announce=self.files.announce,
            declare=self.files.declare,
            sends_on=lambda topic: self.files.mapper.sends_on(topic),
            own_topics=(f"{settings.mqtt_gate.root}/",) if settings.runs_mqtt_gate else (),
        )

    def serve(self, ports: actuation.Ports, faults: Faults, follow: Callable[[Mapper], None] = lambda _: None) -> None:
        """Send commands to ports. `follow` is called with each new state of the files. Call before `start`."""
        self._port_faults.append(faults)
        self._port_followers.append(follow)
        self.actuation.send_by(ports)
        follow(self.files.mapper)

    def start_actuation(
        self, stack: AsyncExitStack, connection: MqttSettings | None, metrics: Metrics, timeout: float
    ) -> Component:
        """Start to send commands, also to the broker of `connection`; `stack` stops it within `timeout` seconds."""
        actuation, watch = self.actuation, metrics.watch
        watch("actuation_connected", "Whether the broker takes messages of actuators.", lambda: actuation.connected)
        watch("actuation_sent", "Messages of actuators that the broker took.", lambda: actuation.sent)
        watch("actuation_queued", "Messages of actuators that wait.", lambda: actuation.queued)
        watch("actuation_conflated", "Messages that a newer one replaced.", lambda: actuation.conflated)
        watch("actuation_failed", "Messages that could not be made or sent.", lambda: actuation.failed)
        actuation.start(connection)
        stack.push_async_callback(asyncio.to_thread, actuation.stop, timeout)
        return Component("actuation", self._prove_actuation, ends=True)

    async def _prove_actuation(self) -> None:
        if not self.actuation.alive:
            raise Stalled("a thread of it has ended")

    def start(self, stack: AsyncExitStack) -> None:
        """Follow changes of the files; `stack` stops it."""
        self.files.start()
        stack.push_async_callback(asyncio.to_thread, self.files.stop)
        if self.discovery is not None:
            self.discovery.start()
            stack.push_async_callback(asyncio.to_thread, self.discovery.stop)

    async def prove(self) -> None:
        """Raises `Stalled` if changes of the files are no longer detected."""
        if self.files.watches and not self.files.alive:
            raise Stalled("its thread has ended")
        if self.discovery is not None and not self.discovery.alive:
            raise Stalled("the thread of announcements has ended")

    async def take(self, topic: str, payload: bytes) -> int:
        """Process a message that did not arrive over MQTT. Returns the number of its readings."""
        return await asyncio.to_thread(self._take, topic, payload)

    def settable(self, observations: Sequence[str]) -> Mapping[str, Mapping[str, object]]:
        """Return how the values of observations can be set, by IRI; see `Setter.describe`. Others are left out."""
        mapper, found = self.files.mapper, {}
        for observation in observations if self._sets_values else ():
            for topic in self._observations.topics_of(observation):
                if (setter := mapper.setter(topic, observation)) is not None:
                    found[observation] = setter[0].describe()
        return found

    def faults(self) -> list[dict[str, object]]:
        """Mapping files, announcements, actuators, serial ports and Modbus devices that cannot be used."""
        ports = [fault for faults in self._port_faults for fault in faults()]
        announced = [] if self.discovery is None else self.discovery.faults()
        return self.files.faults() + announced + self.actuation.faults() + ports

    def _take(self, topic: str, payload: bytes) -> int:
        arrivals = self.ingest.read(topic, payload, datetime.now(UTC))
        if arrivals:
            self.ingest.write(arrivals)
        return len(arrivals)

    def _changed(self, mapper: Mapper) -> None:
        for follow in self._port_followers:
            follow(mapper)  # before the actuators, whose commands may go to these ports
        desired = [self._desired.follow(mapper)] if self._sets_values else []
        self.actuation.follow([*mapper.actuators, *desired])
        if (
            self._has_messages or mapper.ports or mapper.devices
        ):  # without a source of messages, declared observations would never get a value
            self._observations.declare(_as_reading(declared) for declared in mapper.declared())


def _as_reading(declared: Declared) -> Reading:
    """Convert a declaration to the reading without a value that `Observations.declare` expects."""
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
        sensor_label=declared.sensor_label,
    )
