"""`edge modbus`: read registers of a Modbus device once, without a mapping file."""

from __future__ import annotations

import errno
import json
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import REFUSED, misused, refused

if TYPE_CHECKING:
    from edge.modbus_client import ModbusClient, NoResponse, RegisterTable

_Order = Literal["big", "little"]
_TABLES: Final = ("holding", "input", "coil", "discrete")
_BITS: Final = ("coil", "discrete")
_REGISTER: Final = re.compile(
    r"(?:(?P<table>[a-z]+):)?(?P<first>0x[0-9A-Fa-f]{1,4}|[0-9]{1,5})"
    r"(?:-(?P<last>0x[0-9A-Fa-f]{1,4}|[0-9]{1,5}))?"
    r"(?::(?P<type>[a-z]+[0-9]*))?(?:\*(?P<scale>[-+0-9.eE]+))?"
)
_EXAMPLES: Final = "100, input:100:int16*0.1, holding:102:float32, 200:string8, input:0-20, coil:3"
_LARGEST: Final = 65_535
_MOST: Final = 125
"""Registers of a request (Modbus application protocol V1.1b3, section 6.3)."""
_NO_ANSWER: Final = "check --unit-id and --framing; a slow device needs a longer --timeout"
_NO_ANSWER_OF_LINE: Final = (
    "check --unit-id, --baud, --parity, --stop-bits and the wiring; a slow device needs a longer --timeout"
)
_IN_USE: Final = "the gateway or another program uses this line; stop it, or read the values of the gateway instead"
_FAILURES: Final = {
    errno.ENOENT: "check the path; the serial lines of this machine are below /dev/serial/by-id and /dev/tty*",
    errno.EACCES: "this user may not open the line; on most systems the group dialout may",
    errno.ECONNREFUSED: "no program accepts connections there; check the address, the port (usually 502), and whether "
    "Modbus TCP is turned on at the device",
}
"""Remedies for connections that could not be opened, by the number of the error."""
_REMEDIES: Final = {
    1: "try another TABLE",
    2: "try the address before (many manuals count from 1), another TABLE or another TYPE",
    3: "try another TYPE",
    6: "try it again later",
    10: "check --unit-id",
    11: "check --unit-id, and the line behind the Modbus gateway",
}
"""Remedies for exceptions of a device, by their code."""
_LINE_NAME: Final = re.compile(r"tty[A-Za-z]+[0-9]+|cu\..+|COM[0-9]+|\.{1,2}/.*", re.IGNORECASE)
"""What people write for a serial line without its directory."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A register of the command line, or a range of them."""

    table: RegisterTable
    type: str
    """A type of registers, or "bit"."""
    size: int
    """Addresses of a value."""
    addresses: range
    scale: Decimal | None

    def requests(self) -> Iterator[range]:
        """Yield the addresses of values that one request reads."""
        most = max(1, _MOST // self.size)
        for first in range(0, len(self.addresses), most):
            yield self.addresses[first : first + most]


@click.group()
def modbus() -> None:
    """Read a Modbus device."""


@modbus.command(
    epilog="""\b
    Exit codes:
      0  all registers were read
      1  the device does not respond, or refuses a register
      2  wrong command line
    """
)
@click.argument("device")
@click.argument("registers", metavar="REGISTER...", nargs=-1, required=True)
@click.option(
    "--unit-id", default=1, show_default=True, type=click.IntRange(0, 255), help="Address of the device on its line."
)
@click.option(
    "--framing",
    default="tcp",
    show_default=True,
    type=click.Choice(["tcp", "rtu"]),
    help="Frames on a TCP connection: rtu for converters that pass serial frames on.",
)
@click.option("--baud", default=9600, show_default=True, type=click.IntRange(50, 4_000_000), help="Of a serial line.")
@click.option("--parity", default="none", show_default=True, type=click.Choice(["none", "even", "odd"]))
@click.option("--stop-bits", default=1, show_default=True, type=click.IntRange(1, 2))
@click.option(
    "--byte-order", default="big", show_default=True, type=click.Choice(["big", "little"]), help="In a register."
)
@click.option(
    "--word-order", default="big", show_default=True, type=click.Choice(["big", "little"]), help="Of the registers."
)
@click.option(
    "--timeout",
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0.05, 60),
    help="Time for the connection and for each response.",
)
@click.option("--json", "as_json", is_flag=True, help="A JSON list, for programs.")
def read(
    device: str,
    registers: Sequence[str],
    unit_id: int,
    framing: Literal["tcp", "rtu"],
    baud: int,
    parity: Literal["none", "even", "odd"],
    stop_bits: int,
    byte_order: Literal["big", "little"],
    word_order: Literal["big", "little"],
    timeout: float,
    as_json: bool,
) -> None:
    """Read registers of DEVICE once, and print their content and value.

    DEVICE is HOST, HOST:PORT, tcp://HOST:PORT, or the path of a serial line. A line that the gateway uses cannot be
    read. REGISTER is [TABLE:]ADDRESS[-LAST][:TYPE][*SCALE]. TABLE is holding (default), input, coil or discrete.
    Addresses count from 0, and can be hexadecimal (0x48). LAST is the last register of a range. Types are those of
    mapping files: uint16 (default), int16, int32, uint32, int64, uint64, float32, float64, and string with its number
    of registers, such as string8.

    \b
    edge modbus read 192.168.1.40 input:0-20
    edge modbus read 192.168.1.40 'input:100:int16*0.1' 102:float32 --word-order little
    edge modbus read /dev/ttyUSB0 0-9 --unit-id 3 --parity even
    """
    from edge.modbus_client import MISSING, ModbusClient, NoResponse, is_installed

    wanted = [_wanted(text) for text in registers]
    if not is_installed():
        raise misused(MISSING)
    if device.startswith("/"):
        client = ModbusClient.line(device, baud, parity, stop_bits, timeout)
    else:
        client = ModbusClient.tcp(*_address(device), framing, timeout)

    def values() -> Iterator[dict[str, Any]]:
        client.connect()
        for each in wanted:
            yield from _read(client, unit_id, each, byte_order, word_order)

    try:
        complete = _show(values(), as_json=as_json)
    except NoResponse as error:
        raise refused(f"{printable(str(error))}; {_remedy(error, line=device.startswith('/'))}") from None
    finally:
        client.close()
    if not complete:
        sys.exit(REFUSED)


