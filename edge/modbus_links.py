"""Connections of the Modbus client: the sockets and serial lines of pymodbus, with its waits replaced.

Pymodbus waits with `select`, which fails for descriptors from 1024 on, with the clock that can be set, and without the
reason of a failed connection. Only `edge.modbus_client` imports this module, with the first connection.
"""

from __future__ import annotations

import os
import select
import socket
import time
from typing import Final

import serial
from pymodbus import FramerType
from pymodbus.client import ModbusSerialClient, ModbusTcpClient
from pymodbus.exceptions import ConnectionException

_LARGEST_READ: Final = 4096
_CLOSED: Final = "the connection was closed"
_FEWEST_SECONDS: Final = 0.001
"""A socket with the timeout 0 would not wait, and fail with another error."""


class TcpLink(ModbusTcpClient):
    """A TCP connection. `send` and `recv` raise `OSError`."""

    def __init__(self, host: str, port: int, framer: FramerType, timeout: float) -> None:
        """`timeout` in seconds applies to the connection, and to responses until `set_timeout`."""
        super().__init__(host, port=port, framer=framer, timeout=timeout, retries=0)
        self._patience = timeout
        self._deadline = 0.0

    def connect(self) -> bool:
        """Open the connection, if it is closed. Raises `OSError`."""
        if self.socket is None:
            self.socket = socket.create_connection((self.comm_params.host, self.comm_params.port), self._patience)
        return True

    def send(self, request: bytes, addr: tuple[str, int] | None = None) -> int:
        """Send a frame. Its response has to come within the timeout from now on."""
        del addr
        if self.socket is None:
            raise ConnectionException(_CLOSED)
        timeout = self.transaction.comm_params.timeout_connect
        self._deadline = time.monotonic() + timeout
        self.socket.settimeout(timeout)
        self.socket.sendall(request)
        return len(request)

    def recv(self, size: int | None) -> bytes:
        """Return the next bytes; empty: the timeout is over."""
        return self.next(self._deadline - time.monotonic(), size)

    def next(self, seconds: float, size: int | None = None) -> bytes:
        """Return bytes that come within some seconds; empty: none."""
        if self.socket is None:
            raise ConnectionException(_CLOSED)
        self.socket.settimeout(max(_FEWEST_SECONDS, seconds))
        try:
            data = self.socket.recv(size or _LARGEST_READ)
        except TimeoutError:
            return b""
        if not data:
            raise ConnectionResetError(_CLOSED)
        return data


class LineLink(ModbusSerialClient):
    """A serial line (RTU), opened exclusively. `send` and `recv` raise `OSError`."""

    def __init__(self, path: str, baud: int, parity: str, stop_bits: int, timeout: float) -> None:
        """`timeout` in seconds applies to responses until `set_timeout`."""
        super().__init__(path, baudrate=baud, parity=parity, stopbits=stop_bits, timeout=timeout, retries=0)
        self._patience = timeout
        self._deadline = 0.0

    def connect(self) -> bool:
        """Open the line, if it is closed. Raises `OSError`."""
        if self.socket is None:
            params = self.comm_params
            self.socket = serial.Serial(
                params.host,
                params.baudrate,
                parity=params.parity,
                stopbits=params.stopbits,
                write_timeout=self._patience,
                exclusive=True,
            )
        return True

    def send(self, request: bytes, addr: tuple[str, int] | None = None) -> int:
        """Send a frame. Its response has to come within the timeout from now on. Earlier input is discarded."""
        del addr
        if self.socket is None:
            raise ConnectionException(_CLOSED)
        self._deadline = time.monotonic() + self.transaction.comm_params.timeout_connect
        self.socket.reset_input_buffer()
        # A frame is shorter than the buffer of a terminal, so that a part of it is written only after a defect.
        if os.write(self.socket.fileno(), request) < len(request):
            raise OSError("the line does not take the request")
        return len(request)

    def recv(self, size: int | None) -> bytes:
        """Return the next bytes; empty: the timeout is over."""
        return self.next(self._deadline - time.monotonic(), size)

    def next(self, seconds: float, size: int | None = None) -> bytes:
        """Return bytes that come within some seconds; empty: none."""
        if self.socket is None:
            raise ConnectionException(_CLOSED)
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLIN)
        if not poll.poll(max(0.0, seconds) * 1000):
            return b""
        data = os.read(self.socket.fileno(), size or _LARGEST_READ)
        if not data:
            raise ConnectionResetError(_CLOSED)
        return data
