"""A simulated MQTT broker with one persistent session, and its TCP connection.

The broker implements MQTT 3.1.1 and 5 packet by packet. It queues messages of QoS 1 and 2 for a disconnected client,
repeats messages of a lost connection with the DUP flag, and saves its state at intervals. A killed broker continues
with the state that it saved last; a broker without its file has no session.
"""

from __future__ import annotations

import copy
import random
import socket
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP = 1, 2, 3, 4, 5, 6, 7
_SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK, _PINGREQ, _PINGRESP, _DISCONNECT = 8, 9, 10, 11, 12, 13, 14
_IDENTIFIERS: Final = 65_535


class Connection:
    """A TCP connection between a client and the broker: bytes arrive in order, delayed, in pieces.

    It is the client's socket, too. A cut loses data in flight; each end notices at once, or later.
    """

    def __init__(self) -> None:
        self.to_broker = bytearray()
        self.to_client = bytearray()
        self.arrived = bytearray()
        """Bytes that the client can read."""
        self.received = bytearray()
        """The start of a packet that the broker has not received completely."""
        self.cut = False
        self.reset = False
        """Whether the client knows that the connection is lost."""
        self.ended = False
        """Whether the broker has closed it; earlier data arrives first."""

    def carry(self, chance: random.Random) -> bytes:
        """Deliver some bytes. Return those for the broker."""
        if self.cut:
            return b""
        length = min(len(self.to_client), chance.choice((1, 20, 200, 100_000)))
        self.arrived += self.to_client[:length]
        del self.to_client[:length]
        length = min(len(self.to_broker), chance.choice((1, 20, 200, 100_000)))
        data = bytes(self.to_broker[:length])
        del self.to_broker[:length]
        return data

    def lose(self) -> None:
        """Lose all data in flight, now and from now on."""
        self.cut = True
        self.to_broker.clear()
        self.to_client.clear()

    # Interface of the client's socket

    @property
    def readable(self) -> bool:
        """Return whether a read returns something: bytes, the end, or an error."""
        return bool(self.arrived) or self.reset or (self.ended and not self.to_client)

    def recv(self, size: int) -> bytes:
        if self.arrived:
            data = bytes(self.arrived[:size])
            del self.arrived[:size]
            return data
        if self.reset:
            raise ConnectionResetError
        if self.ended and not self.to_client:
            return b""
        raise BlockingIOError

    def send(self, data: bytes) -> int:
        if self.reset:
            raise ConnectionResetError
        if not self.cut and not self.ended:
            self.to_broker += data
        return len(data)

    def setblocking(self, _: bool) -> None:
        pass

    def setsockopt(self, *_: object) -> None:
        pass

    def shutdown(self, _: socket._ShutdownType) -> None:  # type: ignore[name-defined]
        pass

    def close(self) -> None:
        self.reset = True


class State(IntEnum):
    """The delivery state of a message."""

    QUEUED = 0
    SENT = 1
    RECEIVED = 2
    """QoS 2: the client has received it, and has not yet confirmed the end."""


@dataclass
class Message:
    """A message of QoS 1 or 2 for the client."""

    number: int
    topic: bytes
    payload: bytes
    qos: int
    identifier: int = 0
    state: State = State.QUEUED
    dup: bool = False


@dataclass
class Session:
    """The broker's state of the client."""

    last_identifier: int
    subscribed: bool = False
    messages: list[Message] = field(default_factory=list)
    """Messages in order."""


