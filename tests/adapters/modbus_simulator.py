"""A simulated Modbus device: pymodbus' own server, over TCP or over two connected pseudo-terminals."""

from __future__ import annotations

import asyncio
import os
import select
import struct
import threading
import tty
from collections.abc import Sequence
from pathlib import Path

from pymodbus import FramerType
from pymodbus.constants import ExcCodes
from pymodbus.server import ModbusSerialServer, ModbusTcpServer
from pymodbus.simulator import DataType, SimData, SimDevice

from tests.support.waiting import eventually

SIZE = 300
"""Addresses of each table."""
TABLES = {1: "coil", 2: "discrete", 3: "holding", 4: "input", 5: "coil", 6: "holding", 15: "coil", 16: "holding"}
"""Table of each function."""


def words(form: str, value: object) -> list[int]:
    """Return a value as registers, big-endian; `form` is one of `struct`."""
    data = struct.pack(f">{form}", value)
    return list(struct.unpack(f">{len(data) // 2}H", data))


class Simulator:
    """Devices 1 and 2 with tables of `SIZE` addresses, which a test reads and writes.

    The context manager starts and stops the server, as often as wanted.
    """

    def __init__(self, port: int = 0, line: Path | None = None) -> None:
        self.port = port
        self.line = line
        self.requests: list[tuple[int, int, int, int]] = []
        """Device, function, address and count of each request."""
        self.refused: dict[int, ExcCodes] = {}
        """Exceptions by address: of requests that contain it."""
        self.silent: set[int] = set()
        """Devices that do not answer."""
        self.mute: set[tuple[int, int]] = set()
        """Function and address of requests that are not answered: of those that contain the address."""
        self.contents: dict[tuple[int, str], list[int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._server: ModbusTcpServer | ModbusSerialServer | None = None

    def __enter__(self) -> Simulator:
        self._started.clear()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._started.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._thread is not None
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self._server.shutdown(), self._loop).result(30)
        self._thread.join(30)

    def set(self, address: int, values: Sequence[int], table: str = "holding", device: int = 1) -> None:
        """Set the contents of addresses."""
        self._table(device, table)[address : address + len(values)] = values

    def get(self, address: int, count: int = 1, table: str = "holding", device: int = 1) -> list[int]:
        """Return the contents of addresses."""
        return self._table(device, table)[address : address + count]

    def _table(self, device: int, table: str) -> list[int]:
        return self.contents.setdefault((device, table), [0] * SIZE)

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        for waiting in asyncio.all_tasks(self._loop):
            waiting.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self) -> None:
        nothing = SimDevice(0, simdata=[SimData(0, values=0, datatype=DataType.REGISTERS)])
        if self.line is None:
            self._server = ModbusTcpServer(nothing, address=("127.0.0.1", self.port))
        else:
            self._server = ModbusSerialServer(nothing, framer=FramerType.RTU, port=str(self.line), baudrate=115_200)
        self._server.context = self  # instead of the tables of `nothing`
        serving = asyncio.ensure_future(self._server.serve_forever())
        await eventually(lambda: self._server.transport is not None or serving.done(), "the server")
        self._started.set()
        await serving

    async def async_getValues(self, device_id: int, func_code: int, address: int, count: int = 1):  # noqa: N802
        """Return contents, or an exception. The server calls it for reads."""
        if (code := await self._asked(device_id, func_code, address, count)) is not None:
            return code
        found = self.get(address, count, TABLES[func_code], device_id)
        return [bool(each) for each in found] if func_code < 3 else found

    async def async_setValues(self, device_id: int, func_code: int, address: int, values: list[int]):  # noqa: N802
        """Set contents, or return an exception. The server calls it for writes."""
        if (code := await self._asked(device_id, func_code, address, len(values))) is not None:
            return code
        self.set(address, [int(each) for each in values], TABLES[func_code], device_id)
        return None

    async def _asked(self, device: int, function: int, address: int, count: int) -> ExcCodes | None:
        self.requests.append((device, function, address, count))
        places = {(function, each) for each in range(address, address + count)}
        if device in self.silent or not places.isdisjoint(self.mute):
            await asyncio.Event().wait()
        if address + count > SIZE:
            return ExcCodes.ILLEGAL_ADDRESS
        return next((self.refused[each] for each in range(address, address + count) if each in self.refused), None)


class NullModem:
    """Two pseudo-terminals, each of which gets what is written to the other."""

    def __init__(self, directory: Path) -> None:
        self.one, self.other = directory / "one", directory / "other"
        self._ends: list[int] = []
        self._keep: list[int] = []
        for path in (self.one, self.other):
            end, device = os.openpty()
            tty.setraw(device)
            path.symlink_to(os.ttyname(device))
            self._ends.append(end)
            self._keep.append(device)  # so that the terminal does not hang up while nobody has opened it
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._copy, daemon=True)

    def __enter__(self) -> NullModem:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.write(self._stopped, b"x")
        self._thread.join(30)
        for descriptor in (*self._ends, *self._keep, self._stop, self._stopped):
            os.close(descriptor)

    def _copy(self) -> None:
        other = {self._ends[0]: self._ends[1], self._ends[1]: self._ends[0]}
        while True:
            ready, _, _ = select.select([*self._ends, self._stop], [], [])
            if self._stop in ready:
                return
            for end in ready:
                os.write(other[end], os.read(end, 4096))
