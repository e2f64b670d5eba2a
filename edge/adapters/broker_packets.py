"""Packet boundaries in an MQTT 3.1.1 stream, and detection of invalid fixed headers.

On some of them, amqtt logs a traceback for each packet and continues. The standard requires the end of the connection
(MQTT 3.1.1, [MQTT-2.2.2-2] and [MQTT-3.3.1-4]).
"""

from __future__ import annotations

from typing import Final

_PUBLISH: Final = 3
_FLAGS: Final = {
    1: 0x0,  # CONNECT
    2: 0x0,
    4: 0x0,  # PUBACK
    5: 0x0,
    6: 0x2,  # PUBREL
    7: 0x0,
    8: 0x2,  # SUBSCRIBE
    9: 0x0,
    10: 0x2,  # UNSUBSCRIBE
    11: 0x0,
    12: 0x0,
    13: 0x0,
    14: 0x0,  # DISCONNECT
}
"""Flags of each packet type except PUBLISH (MQTT 3.1.1, table 2.2)."""


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
        return "a PUBLISH with QoS 3" if flags & 0x06 == 0x06 else ""
    expected = _FLAGS.get(kind)
    if expected is None:
        return f"the reserved packet type {kind}"
    return "" if flags == expected else f"the flags {flags:#x} in a packet of type {kind}"
