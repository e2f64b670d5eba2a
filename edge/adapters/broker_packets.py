"""Packet boundaries in an MQTT 3.1.1 stream, and detection of invalid packets.

On some of them, amqtt logs a traceback for each packet and continues; others it accepts. The standard requires the end
of the connection (MQTT 3.1.1, [MQTT-4.8.0-1]).
"""

from __future__ import annotations

from typing import Final

LEVEL: Final = 4
"""Protocol level of MQTT 3.1.1, which amqtt supports."""
CONNECT: Final = 1
"""Type of the packet with which clients begin."""
_MOST_FILTERS: Final = 1000
"""Topic filters in a packet: its handling takes longer the more there are."""
_PUBLISH: Final = 3
_SUBSCRIBE: Final = 8
_UNSUBSCRIBE: Final = 10
_ACKNOWLEDGEMENTS: Final = (4, 5, 6, 7)
_FLAGS: Final = {
    CONNECT: 0x0,
    4: 0x0,  # PUBACK
    5: 0x0,
    6: 0x2,  # PUBREL
    7: 0x0,
    _SUBSCRIBE: 0x2,
    _UNSUBSCRIBE: 0x2,
    12: 0x0,
    14: 0x0,  # DISCONNECT
}
"""Flags of each packet type that clients send, except PUBLISH (MQTT 3.1.1, tables 2.1 and 2.2)."""
_OF_SERVERS: Final = {2: "CONNACK", 9: "SUBACK", 11: "UNSUBACK", 13: "PINGRESP"}
_WILL, _WILL_RETAIN, _PASSWORD, _USER_NAME = 0x04, 0x20, 0x40, 0x80
"""Connect flags (section 3.1.2.3)."""


class PacketBoundaries:
    """Tracks packet boundaries in a stream, and checks the first byte of each packet."""

    def __init__(self) -> None:
        self._left = 0
        """Remaining bytes of the current packet."""
        self._shift: int | None = None
        """Bit position in the remaining length; None: not within it."""
        self._total = 0
        """Partial value of the remaining length."""
        self.fault = ""
        """Why the stream is not valid MQTT; empty if it is so far."""

    @property
    def left(self) -> int:
        """Remaining bytes of the current packet; 0 within its fixed header, and between packets."""
        return self._left

    @property
    def complete(self) -> bool:
        """Whether the last byte was the end of a packet."""
        return not self._left and self._shift is None

    def take(self, data: bytes) -> bool:
        """Process the next bytes. False: they contain an invalid packet."""
        position = 0
        while position < len(data) and not self.fault:
            if self._left:
                taken = min(self._left, len(data) - position)
                self._left -= taken
                position += taken
            elif self._shift is None:
                self.fault = _fault(data[position])
                self._shift = 0
                position += 1
            else:
                self._length(data[position])
                position += 1
        return not self.fault

    def _length(self, byte: int) -> None:
        """Process one byte of the remaining length (section 2.2.3)."""
        shift = self._shift or 0
        self._total |= (byte & 0x7F) << shift
        if not byte & 0x80:
            self._left, self._total, self._shift = self._total, 0, None
        elif shift < 21:
            self._shift = shift + 7
        else:
            self.fault = "a remaining length of more than four bytes"


def _fault(first: int) -> str:
    """Return the problem of the first byte of a packet; empty if it is valid."""
    kind, flags = first >> 4, first & 0x0F
    if kind == _PUBLISH:
        if flags & 0x06 == 0x06:
            return "a PUBLISH with QoS 3"
        return "a PUBLISH with DUP and QoS 0" if flags & 0x0E == 0x08 else ""
    if kind in _OF_SERVERS:
        return f"a {_OF_SERVERS[kind]}, which only servers send"
    expected = _FLAGS.get(kind)
    if expected is None:
        return f"the reserved packet type {kind}"
    return "" if flags == expected else f"the flags {flags:#x} in a packet of type {kind}"


def is_topic(topic: str) -> bool:
    """Return whether messages may have this topic (section 4.7): it is not empty and has no wildcards."""
    return bool(topic) and "#" not in topic and "+" not in topic


class _InvalidError(Exception):
    """The content of a packet violates the standard."""


