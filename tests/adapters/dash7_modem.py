"""A simulated DASH7 gateway: the frames that the modem of Sub-IoT (OSS-7) sends over its serial line.

A frame is a sync byte C0, the version 00, a counter, a message type, the length of the payload and its CRC
(CRC-16/IBM-3740), then the payload. That of type 1 is a command of the Application Layer Protocol, a list of actions.
"""

import binascii
from itertools import count

ALP, PING, LOG, REBOOTED = 1, 2, 4, 5


class Modem:
    """Encoder of frames, with their running counter."""

    def __init__(self) -> None:
        self._counter = count(1)

    def frame(self, payload: bytes, kind: int = ALP) -> bytes:
        checksum = binascii.crc_hqx(payload, 0xFFFF).to_bytes(2, "big")
        return bytes([0xC0, 0x00, next(self._counter) & 0xFF, kind, len(payload)]) + checksum + payload

    def reading(
        self, uid: str, temperature: int, humidity: int, *, status_first: bool = True, rx_level: int = 70
    ) -> bytes:
        """Return the command that the modem sends when a sensor has sent its file 0x40: data and radio parameters, in
        either order.
        """
        data = temperature.to_bytes(2, "big", signed=True) + humidity.to_bytes(2, "big")
        returned = bytes([0x20, 0x40, 0x00, len(data)]) + data
        # Channel, receive level, link budget, target level, flags, token, sequence, response time, addressee.
        received = bytes([0x32, 0x00, 0x2D, rx_level, 80, 80, 0x10, 1, 2, 0, 0x20, 0x00]) + bytes.fromhex(uid)
        status = bytes([0x62, 0xD7, len(received)]) + received
        return self.frame(status + returned if status_first else returned + status)
