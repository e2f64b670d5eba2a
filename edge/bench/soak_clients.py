"""Clients of a soak run: steady and slow ones, and clients that disconnect, lose their connection or resume."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

import aiocoap
import httpx
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from edge.bench.experiment import ExperimentError

MAPPING: Final = """
[[mapping]]
topic = "soak/{sensor}"
observation = "http://example.org/soak/{sensor}"
label = "{sensor}"
unit = "unit:DegreeCelsius"
"""
_READINGS: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?observation ?value { ?observation sosa:hasResult ?quantity . ?quantity qudt:numericValue ?value
FILTER(STRSTARTS(STR(?observation), "http://example.org/soak/s")) }"""
_SENSORS: Final = 100
_RATE: Final = 25
"""Readings a second."""
_PATIENCE: Final = 30.0
"""Time limit for expected messages (s)."""
_SLOW: Final = 10.0
"""Seconds for which a slow client does not read."""
_ROOT: Final = "sepa/gateway"

Coap = Any
"""Messages and contexts of aiocoap, which has no type annotations."""


class Clients:
    """All clients of one gateway. Unexpected behaviour of the gateway raises `ExperimentError`."""

    def __init__(self, endpoints: dict[str, str]) -> None:
        self._at = endpoints
        self._sent: dict[str, float] = {}
        self._notified: dict[str, str] = {}
        self._over = asyncio.Event()
        self.latencies: list[float] = []
        """Milliseconds from the publication of a reading to its notification. The sampler empties the list."""
        self.merged = 0
        """Number of notifications that the gateway merged because a client was slow."""
        self.resumed = 0
        """Number of suspended subscriptions that a client resumed."""

    async def run(self, seconds: float) -> None:
        """Run all clients for `seconds`, then compare the notified readings with the graph.

        Raises `ExperimentError` if they differ, or if a client fails.
        """
        every: list[tuple[float, Callable[[int], Awaitable[None]]]] = [
            (1.0, self._visit),
            (1.0, self._schedule),
            (0.5, self._ask),
            (2.0, self._talk_mqtt),
            (2.0, self._talk_coap),
            (5.0, self._read_slowly),
        ]
        try:
            async with (
                asyncio.TaskGroup() as group,
                connect(self._at["ws"], proxy=None, max_size=None) as meter,
            ):
                await _subscribe(meter, _READINGS)
                listening = group.create_task(self._listen(meter))
                tasks = [group.create_task(self._repeat(period, act)) for period, act in every]
                tasks.append(group.create_task(self._measure()))
                await asyncio.sleep(seconds)
                self._over.set()
                await asyncio.gather(*tasks)
                await self._compare()
                listening.cancel()
        except ExceptionGroup as failures:
            first = failures.exceptions[0]
            raise ExperimentError(f"a client of the soak run failed: {first!r}") from first

    async def _repeat(self, period: float, act: Callable[[int], Awaitable[None]]) -> None:
        for number in count():
            if await self._is_over(period):
                return
            await act(number)

    async def _is_over(self, seconds: float) -> bool:
        """Wait up to `seconds`. Return whether the run has ended."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
        return self._over.is_set()

    async def _measure(self) -> None:
        """Publish readings of the sensors at a steady rate. `_listen` measures their latency."""
        address = urlsplit(self._at["mqtt"])
        sensor = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="soak")
        await asyncio.to_thread(sensor.connect, address.hostname or "", address.port or 0)
        sensor.loop_start()
        try:
            for number in count():
                if await self._is_over(1 / _RATE):
                    return
                self._sent[str(number)] = time.perf_counter()
                sensor.publish(f"soak/s{number % _SENSORS}", str(number), qos=1)
        finally:
            await asyncio.to_thread(_leave, sensor)

    async def _listen(self, connection: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for text in connection:
                now = time.perf_counter()
                notification = json.loads(text)["notification"]
                # A row that replaces another may arrive in the same notification, so remove first.
                for row in _rows(notification, "removedResults"):
                    if self._notified.get(row["observation"]) == row["value"]:
                        del self._notified[row["observation"]]
                for row in _rows(notification, "addedResults"):
                    self._notified[row["observation"]] = row["value"]
                    if sent := self._sent.pop(row["value"], None):
                        self.latencies.append(1000 * (now - sent))

    async def _compare(self) -> None:
        """Wait until notifications and a query give the same readings. Raises `ExperimentError` after a timeout."""
        deadline = time.monotonic() + _PATIENCE
        while self._notified != (asked := await self._asked()):
            if time.monotonic() > deadline:
                raise ExperimentError(f"{len(self._notified)} readings were notified and {len(asked)} are in the graph")
            await asyncio.sleep(0.1)

    async def _asked(self) -> dict[str, str]:
        # Proxies of the environment do not apply: the gateway is on this machine.
        async with httpx.AsyncClient(trust_env=False, timeout=_PATIENCE) as http:
            answer = await http.post(f"{self._at['http']}/query", data={"query": _READINGS})
        return {row["observation"]["value"]: row["value"]["value"] for row in answer.json()["results"]["bindings"]}

    async def _ask(self, number: int) -> None:
        """Send an update and a query over a new connection."""
        async with httpx.AsyncClient(base_url=self._at["http"], trust_env=False, timeout=_PATIENCE) as http:
            lamp = f"<http://example.org/lamp{number % 50}>"
            update = f"DELETE {{ {lamp} <urn:is> ?old }} INSERT {{ {lamp} <urn:is> {number} }} "
            update += f"WHERE {{ OPTIONAL {{ {lamp} <urn:is> ?old }} }}"
            for path, data in (("/update", {"update": update}), ("/query", {"query": "SELECT * { ?s <urn:is> ?o }"})):
                answer = await http.post(path, data=data)
                if answer.status_code != httpx.codes.OK:
                    raise ExperimentError(f"{path} was refused: {answer.text}")

    async def _schedule(self, number: int) -> None:
        """Schedule delayed updates: most run, some are rescheduled, some are cancelled."""
        async with connect(self._at["ws"], proxy=None) as connection:
            name = f"soak{number % 20}"
            late = f"<http://example.org/late{number % 20}>"
            text = f"DELETE WHERE {{ {late} <urn:is> ?n }} ; INSERT DATA {{ {late} <urn:is> {number} }}"
            await _answered(
                connection, {"update": {"sparql": text, "delay": f"PT{1 + number % 3}S", "id": name}}, "scheduled"
            )
            if number % 5 == 0:
                await _answered(connection, {"cancel": {"id": name}}, "cancelled")

    async def _visit(self, number: int) -> None:
        """Subscribe, receive the first result, and close the connection, lose it, or lose it and resume."""
        text = f"SELECT ?o {{ <http://example.org/lamp{number % 50}> <urn:is> ?o }} # {number % 7}"
        async with connect(self._at["ws"], proxy=None) as connection:
            first = await _subscribe(connection, text, resume=number % 3 == 0)
            if number % 3:
                # A third leaves with the closing handshake, a third without it, and a third comes back.
                if number % 3 == 1:
                    connection.transport.abort()
                return
            # Without the closing handshake, the gateway suspends the subscription.
            connection.transport.abort()
        async with connect(self._at["ws"], proxy=None) as connection:
            back = await _subscribe(connection, text, spuid=first["spuid"], sequence=first["sequence"])
            self.resumed += back["spuid"] == first["spuid"]

    async def _read_slowly(self, number: int) -> None:
        """Subscribe to the whole graph, do not read for a while, then check the numbers of merged notifications."""
        # A small receive buffer lets notifications accumulate in the gateway instead of in the kernel.
        narrow = socket.socket()
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        address = urlsplit(self._at["ws"])
        narrow.connect((address.hostname, address.port))
        async with connect(self._at["ws"], sock=narrow, proxy=None, max_size=None, max_queue=1) as client:
            first = await _subscribe(client, "SELECT * { ?s ?p ?o }")
            await self._is_over(_SLOW)
            sequence = first["sequence"]
            with suppress(TimeoutError):
                while True:
                    first = json.loads(await asyncio.wait_for(client.recv(), 0.2))["notification"]
                    if first["sequence"] != sequence + first.get("merged", 1):
                        raise ExperimentError(f"sequence {first['sequence']} came after {sequence}")
                    sequence = first["sequence"]
                    self.merged += first.get("merged", 1) > 1
                    if self._over.is_set():
                        return

    async def _talk_mqtt(self, number: int) -> None:
        await asyncio.to_thread(self._talk_mqtt_at_once, number)

    def _talk_mqtt_at_once(self, number: int) -> None:
        """Subscribe over MQTT and leave, by the last will after a lost connection or by the status message."""
        address = urlsplit(self._at["mqtt"])
        name = f"client{number % 20}"
        came: queue.Queue[bytes | bytearray] = queue.Queue()
        client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name)
        client.will_set(f"{_ROOT}/status/{name}", "offline", qos=1)
        client.on_connect = lambda client, *_: client.subscribe(f"{_ROOT}/response/{name}", 1)
        request = {"subscribe": {"sparql": "SELECT ?o { <http://example.org/lamp1> <urn:is> ?o }"}}
        client.on_subscribe = lambda client, *_: client.publish(f"{_ROOT}/request/{name}", json.dumps(request), 1)
        client.on_message = lambda _, __, message: came.put(message.payload)
        client.connect(address.hostname or "", address.port or 0)
        client.loop_start()
        try:
            if b"notification" not in (answer := came.get(timeout=_PATIENCE)):
                raise ExperimentError(f"a subscription over MQTT was refused: {answer!r}")
            if number % 2:
                client.publish(f"{_ROOT}/status/{name}", "offline", 1).wait_for_publish(_PATIENCE)
            else:
                _vanish(client)
        finally:
            _leave(client)

    async def _talk_coap(self, number: int) -> None:
        """Send a reading and observe a subscription over CoAP, like a device that ends the subscription or vanishes."""
        context = await aiocoap.Context.create_client_context(transports=["udp6"])
        try:
            await self._coap(context, aiocoap.POST, f"/reading/soak/c{number % 10}", str(number).encode())
            created = await self._coap(context, aiocoap.POST, "/subscribe", b"SELECT * { ?s <urn:is> ?o }")
            path = "/" + "/".join(created.opt.location_path)
            await self._coap(context, aiocoap.GET, path, observe=0)
            if number % 2:
                await self._coap(context, aiocoap.DELETE, path)
        finally:
            await context.shutdown()

    async def _coap(
        self,
        context: Coap,
        code: aiocoap.Code,
        path: str,
        payload: bytes = b"",
        **options: int,
    ) -> Coap:
        message = aiocoap.Message(code=code, uri=self._at["coap"] + path, payload=payload, **options)
        answer = await asyncio.wait_for(context.request(message).response, _PATIENCE)
        if not answer.code.is_successful():
            raise ExperimentError(f"{path} over CoAP was refused: {answer.payload.decode(errors='replace')}")
        return answer


def _leave(client: mqtt.Client) -> None:
    client.disconnect()
    client.loop_stop()


def _vanish(client: mqtt.Client) -> None:
    # Close the socket without DISCONNECT, so that the broker publishes the last will.
    connection = client.socket()
    if connection is not None:
        connection.close()


def _rows(notification: dict[str, Any], which: str) -> list[dict[str, str]]:
    rows = notification[which]["results"]["bindings"]
    return [{name: term["value"] for name, term in row.items()} for row in rows]


async def _answered(connection: ClientConnection, message: dict[str, Any], answer: str) -> dict[str, Any]:
    await connection.send(json.dumps(message))
    found: dict[str, Any] = json.loads(await asyncio.wait_for(connection.recv(), _PATIENCE))
    if answer not in found:
        raise ExperimentError(f"the gateway refused {next(iter(message))}: {found}")
    return found


async def _subscribe(connection: ClientConnection, sparql: str, **members: object) -> dict[str, Any]:
    notification: dict[str, Any] = (
        await _answered(connection, {"subscribe": {"sparql": sparql, **members}}, "notification")
    )["notification"]
    return notification