def _remedy(error: NoResponse, *, line: bool) -> str:
    failure = error.failure
    if "exclusively lock" in str(error):
        return _IN_USE
    if isinstance(failure, socket.gaierror):
        return "check the name, or write the IP address"
    number = failure.errno if isinstance(failure, OSError) else None
    if number in _FAILURES:
        return _FAILURES[number]
    if failure is not None:
        return "check whether this path is a serial line" if line else "check the address and the network"
    return _NO_ANSWER_OF_LINE if line else _NO_ANSWER


def _read(
    client: ModbusClient, unit_id: int, wanted: _Wanted, byte_order: _Order, word_order: _Order
) -> Iterator[dict[str, Any]]:
    """Yield the values of a range. If the device refuses a request, each half of it is read alone.

    Raises `NoResponse`.
    """
    from edge.mapping.modbus_values import RegisterFormat
    from edge.modbus_client import Refused

    form = RegisterFormat(wanted.type, wanted.size, byte_order, word_order)
    for addresses in wanted.requests():
        try:
            words = client.read(unit_id, wanted.table, addresses[0], len(addresses) * wanted.size)
        except Refused as error:
            if len(addresses) == 1 or error.code not in (2, 3):
                remedy = _REMEDIES.get(error.code)
                problem = f"{error.meaning}; {remedy}" if remedy else error.meaning
                for address in addresses:
                    yield _described(wanted, unit_id, address) | {"problem": problem}
                continue
            middle = len(addresses) // 2
            for half in (addresses[:middle], addresses[middle:]):
                yield from _read(client, unit_id, replace(wanted, addresses=half), byte_order, word_order)
            continue
        for at, address in enumerate(addresses):
            content = words[at * wanted.size : (at + 1) * wanted.size]
            value = bool(content[0]) if wanted.table in _BITS else form.decode(content)
            yield _described(wanted, unit_id, address) | {"content": content, "value": _scaled(value, wanted)}


def _described(wanted: _Wanted, unit_id: int, address: int) -> dict[str, Any]:
    scale = None if wanted.scale is None else _number(wanted.scale)
    return {"unit_id": unit_id, "table": wanted.table, "address": address, "type": wanted.type, "scale": scale}


def _scaled(value: object, wanted: _Wanted) -> object:
    """Return a value for JSON: a number with its scale, a text, a boolean, or None (no value)."""
    if value is None or isinstance(value, bool) or wanted.type.startswith("string"):
        return value
    return _number(Decimal(str(value)) if wanted.scale is None else Decimal(str(value)) * wanted.scale)


