"""Commands that set metrics: a queue of desired values, and their messages."""

from __future__ import annotations

import threading
import time
from typing import Final
from urllib.parse import unquote

from edge.adapters.actuation_outbox import ActuationQueue
from edge.adapters.settings import ActuationSettings
from edge.mapping.actuators import Command
from edge.sparkplug.births import Definition, Source
from edge.sparkplug.datatypes import BadMetric, command_of
from edge.sparkplug.host import SparkplugHost
from edge.sparkplug.payload import encode

_LEVELS: Final = {"NCMD": 5, "DCMD": 6}
"""Levels of the topics of `Source.command`, by the third level."""


class MetricCommands:
    """Commands for the metrics of all edge nodes. Thread-safe.

    A command for a node or device that is not born is forgotten: its birth brings it again (`Actuation.port_up`).
    """

    def __init__(self, host: SparkplugHost, settings: ActuationSettings) -> None:
        self._host = host
        self._most = settings.max_queued
        self._lock = threading.Lock()
        self._queue = ActuationQueue(settings.rate, settings.max_queued)

    def put(self, command: Command, interval: float) -> str:
        """Queue a command; its topic then pauses for `interval` seconds. Returns the error; empty: accepted."""
        target = _target(command.topic)
        if target is None:
            return f"the topic {command.topic} is not one of a metric that can be set"
        source, name = target
        definition = self._definition(source, name)
        if definition is None:
            return "the edge node does not have this metric any more"
        try:
            command_of(definition.datatype, command.payload.decode())
        except (BadMetric, UnicodeDecodeError) as error:
            return str(error)
        if not self._host.is_born(source):
            return ""
        with self._lock:
            accepted = self._queue.put(command, interval)
        return "" if accepted else f"{self._most} commands wait already (actuation.max_queued)"

    def withdraw(self, actuator: str) -> None:
        """Discard the waiting commands of a removed actuator."""
        with self._lock:
            self._queue.withdraw(actuator)

    def due(self) -> tuple[Command | None, float | None]:
        """Return the next command to send, if one is due, and else the seconds until it is; None: none waits."""
        with self._lock:
            now = time.monotonic()
            command = self._queue.due(now)
            if command is not None:
                self._queue.done(command.topic)  # edge nodes acknowledge none
            return command, self._queue.wait(now)

    def message(self, command: Command, timestamp: int) -> tuple[str, bytes] | None:
        """Return topic and payload of a command; None: its birth will bring it again.

        `timestamp`: milliseconds since 1970. Raises `BadMetric` if a rebirth has changed the datatype.
        """
        target = _target(command.topic)
        if target is None:
            return None
        source, name = target
        definition = self._definition(source, name)
        if definition is None or not self._host.is_born(source):
            return None
        metric = command_of(definition.datatype, command.payload.decode())
        metric.alias = self._host.alias_of(source, name)
        metric.name = name if metric.alias is None else None  # one of both (Sparkplug 3.0, section 6.4.6)
        return source.command_topic, encode(timestamp, metric)

    def _definition(self, source: Source, name: str) -> Definition | None:
        birth = self._host.births.known.get(source)
        return None if birth is None else birth.metrics.get(name)


def _target(topic: str) -> tuple[Source, str] | None:
    """Return the node or device of a command, and the metric; None: the topic is not one of `Source.command`."""
    levels = topic.split("/")
    if len(levels) < 5 or len(levels) != _LEVELS.get(levels[2]):
        return None
    device = levels[4] if levels[2] == "DCMD" else ""
    return Source(levels[1], levels[3], device), unquote(levels[-1])
