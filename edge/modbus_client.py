"""Modbus client for one connection, on pymodbus. Only this module and `edge.modbus_links` import it: its minor versions
rename arguments.

Pymodbus is an optional dependency and is imported with the first connection.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from pymodbus.pdu import ModbusPDU

    from edge.modbus_links import LineLink, TcpLink

RegisterTable = Literal["holding", "input", "coil", "discrete"]
MISSING: Final = (
    "Modbus needs the package pymodbus. Install the wheel of a release with its extra (pip install "
    "'./sepa_edge-VERSION-py3-none-any.whl[modbus]'), or a clone (pip install '.[modbus]')"
)
_PARITIES: Final = {"none": "N", "even": "E", "odd": "O"}
_BITS: Final = ("coil", "discrete")
_READ: Final = {"coil": 1, "discrete": 2, "holding": 3, "input": 4}
"""Function code that reads each table."""
_MOST_NOISE: Final = 10
"""Timeouts after which a line that is never silent counts as one that cannot be used."""
_EXCEPTIONS: Final = {
    1: ("illegal function: the device does not have this table or cannot be written", "check `table`"),
    2: (
        "illegal data address: the device has no value there",
        "check `address` (many manuals count from 1), `table` and `type`",
    ),
    3: (
        "illegal data value: the device does not accept the value or the number of registers",
        "check `type`, the limits of `write`, and `max_registers`",
    ),
    4: ("server device failure: the device could not carry it out", ""),
    5: ("acknowledge: the device needs more time", ""),
    6: ("server device busy: the device needs more time", "a longer `interval` may help"),
    8: ("memory parity error: the memory of the device is damaged", ""),
    10: ("gateway path unavailable: the Modbus gateway has no line for the address", "check `unit_id`"),
    11: ("gateway target device failed to respond", "check `unit_id`, and the line behind the Modbus gateway"),
}
"""Exception codes (Modbus application protocol V1.1b3, section 7), with a remedy in a mapping file."""


class NoResponse(Exception):
    """The device cannot be reached, or does not respond in time; the text gives the reason."""

    def __init__(self, text: str, failure: Exception | None = None) -> None:
        super().__init__(text)
        self.failure = failure
        """Why the connection could not be opened; None: it was open."""


class Refused(Exception):
    """The device answered with an exception code; the text explains it."""

    def __init__(self, code: int) -> None:
        meaning, remedy = _EXCEPTIONS.get(code, ("of the manufacturer", ""))
        self.meaning = f"exception {code}, {meaning}"
        """The text without the remedy, which names keys of mapping files."""
        super().__init__(f"{self.meaning}; {remedy}" if remedy else self.meaning)
        self.code = code
        """Exception code of the Modbus application protocol, 1 to 255."""


def is_installed() -> bool:
    """Whether pymodbus can be imported."""
    return find_spec("pymodbus") is not None


class ModbusClient:
    """A connection to one TCP address or serial line. Not thread-safe. Each request waits for its response."""

    def __init__(self, client: TcpLink | LineLink, name: str, timeout: float, *, numbered: bool) -> None:
        """`timeout` in seconds. `numbered`: frames have numbers that tell which request a response belongs to."""
        self._client = client
        self._close: Callable[[], object] = client.close
        self._name = name
        self._numbered = numbered
        self._timeout = timeout
        self._late = True
        """Whether the response to an earlier request can still come (also to one of a process before), and would be
        taken for that of the next one.
        """

    @classmethod
    def tcp(cls, host: str, port: int, framing: Literal["tcp", "rtu"], timeout: float) -> ModbusClient:
        """Return a client for a TCP address. `timeout` in seconds applies to the connection and to each response."""
        from pymodbus import FramerType

        from edge.modbus_links import TcpLink

        _silence()
        framer = FramerType.RTU if framing == "rtu" else FramerType.SOCKET
        name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(TcpLink(host, port, framer, timeout), name, timeout, numbered=framing == "tcp")

    @classmethod
    def line(
        cls, path: str, baud: int, parity: Literal["none", "even", "odd"], stop_bits: int, timeout: float
    ) -> ModbusClient:
        """Return a client for a serial line (RTU), which it opens exclusively. `timeout` in seconds."""
        from edge.modbus_links import LineLink

        _silence()
        return cls(LineLink(path, baud, _PARITIES[parity], stop_bits, timeout), path, timeout, numbered=False)

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return bool(self._client.connected)

    def connect(self) -> None:
        """Open the connection, if it is closed. Raises `NoResponse`.

        At first, and after a request without a response, it waits until nothing has come for the time of a timeout, if
        frames have no numbers.
        """
        try:
            self._client.connect()
        except Exception as error:  # noqa: BLE001  pyserial and the resolver raise errors of several kinds
            raise NoResponse(f"{self._name} cannot be connected: {_text(error)}", error) from None
        if self._late and not self._numbered:
            self._settle()
        self._late = False

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self._close()

    def set_timeout(self, timeout: float) -> None:
        """Set the seconds that the next requests wait for a response."""
        self._timeout = timeout
        self._client.transaction.comm_params.timeout_connect = timeout

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
            _check(response, _READ[table])
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001  of pymodbus, pyserial and the system
            raise self._failed(error) from None
        found = [int(bit) for bit in response.bits] if table in _BITS else list(response.registers)
        # Bits fill whole bytes, so there may be more of them.
        if len(found) != (-(-count // 8) * 8 if table in _BITS else count):
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
            _check(response, function)
            if (response.address, *_echo(response, function)) != (address, *_expected(function, values)):
                raise ValueError(_OTHER)
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001  as above
            raise self._failed(error) from None

    def _settle(self) -> None:
        """Discard what comes until nothing has come for the time of a timeout. Raises `NoResponse`."""
        end = time.monotonic() + _MOST_NOISE * self._timeout
        try:
            while self._client.next(self._timeout):
                if time.monotonic() >= end:
                    raise OSError("the line is never silent")
        except Exception as error:  # noqa: BLE001  as above
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> NoResponse:
        """Close the connection: a response that comes late must not be taken for that of the next request."""
        self.close()
        self._late = True
        text = _text(error).removeprefix("Modbus Error: ")
        reason = "no response within the timeout" if "No response" in text or "CLOSING" in text else text
        return NoResponse(f"{self._name}: {reason}")


_OTHER: Final = "the response belongs to another request"


def _check(response: ModbusPDU, function: int) -> None:
    """Raise `Refused` for an exception, and `ValueError` for the response to another request."""
    if response.function_code & 0x7F != function:
        raise ValueError(_OTHER)
    if response.isError():
        raise Refused(getattr(response, "exception_code", 0))


def _echo(response: ModbusPDU, function: int) -> tuple[int, ...]:
    """Return what the response to a write repeats: the value, or the number of values."""
    if function == 5:
        return (int(response.bits[0]),)
    return (response.registers[0],) if function == 6 else (response.count,)


def _expected(function: int, values: Sequence[int]) -> tuple[int, ...]:
    """Return what the response to a write should repeat."""
    return (int(bool(values[0])) if function == 5 else values[0] if function == 6 else len(values),)


def _text(error: Exception) -> str:
    """Return the reason of an error without numbers of the system."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _silence() -> None:
    """Pymodbus logs each failed request; the adapter logs the first of several failures in a row."""
    logging.getLogger("pymodbus").setLevel(logging.CRITICAL + 1)
    logging.getLogger("pymodbus.logging").setLevel(logging.CRITICAL + 1)