def _number(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() and abs(number) < 2**64 else float(number)


def _show(found: Iterator[dict[str, Any]], *, as_json: bool) -> bool:
    """Print values as they come; as JSON together, also if not all of them can be read. Returns whether all could be.

    Raises `NoResponse`.
    """
    listed: list[dict[str, Any]] = []
    complete = True
    try:
        for each in found:
            complete = complete and "problem" not in each
            if as_json:
                listed.append(each)
            else:
                click.echo(_line(each))
    finally:  # also after Ctrl-C
        if as_json:
            click.echo(json.dumps(listed, ensure_ascii=False, indent=2))
    return complete


def _line(each: Mapping[str, Any]) -> str:
    name = f"{each['table']:<8} {each['address']:>5}  {each['type']:<7}"
    if "problem" in each:
        return f"{name}  ! {each['problem']}"
    content = " ".join(f"{word:04x}" for word in each["content"]) if each["type"] != "bit" else ""
    value = "no value" if each["value"] is None else printable(json.dumps(each["value"], ensure_ascii=False))
    return f"{name}  {content + '  ' if content else ''}{value}"


def _wanted(text: str) -> _Wanted:
    """Return the registers that an argument names. Raises `Failure`."""
    from edge.mapping.modbus_values import FLOATS, INTEGERS

    match = _REGISTER.fullmatch(text)
    if match is None:
        raise misused(f'"{printable(text)}" is not a register, such as {_EXAMPLES}')
    table: Any = match["table"] or "holding"
    if table not in _TABLES:
        raise misused(f'"{table}" is not a table; there are: {", ".join(_TABLES)}')
    kind = match["type"] or ("bit" if table in _BITS else "uint16")
    sizes = {
        **{name: size for name, (size, _) in INTEGERS.items()},
        **{name: size for name, (size, _) in FLOATS.items()},
    }
    if table in _BITS:
        if match["type"] or match["scale"]:
            raise misused(f"{text}: a {table} is a bit, without type and scale")
        kind, size = "bit", 1
    elif length := re.fullmatch("string([0-9]{1,3})", kind):
        kind, size = "string", int(length[1])
    elif kind in sizes:
        size = sizes[kind]
    else:
        raise misused(f'"{kind}" is not a type; there are: {", ".join(sizes)}, and string8 for 8 registers')
    first, last = (
        int(each, 16 if each.startswith("0x") else 10) for each in (match["first"], match["last"] or match["first"])
    )
    if not 1 <= size <= _MOST or last < first or last + size - 1 > _LARGEST:
        raise misused(f"{text}: addresses are 0 to {_LARGEST}, the last one not below the first, strings 1 to {_MOST}")
    if match["last"] and (last - first + 1) % size:
        raise misused(f"{text}: LAST is the last register, and a value has {size}; {last - first + 1} are no multiple")
    return _Wanted(table, kind, size, range(first, last + 1, size), _scale(match["scale"], text))


def _scale(text: str | None, register: str) -> Decimal | None:
    if text is None:
        return None
    try:
        scale = Decimal(text)
    except InvalidOperation:
        raise misused(f'{register}: "{text}" is not a number') from None
    if not scale.is_finite() or abs(scale.adjusted()) > 40:
        raise misused(f"{register}: the scale must be between 1e-40 and 1e40")
    return scale


def _address(device: str) -> tuple[str, int]:
    """Return host and port. Raises `Failure`."""
    from urllib.parse import urlsplit

    text = printable(device)
    if _LINE_NAME.fullmatch(device):
        raise misused(f'"{text}" is not a host; write the whole path of a serial line, such as /dev/ttyUSB0')
    try:
        url = urlsplit(device if "://" in device else f"tcp://{device}")
        if url.netloc.count(":") > 1 and "[" not in url.netloc:
            raise misused(f'"{text}": an IPv6 address needs brackets, such as [fd00::40] or [fd00::40]:502')
        host, port = url.hostname, 502 if url.port is None else url.port
    except ValueError:
        host, port = None, 0
    if not host or not port or url.scheme != "tcp" or url.netloc.count("@") or url.path.strip("/") or url.query:
        raise misused(f'"{text}" is not a device, such as 192.168.1.40, tcp://meter:502, /dev/ttyUSB0')
    return host, port
