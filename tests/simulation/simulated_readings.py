"""Readings in a simulated world: devices, a broker, a network, and the gateway's real MQTT adapter.

Messages on a mapped topic have one reading or several, and each is stored for the history. A message with more readings
than the adapter writes in one transaction is committed in parts. Other messages have no mapping or an invalid payload:
they have no effect, and are acknowledged as well. The readings and the other messages are numbered in one sequence.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from unittest.mock import patch

from simulated_broker import Broker, Connection, Message
from simulated_threads import SimulatedEvent, Threads, results_wait_on

from edge import backoff
from edge.adapters import connection_loop, messages, mqtt_adapter, writer
from edge.adapters.ingest import Ingest
from edge.adapters.mqtt_adapter import MqttAdapter
from edge.adapters.observations import Observations
from edge.adapters.settings import MqttSettings
from edge.compat.paho import AcknowledgingClient
from edge.engine.scheduling.scheduler import Scheduler
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.outbox.sampling import Sampler

SERIES = "urn:room:"
_MAPPING = f"""
[[mapping]]
topic = "room/{{room}}/temperature"
observation = "{SERIES}{{room}}"
store = "all"

[[mapping]]
topic = "room/{{room}}/temperatures"
path = "[*]"
observation = "{SERIES}{{room}}"
store = "all"
"""
_MOST = 16
"""Maximum readings of a message: the packets of the simulated broker are short."""
_LETTERS = str.maketrans("0123456789", "abcdefghij")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


class Readings:
    """Devices, broker and network, which continue over restarts of gateways, and the gateway's adapter."""

    def __init__(self, chance: random.Random, clock: Any, story: list[str]) -> None:
        """`story` receives a text for each event."""
        self._story = story
        self._chance = chance
        self._clock = clock
        self._broker = Broker(chance)
        self._settings = MqttSettings(
            broker="mqtt://broker",
            client_id="sepa-edge",
            version=chance.choice(("3.1.1", "5")),
            max_batch=chance.choice((1, 3, 100)),
        )
        self._connections: list[Connection] = []
        self._names = 0
        self.published = 0
        """Readings and messages without one that were published."""
        self._messages: dict[int, range] = {}
        """Maps the number of each message with readings to the numbers of its readings."""
        actions: dict[Callable[[], object], int] = {
            self._publish: 12,
            self._carry: 30,
            self._run: 50,
            self._cut: 2,
            self._save: 2,
            self._end_broker: 2,
            self._start_broker: 6,
        }
        self._actions, self._weights = list(actions), list(actions.values())
        self.threads = Threads(clock)
        self.adapter: MqttAdapter | None = None

    def go_on(self) -> None:
        """Run a few events."""
        for action in self._chance.choices(self._actions, self._weights, k=5):
            if action not in (self._carry, self._run):
                self._story.append(action.__name__.strip("_"))
            action()

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Let the adapter use simulated threads, clock and randomness."""
        with (
            results_wait_on(lambda: self.threads),
            patch.object(mqtt_adapter, "threading", _Threading(self)),
            patch.object(connection_loop, "threading", _Threading(self)),
            patch.object(messages, "threading", _Threading(self)),
            patch.object(backoff, "random", self._chance),
            patch.object(mqtt_adapter, "datetime", self),
            patch.object(mqtt_adapter, "time", self),
            patch.object(writer, "time", self),
            patch.object(connection_loop, "time", self),
            patch.object(connection_loop, "WakeUp", lambda: _WakeUp(self.threads)),
        ):
            yield

    def now(self, zone: tzinfo) -> datetime:
        """Replace `datetime.now`."""
        return (_BEGINNING + timedelta(microseconds=self._clock.at)).astimezone(zone)

    def monotonic(self) -> float:
        """Replace `time.monotonic`."""
        return float(self._clock.up) / 1_000_000

    def begin(self, scheduler: Scheduler) -> None:
        """Start a gateway."""
        self.threads = Threads(self._clock)
        self.adapter = None

        def main() -> None:
            observations = Observations(scheduler, new_name=self._name, history=Sampler())
            observations.start(1e9)
            ingest = Ingest(_mapper, observations)
            self.adapter = adapter = MqttAdapter(self._settings, ingest, scheduler.receipts().result())
            client = adapter._client
            client._create_socket = self._connect  # type: ignore[method-assign, assignment]
            client.wait = functools.partial(self._wait, client)  # type: ignore[method-assign]
            adapter.start()

        self.threads.Thread(target=main).start()

    def end(self) -> None:
        """End the gateway."""
        self.threads.end()
        for connection in self._connections:
            connection.close()

    def rest(self, turn: Callable[[], None]) -> None:
        """Stop the faults: all waiting messages are delivered."""
        self._start_broker()
        for _ in range(3000):
            if not (self._run() | self._carry()):
                adapter = self.adapter
                # A broker that lost its session waits for nothing, but the adapter may still write a message of it.
                if adapter is not None and adapter.subscribed and not self._broker.waiting and adapter._writer.idle:
                    return
                self._clock.advance(1_000_000)
            turn()
        raise AssertionError("readings wait for ever")

    def check(self, stored: list[int], *, at_rest: bool) -> None:
        """Check the readings. `stored`: the content of the history, in order."""
        assert all(one < next_ for one, next_ in itertools.pairwise(stored)), "not once and in order"
        there = set(stored)
        acknowledged = self._readings_of(self._broker.acknowledged)
        assert acknowledged <= there, f"readings that were acknowledged are gone: {acknowledged - there}"
        if at_rest:
            missing = self._readings_of(self._messages) - there - self._readings_of(self._broker.lost)
            assert not missing, f"readings are missing: {missing}"
            assert self.adapter is not None
            assert not self.adapter._pending, "the adapter remembers messages that are carried out"

    # Events

    def _readings_of(self, messages: Iterable[int]) -> set[int]:
        """Return the numbers of the readings of messages."""
        return {number for message in messages for number in self._messages.get(message, ())}

    def _publish(self) -> None:
        if self._broker.running and self._broker.subscribed:
            first = self.published
            kind = self._chance.random()
            name, payload, numbers = "temperature", str(first), range(first, first + 1)
            if kind < 0.1:
                name = "humidity"
            elif kind < 0.2:
                payload = payload.translate(_LETTERS)
            else:
                if kind < 0.7:
                    numbers = range(first, first + self._chance.randint(2, _MOST))
                    name, payload = "temperatures", f"[{','.join(map(str, numbers))}]"
                self._messages[first] = numbers
            self.published = numbers.stop
            topic, qos = f"room/{self._chance.choice('abc')}/{name}", self._chance.choice((1, 2))
            self._broker.publish(Message(first, topic.encode(), payload.encode(), qos))

    def _carry(self) -> bool:
        """Deliver bytes. Return False if none are in flight."""
        moved = False
        for connection in list(self._connections):
            moved = moved or bool(connection.to_broker or connection.to_client)
            if data := connection.carry(self._chance):
                self._broker.receive(connection, data)
            if connection.cut or connection.ended:
                self._notice(connection)
        return moved

    def _notice(self, connection: Connection) -> None:
        """The ends of a lost connection notice it."""
        if connection.cut and self._chance.random() < 0.3:
            self._broker.lost_connection(connection)
        if connection.cut and self._chance.random() < 0.3:
            connection.reset = True
        if connection.reset:
            self._broker.lost_connection(connection)
            self._connections.remove(connection)

    def _run(self) -> bool:
        """Run a thread of the gateway. Return False if all are waiting."""
        runnable = self.threads.runnable()
        if runnable:
            self.threads.run(self._chance.choice(runnable))
        return bool(runnable)

    def _cut(self) -> None:
        for connection in self._connections:
            connection.lose()

    def _save(self) -> None:
        self._broker.save()

    def _end_broker(self) -> None:
        fate = self._chance.random()
        if fate < 0.3:
            self._broker.stop()
        elif fate < 0.9:
            self._broker.kill()
        else:
            self._broker.forget()

    def _start_broker(self) -> None:
        self._broker.start()

    # Replacements for sockets

    def _connect(self) -> Connection:
        connection = self._broker.connect()
        self._connections.append(connection)
        return connection

    def _wait(self, client: AcknowledgingClient, timeout: float) -> bool:
        """Wait for the socket or a wake-up."""
        connection: Any = client._sock
        wake_up: Any = client._wake_up
        self.threads.wait(
            lambda: (client.reading and connection.readable) or client.want_write() or wake_up.is_set(), timeout
        )
        wake_up.clear()
        return bool(client.reading and connection.readable)

    def _name(self) -> str:
        self._names += 1
        return f"quantity-{self._names}"


class _WakeUp(SimulatedEvent):
    """`WakeUp` of the connection's thread."""

    def wait(self, timeout: float | None = None) -> bool:
        woken = super().wait(timeout)
        self.clear()
        return woken


class _Threading:
    """`threading` for the modules of the adapter: that of the current process."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._readings.threads, name)


@functools.cache
def _mapper() -> Mapper:
    return Mapper([load_pack(_MAPPING, "simulated")])