class Broker:
    """The broker, its client's session, and the connection to the client."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.ascending = chance.random() < 0.7
        """Whether it numbers messages in ascending order on arrival, like Mosquitto.

        Other brokers take the lowest free number, and save each change before they continue.
        """
        self._max_inflight = chance.choice((0, 1, 3, 20))
        self._first_identifier = chance.choice((0, 0, _IDENTIFIERS - 10))
        self._session: Session | None = None
        self._saved: Session | None = None
        self._connection: Connection | None = None
        self._five = False
        self.running = True
        self.acknowledged: set[int] = set()
        """Numbers of messages that the client has confirmed as stored."""
        self.lost: set[int] = set()
        """Numbers of messages that the broker lost before the client acknowledged them."""

    @property
    def waiting(self) -> int:
        """Return the number of messages whose delivery is incomplete."""
        return 0 if self._session is None else len(self._session.messages)

    @property
    def subscribed(self) -> bool:
        """Return whether messages are queued for the client."""
        return self._session is not None and self._session.subscribed

    def publish(self, message: Message) -> None:
        """A device sends a message, and the broker acknowledges it."""
        assert self._session is not None
        if self.ascending:
            message.identifier = self._session.last_identifier = self._session.last_identifier % _IDENTIFIERS + 1
        self._session.messages.append(message)
        self._send_more()

    def save(self) -> None:
        """Save the state, from which a killed broker continues. This happens between two requests of the client."""
        if self.subscribed:
            self._saved = copy.deepcopy(self._session)

    def stop(self) -> None:
        """Save the state and stop."""
        self.save()
        self._down()

    def kill(self) -> None:
        """End without saving."""
        if not self.ascending:
            self._saved = self._session
        self._fall_back(copy.deepcopy(self._saved))

    def forget(self) -> None:
        """End, and lose the state file."""
        self._saved = None
        self._fall_back(None)

    def _fall_back(self, state: Session | None) -> None:
        before = set() if self._session is None else {message.number for message in self._session.messages}
        after = set() if state is None else {message.number for message in state.messages}
        self.lost |= before - after - self.acknowledged
        self._session = state
        self._down()

    def _down(self) -> None:
        self.running = False
        if self._connection is not None:
            self._connection.ended = True
            self._connection = None

    def start(self) -> None:
        """Start again."""
        self.running = True

    def connect(self) -> Connection:
        """A client connects. Raises ConnectionRefusedError."""
        if not self.running:
            raise ConnectionRefusedError
        return Connection()

    def lost_connection(self, connection: Connection) -> None:
        """Notice that a connection is lost."""
        if connection is self._connection:
            self._connection = None

    def receive(self, connection: Connection, data: bytes) -> None:
        """Process received data."""
        if not self.running:
            connection.ended = True
        if connection.ended:
            return
        connection.received += data
        while (packet := _packet(connection.received)) is not None:
            kind, content = packet
            if kind == _CONNECT:
                if self._connection is not None:
                    self._connection.ended = True
                self._connection = connection
            self._handle(kind, content)

    def _handle(self, kind: int, content: bytes) -> None:
        identifier = int.from_bytes(content[:2], "big")
        if kind == _CONNECT:
            self._begin(five=content[6] == 5)
        elif kind == _SUBSCRIBE:
            assert self._session is not None
            self._session.subscribed = True
            self._send(_SUBACK, content[:2] + (b"\0" if self._five else b"") + b"\2")
        elif kind in (_PUBACK, _PUBCOMP):
            self._finish(identifier, State.SENT if kind == _PUBACK else State.RECEIVED)
        elif kind == _PUBREC:
            self._received(identifier)
        elif kind == _PINGREQ:
            self._send(_PINGRESP, b"")
        else:
            assert kind == _DISCONNECT, f"the client sends a packet of type {kind}"
            self._connection = None

    def _begin(self, *, five: bool) -> None:
        self._five = five
        present = self._session is not None
        if self._session is None:
            self._session = Session(self._first_identifier)
        self._send(_CONNACK, bytes([present, 0]) + (b"\0" if five else b""))
        for message in self._session.messages:
            if message.state is State.SENT:
                message.dup = True
                self._deliver(message)
            elif message.state is State.RECEIVED:
                self._send(_PUBREL, message.identifier.to_bytes(2, "big"), 2)
        self._send_more()

    def _find(self, identifier: int, state: State) -> Message | None:
        messages = [] if self._session is None else self._session.messages
        return next((each for each in messages if (each.identifier, each.state) == (identifier, state)), None)

    def _finish(self, identifier: int, state: State) -> None:
        message = self._find(identifier, state)
        if message is not None and self._session is not None:
            self.acknowledged.add(message.number)
            self._session.messages.remove(message)
            self._send_more()

    def _received(self, identifier: int) -> None:
        message = self._find(identifier, State.SENT)
        if message is not None:
            self.acknowledged.add(message.number)
            message.state = State.RECEIVED
        self._send(_PUBREL, identifier.to_bytes(2, "big"), 2)

    def _send_more(self) -> None:
        if self._connection is None or self._session is None:
            return
        messages = self._session.messages
        open_ = sum(message.state is not State.QUEUED for message in messages)
        for message in messages:
            if message.state is State.QUEUED and (not self._max_inflight or open_ < self._max_inflight):
                if not self.ascending:
                    used = {each.identifier for each in messages if each.state is not State.QUEUED}
                    message.identifier = next(free for free in range(1, _IDENTIFIERS) if free not in used)
                message.state = State.SENT
                self._deliver(message)
                open_ += 1

    def _deliver(self, message: Message) -> None:
        head = len(message.topic).to_bytes(2, "big") + message.topic + message.identifier.to_bytes(2, "big")
        properties = b"\0" if self._five else b""
        self._send(_PUBLISH, head + properties + message.payload, message.dup << 3 | message.qos << 1)

    def _send(self, kind: int, content: bytes, flags: int = 0) -> None:
        assert len(content) < 128
        if self._connection is not None and not self._connection.cut:
            self._connection.to_client += bytes([kind << 4 | flags, len(content)]) + content


def _packet(buffer: bytearray) -> tuple[int, bytes] | None:
    """Remove the first packet; return its type and content. All are shorter than 16,384 bytes."""
    if len(buffer) < 2 or (buffer[1] & 128 and len(buffer) < 3):
        return None
    start, length = (3, (buffer[1] & 127) + (buffer[2] << 7)) if buffer[1] & 128 else (2, buffer[1])
    if len(buffer) < start + length:
        return None
    kind, content = buffer[0] >> 4, bytes(buffer[start : start + length])
    del buffer[: start + length]
    return kind, content