class _PacketFields:
    """Fields of a packet in their order. Its methods raise `_InvalidError`."""

    def __init__(self, packet: bytes, position: int) -> None:
        self._packet = packet
        self._position = position

    @property
    def left(self) -> int:
        """Number of bytes that are not read yet."""
        return len(self._packet) - self._position

    def data(self, size: int) -> bytes:
        """Read a field of this size in bytes."""
        if self.left < size:
            raise _InvalidError("a field that is longer than its packet")
        self._position += size
        return self._packet[self._position - size : self._position]

    def number(self, size: int = 2) -> int:
        """Read an unsigned integer."""
        return int.from_bytes(self.data(size))

    def text(self, what: str) -> str:
        """Read a string (section 1.5.3). `what`: its name in errors."""
        try:
            text = self.data(self.number()).decode()
        except UnicodeDecodeError:
            raise _InvalidError(f"a {what} that is not UTF-8") from None
        if "\0" in text:
            raise _InvalidError(f"a {what} with the character U+0000")
        return text

    def topic(self) -> None:
        """Read the topic of a message."""
        if not is_topic(self.text("topic")):
            raise _InvalidError("a topic that is empty or has wildcards")

    def identifier(self) -> None:
        """Read a packet identifier (section 2.3.1)."""
        if not self.number():
            raise _InvalidError("the packet identifier 0")


def content_fault(packet: bytes) -> str:
    """Return the problem of a packet whose fixed header is valid; empty if it has none.

    CONNECT packets of other protocol levels are not checked: the broker refuses them with a CONNACK.
    """
    position = 1
    while packet[position] & 0x80:
        position += 1
    try:
        _check(packet[0], _PacketFields(packet, position + 1))
    except _InvalidError as invalid:
        return str(invalid)
    return ""


def _check(first: int, content: _PacketFields) -> None:
    kind = first >> 4
    if kind == _PUBLISH:
        content.topic()
        if first & 0x06:
            content.identifier()
        return  # the payload is the rest
    if kind == CONNECT:
        _check_connect(content)
    elif kind in (_SUBSCRIBE, _UNSUBSCRIBE):
        content.identifier()
        _check_filters(content, kind)
    elif kind in _ACKNOWLEDGEMENTS:
        content.number()
    if content.left:
        raise _InvalidError(f"a packet of type {kind} with {content.left} bytes too many")


def _check_filters(content: _PacketFields, kind: int) -> None:
    if not content.left:
        raise _InvalidError("a subscription or its end without topic filters")
    number = 0
    while content.left:
        number += 1
        if number > _MOST_FILTERS:
            raise _InvalidError(f"a subscription or its end with more than {_MOST_FILTERS} topic filters")
        if not content.text("topic filter"):
            raise _InvalidError("an empty topic filter")
        if kind == _SUBSCRIBE:
            content.data(1)  # the QoS; a wrong one has a code in SUBACK


def _check_connect(content: _PacketFields) -> None:
    """Check a CONNECT (section 3.1)."""
    protocol = content.data(content.number())
    if content.number(1) != LEVEL:
        content.data(content.left)
        return
    if protocol != b"MQTT":
        raise _InvalidError("a CONNECT of an unknown protocol")
    flags = content.number(1)
    content.number()  # the keep-alive
    problem = _flags_fault(flags)
    if problem:
        raise _InvalidError(f"a CONNECT with {problem}")
    content.text("client identifier")
    if flags & _WILL:
        content.text("will topic")  # a wrong one has a code in CONNACK
        content.data(content.number())
    if flags & _USER_NAME:
        content.text("user name")
    if flags & _PASSWORD:
        content.data(content.number())


def _flags_fault(flags: int) -> str:
    """Return the problem of connect flags ([MQTT-3.1.2-3], -11 to -15 and -22); empty if they are valid."""
    qos = flags >> 3 & 3
    if flags & 1:
        return "the reserved flag"
    if qos == 3:
        return "a will of QoS 3"
    if not flags & _WILL and (qos or flags & _WILL_RETAIN):
        return "flags of a will, but no will"
    return "a password, but no user name" if flags & _PASSWORD and not flags & _USER_NAME else ""
