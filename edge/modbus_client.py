"""Modbus client for one connection, on pymodbus. This is the only module that imports it: its minor versions rename
arguments.

Pymodbus is an optional dependency and is imported with the first connection.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pymodbus.client import ModbusSerialClient, ModbusTcpClient
    from pymodbus.pdu import ModbusPDU

RegisterTable = Literal["holding", "input", "coil", "discrete"]
MISSING: Final = 'Modbus needs the package pymodbus: pip install "sepa-edge[modbus]"'
_PARITIES: Final = {"none": "N", "even": "E", "odd": "O"}
_BITS: Final = ("coil", "discrete")
_EXCEPTIONS: Final = {
    1: "illegal function: the device does not have this table or cannot be written; check `table`",
    2: "illegal data address: the device has no value there; check `address` (many manuals count from 1), `table` "
    "and `type`",
    3: "illegal data value: the device does not accept the value or the number of registers; check `type`, the limits "
    "of `write`, and `max_registers`",
    4: "server device failure: the device could not carry it out",
    5: "acknowledge: the device needs more time",
    6: "server device busy: the device needs more time; a longer `interval` may help",
    8: "memory parity error: the memory of the device is damaged",
    10: "gateway path unavailable: the Modbus gateway has no line for the address; check `unit_id`",
    11: "gateway target device failed to respond: check `unit_id`, and the line behind the Modbus gateway",
}
"""Exception codes (Modbus application protocol V1.1b3, section 7), with a remedy."""


class NoResponse(Exception):
    """The device cannot be reached, or does not respond in time; the text gives the reason."""


class Refused(Exception):
    """The device answered with an exception code; the text explains it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exception {code}, {_EXCEPTIONS.get(code, 'of the manufacturer')}")
        self.code = code
        """Exception code of the Modbus application protocol, 1 to 255."""


def is_installed() -> bool:
    """Whether pymodbus can be imported."""
    return find_spec("pymodbus") is not None


class ModbusClient:
    """A connection to one TCP address or serial line. Not thread-safe. Each request waits for its response."""

    def __init__(self, client: ModbusTcpClient | ModbusSerialClient, name: str) -> None:
        self._client = client
        self._close: Callable[[], object] = client.close
        self._name = name

    @classmethod
    def tcp(cls, host: str, port: int, framing: Literal["tcp", "rtu"], timeout: float) -> ModbusClient:
        """Return a client for a TCP address. `timeout` in seconds applies to the connection and to each response."""
        from pymodbus import FramerType
        from pymodbus.client import ModbusTcpClient

        _silence()
        framer = FramerType.RTU if framing == "rtu" else FramerType.SOCKET
        client = ModbusTcpClient(host, port=port, framer=framer, timeout=timeout, retries=0)
        return cls(client, f"{host}:{port}")

    @classmethod
    def line(
        cls, path: str, baud: int, parity: Literal["none", "even", "odd"], stop_bits: int, timeout: float
    ) -> ModbusClient:
        """Return a client for a serial line (RTU), which it opens exclusively. `timeout` in seconds."""
        from pymodbus.client import ModbusSerialClient

        _silence()
        client = ModbusSerialClient(
            path, baudrate=baud, parity=_PARITIES[parity], stopbits=stop_bits, timeout=timeout, retries=0
        )
        return cls(client, path)

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return bool(self._client.connected)

    def connect(self) -> None:
        """Open the connection, if it is closed. Raises `NoResponse`."""
        try:
            done = self._client.connect()
        except Exception as error:  # noqa: BLE001  pyserial and the resolver raise errors of several kinds
            raise NoResponse(f"{self._name}: {error}") from None
        if not done:
            raise NoResponse(f"{self._name} cannot be connected")

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._close()

    def set_timeout(self, timeout: float) -> None:
        """Set the seconds that the next requests wait for a response."""
        self._client.comm_params.timeout_connect = timeout

    def read(self, unit_id: int, table: RegisterTable, address: int, count: int) -> list[int]:
        """Return the contents of `count` addresses: registers of 16 bits, or bits as 0 and 1.

        Raises `NoResponse` or `Refused`.
        """
        client = self._client
        read = {
            "holding": client.read_holding_registers,
            "input": client.read_input_registers,
            "coil": client.read_coils,
            "discrete": client.read_discrete_inputs,
        }[table]
        try:
            response = read(address, count=count, device_id=unit_id)
        except Exception as error:  # noqa: BLE001  of pymodbus, pyserial and the system
            raise self._failed(error) from None
        _check(response)
        found = [int(bit) for bit in response.bits] if table in _BITS else list(response.registers)
        # Bits fill whole bytes, so there may be more of them.
        if len(found) < count or (table not in _BITS and len(found) > count):
            raise self._failed(ValueError(f"{len(found)} values came instead of {count}"))
        return found[:count]

    def write(self, unit_id: int, function: int, address: int, values: Sequence[int]) -> None:
        """Write registers (function 6 or 16) or coils (5 or 15). Raises `NoResponse` or `Refused`."""
        client = self._client
        try:
            if function == 5:
                response = client.write_coil(address, bool(values[0]), device_id=unit_id)
            elif function == 6:
                response = client.write_register(address, values[0], device_id=unit_id)
            elif function == 15:
                response = client.write_coils(address, [bool(each) for each in values], device_id=unit_id)
            else:
                response = client.write_registers(address, list(values), device_id=unit_id)
        except Exception as error:  # noqa: BLE001  as above
            raise self._failed(error) from None
        _check(response)

    def _failed(self, error: Exception) -> NoResponse:
        """Close the connection: a response that comes late must not be taken for that of the next request."""
        self.close()
        text = str(error).removeprefix("Modbus Error: ")
        reason = "no response within the timeout" if "No response" in text or "CLOSING" in text else text
        return NoResponse(f"{self._name}: {reason or type(error).__name__}")


def _check(response: ModbusPDU) -> None:
    if response.isError():
        raise Refused(getattr(response, "exception_code", 0))


def _silence() -> None:
    """Pymodbus logs each failed request; the adapter logs the first of several failures in a row."""
    logging.getLogger("pymodbus").setLevel(logging.CRITICAL + 1)
    logging.getLogger("pymodbus.logging").setLevel(logging.CRITICAL + 1)
