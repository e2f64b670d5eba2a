"""Devices in a simulated world that update over CoAP: datagrams are lost, delayed, duplicated and reordered.

A device repeats its request until it is answered. The gateway executes it once: its real endpoint, on this network
instead of a socket, recognizes a repeated request (RFC 7252, section 4.5). This memory ends with the process, so a
request that is sent to two processes may be executed by both.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiocoap import Code, Message
from aiocoap.interfaces import EndpointAddress
from aiocoap.message import Direction
from aiocoap.numbers.types import Type

from edge.engine.scheduling.scheduler import Scheduler
from edge.gates.coap.blocks import Blocks
from edge.gates.coap.site import Site
from edge.gates.coap.transport import Endpoint
from edge.gates.guard import OPEN_GUARD
from edge.gates.loop_dispatcher import LoopDispatcher
from edge.gates.rate_limit import RateLimit
from edge.gates.sessions import Sessions
from edge.gates.settings import SessionLimits
from edge.metrics import Metrics

_PATIENCE = 45_000_000
"""Microseconds in which a device repeats a request (RFC 7252, section 4.8.2: MAX_TRANSMIT_SPAN)."""
_LATENCY = 100_000_000
"""Microseconds after which a datagram is lost (MAX_LATENCY)."""


class Address(EndpointAddress):  # type: ignore[misc]  # the library has no types
    """The address of a device."""

    is_multicast = is_multicast_locally = False
    scheme = "coap"
    hostinfo = hostinfo_local = blockwise_key = uri_base = uri_base_local = ""
    maximum_block_size_exp = 6
    maximum_payload_size = 1024

    def __init__(self, device: Device) -> None:
        self.device = device
        self.hostinfo = self.hostinfo_local = self.blockwise_key = device.name
        self.uri_base = self.uri_base_local = f"coap://{device.name}"

    def as_response_address(self) -> Address:
        return self


@dataclass
class Device:
    """A device with one request at a time. Each request adds one to its count."""

    name: str
    number: int = 0
    """Message identifier and token of the unanswered request, or of the last one."""
    waits: bool = False
    began: int = 0
    """When the request was sent first."""
    sent: bool = False
    """Whether the current request was sent to the current gateway process."""
    least: int = 0
    """Lower bound of the count: confirmed requests."""
    most: int = 0
    """Upper bound of the count: also requests that may have been executed."""

    @property
    def subject(self) -> str:
        return f"urn:device:{self.name}"

    @property
    def request(self) -> bytes:
        subject = f"<{self.subject}>"
        text = (
            f"DELETE {{ {subject} <urn:sum> ?n }} INSERT {{ {subject} <urn:sum> ?m }} "
            f"WHERE {{ OPTIONAL {{ {subject} <urn:sum> ?n }} BIND(COALESCE(?n, 0) + 1 AS ?m) }}"
        )
        message = Message(code=Code.POST, payload=text.encode(), uri_path=("update",))
        message.direction = Direction.OUTGOING
        message.mtype, message.mid, message.token = Type.CON, self.number, self.number.to_bytes(2, "big")
        return bytes(message.encode())

    def hear(self, datagram: bytes, *, sure: bool) -> bytes | None:
        """Process a datagram; return the reply. `sure`: a refusal means that nothing was executed."""
        message = Message.decode(datagram)
        if self.waits and message.code.is_response() and message.token == self.number.to_bytes(2, "big"):
            self.waits = False
            if message.code.is_successful():
                self.least += 1
            elif sure:
                self.most -= 1
        if message.mtype is Type.CON:
            return bytes([0x60, 0]) + message.mid.to_bytes(2, "big")
        return None


class Devices:
    """The devices, which continue over restarts of gateways, the network, and the gateway's endpoint."""

    def __init__(self, chance: random.Random, clock: Any, story: list[str]) -> None:
        """`story` receives a text for each event."""
        self._chance = chance
        self._clock = clock
        self._story = story
        self._addresses = [Address(Device(name)) for name in "pq"]
        self._to_gateway: list[tuple[Address, bytes, int]] = []
        self._to_devices: list[tuple[Address, bytes, int]] = []
        actions: dict[Callable[[], object], int] = {self._ask: 2, self._repeat: 3, self._carry: 20}
        self._actions, self._weights = list(actions), list(actions.values())
        self._endpoint: Endpoint
        self._sure: Callable[[], bool]

    def go_on(self) -> None:
        """Run a few events."""
        for action in self._chance.choices(self._actions, self._weights, k=2):
            if action != self._carry:
                self._story.append(action.__name__.strip("_"))
            action()

    def serve(
        self,
        scheduler: Scheduler,
        metrics: Metrics,
        limits: SessionLimits,
        rate_limit: RateLimit,
        sure: Callable[[], bool],
    ) -> None:
        """Let a gateway serve them. `sure`: whether a refused update was certainly not executed."""
        self._sure = sure
        bridge = LoopDispatcher(asyncio.get_running_loop())
        sessions = Sessions(
            scheduler, bridge, metrics, guard=OPEN_GUARD, gate="coap", limits=limits, rate_limit=rate_limit
        )
        blocks = Blocks(10_000, 100_000, rate_limit.bytes)
        site = Site(sessions, blocks, _no_readings, own_topics="", max_pending=10, protected=False)
        self._endpoint = Endpoint(site)
        manager = self._endpoint._manager
        manager.message_interface = self
        manager.token_manager.token_interface = manager
        self._endpoint._context.request_interfaces.append(manager.token_manager)
        for address in self._addresses:
            address.device.sent, address.device.began = False, self._clock.up

    def end(self) -> None:
        """End the gateway."""
        self._to_gateway.clear()
        self._to_devices.clear()

    def rest(self, go_on: Callable[[], None]) -> None:
        """Stop the faults: every request is answered."""
        for _ in range(3000):
            for address in self._addresses:
                if address.device.waits:
                    self._send(address)
            self._carry()
            go_on()
            if not any(address.device.waits for address in self._addresses):
                self._to_gateway.clear()
                self._to_devices.clear()
                return
        raise AssertionError("devices wait for ever")

    def check(self, counts: dict[str, list[int]]) -> None:
        """Check the counts. `counts`: the content of the graph, by subject."""
        for address in self._addresses:
            device = address.device
            (count,) = counts.get(device.subject, [0])
            assert device.least <= count <= device.most, f"{count} for {device}"

    # Events

    def _ask(self) -> None:
        address = self._chance.choice(self._addresses)
        device = address.device
        if not device.waits:
            device.number += 1
            device.waits, device.sent, device.began = True, False, self._clock.up
            self._send(address)

    def _repeat(self) -> None:
        for address in self._addresses:
            if address.device.waits:
                self._send(address)

    def _send(self, address: Address) -> None:
        device = address.device
        if self._clock.up > device.began + _PATIENCE:
            device.waits = False
            return
        if not device.sent:
            device.sent = True
            device.most += 1
        self._to_gateway.append((address, device.request, self._clock.up))

    def _carry(self) -> None:
        """Deliver one random datagram in each direction: it arrives, is lost, or arrives and is duplicated later."""
        if self._to_gateway:
            address, datagram = self._take(self._to_gateway)
            if datagram:
                self._endpoint._manager.dispatch_message(Message.decode(datagram, address))
        if self._to_devices:
            address, datagram = self._take(self._to_devices)
            said = address.device.hear(datagram, sure=self._sure()) if datagram else None
            if said is not None:
                self._to_gateway.append((address, said, self._clock.up))

    def _take(self, datagrams: list[tuple[Address, bytes, int]]) -> tuple[Address, bytes]:
        position = self._chance.randrange(len(datagrams))
        fate = self._chance.random()
        address, datagram, since = datagrams[position] if fate < 0.2 else datagrams.pop(position)
        arrives = fate < 0.8 and self._clock.up <= since + _LATENCY
        return address, datagram if arrives else b""

    # Interface of the library's transport

    def send(self, message: Message) -> None:
        self._to_devices.append((message.remote, bytes(message.encode()), self._clock.up))

    async def shutdown(self) -> None:
        pass


async def _no_readings(topic: str, payload: bytes) -> Any:
    raise AssertionError("no device sends readings")
