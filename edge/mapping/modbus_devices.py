"""Modbus devices in mapping files: connection, register map, and the mapping of their values."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from edge.mapping.errors import BadKeyError, Fault, FaultsOfTable
from edge.mapping.fault_reasons import because
from edge.mapping.modbus_model import ModbusSpec, RegisterSpec, WriteSpec
from edge.mapping.modbus_polling import BITS, PollGroup, RegisterTable, poll_groups
from edge.mapping.modbus_values import FLOATS, INTEGERS, RegisterFormat
from edge.mapping.model import MappingSpec, ReadingKeys, ReadingSpec, SetSpec
from edge.mapping.serial_ports import UsbDevice, line_device

TOPIC: Final = "modbus/"
"""Prefix of the topics of values; the name of the device follows."""
AVAILABLE: Final = "available"
"""Last level of the topic that tells whether the device answers, and name of that value."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_VALUE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LINE_KEYS: Final = ("baud", "parity", "stop_bits")
_TCP_KEYS: Final = ("port", "framing")
_POLLING: Final = ("unit_id", "timeout", "gap", "max_registers", "max_bits")
"""Keys of a device that requests depend on, and that its registers do not contain."""
_HIGHEST: Final = 65_535
_MOST_BROADCAST: Final = 247
"""Highest address of a device on a serial line (Modbus over serial line, V1.02, section 2.2)."""


@dataclass(frozen=True, slots=True)
class TcpBus:
    """A TCP connection."""

    host: str
    port: int
    framing: Literal["tcp", "rtu"]

    @property
    def place(self) -> tuple[object, ...]:
        """The part of the address that allows one connection at a time."""
        return self.host, self.port

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class LineBus:
    """A serial line."""

    device: str | UsbDevice
    baud: int
    parity: Literal["none", "even", "odd"]
    stop_bits: Literal[1, 2]

    @property
    def place(self) -> tuple[object, ...]:
        """The part of the address that allows one connection at a time."""
        return (self.device,)

    def __str__(self) -> str:
        if isinstance(self.device, str):
            return self.device
        return f"usb:{self.device.vendor or 0:04x}:{self.device.product or 0:04x}"


@dataclass(frozen=True, slots=True)
class Register:
    """A compiled register."""

    name: str
    table: RegisterTable
    address: int
    count: int
    interval: float
    """Seconds between two polls."""
    format: RegisterFormat | None
    """None: one bit."""
    function: int | None
    """Function code of writes; None: it cannot be written."""
    scale: Decimal | None
    offset: Decimal | None
    low: Decimal | None = None
    """Smallest value that is written; None: any."""
    high: Decimal | None = None
    """Largest value that is written; None: any."""

    def check(self, value: Decimal) -> None:
        """Raise `ValueError` if a value is beyond the limits."""
        if self.low is not None and value < self.low:
            raise ValueError(f"{value} is less than {self.low} (write.min)")
        if self.high is not None and value > self.high:
            raise ValueError(f"{value} is more than {self.high} (write.max)")


@dataclass(frozen=True, slots=True, eq=False)
class ModbusDevice:
    """A compiled device."""

    name: str
    spec: ModbusSpec
    bus: TcpBus | LineBus
    registers: tuple[Register, ...]
    place: Fault
    """Its position in the file, for later messages."""
    groups: tuple[PollGroup, ...] = field(init=False)

    def __post_init__(self) -> None:
        spec = self.spec

        def limit(table: RegisterTable) -> int:
            return spec.max_bits if table in BITS else spec.max_registers

        object.__setattr__(self, "groups", poll_groups(self.registers, limit, spec.gap))

    @property
    def topic(self) -> str:
        """Topic of its values."""
        return TOPIC + self.name

    def same(self, other: ModbusDevice) -> bool:
        """Whether the connection and the registers equal those of `other`. Terms and labels may differ."""
        mine, theirs = (
            (each.name, each.bus, each.registers, *(getattr(each.spec, key) for key in _POLLING))
            for each in (self, other)
        )
        return mine == theirs

    def register(self, topic: str) -> Register | None:
        """Return the register that commands of a topic write; None without one."""
        name = topic.removeprefix(f"{self.topic}/")
        return next((each for each in self.registers if each.name == name and each.function is not None), None)


def device_of(topic: str) -> str:
    """Return the name of the device with this topic; empty: not a device's topic."""
    return topic.removeprefix(TOPIC).partition("/")[0] if topic.startswith(TOPIC) else ""


def modbus_device(spec: ModbusSpec, defaults: ReadingKeys, place: Fault, faults: FaultsOfTable) -> ModbusDevice | None:
    """Compile one device. `defaults`: those of the file. Adds its faults to `faults`; returns None if it cannot be
    used.
    """
    if not _NAME.fullmatch(spec.name):
        faults.add(BadKeyError(because("device_name"), key="name"))
    bus = faults.attempt(lambda: _bus(spec))
    if not spec.registers:
        faults.add(BadKeyError(because("no_registers"), key="registers"))
    registers: list[Register] = []
    names: set[str] = set()
    for index, register in enumerate(spec.registers):
        try:
            if register.name in names:
                raise BadKeyError(because("register_taken"), key="name")
            names.add(register.name)
            registers.append(_register(register, spec, defaults))
        except BadKeyError as error:
            fault = error.fault
            key = f"registers[{index}]" + (f".{fault.key}" if fault.key else "")
            faults.add(BadKeyError(fault.reason, key=key, allowed=fault.allowed, nearest=fault.nearest))
    if faults.fatal or bus is None:
        return None
    return ModbusDevice(spec.name, spec, bus, tuple(registers), place)


def value_mapping(spec: ModbusSpec, defaults: ReadingKeys) -> MappingSpec:
    """Return the mapping of the values of a device. Its readings have the numbers of the registers."""
    keys = {key: getattr(spec, key) for key in ReadingKeys.model_fields}
    for key, value in _terms(spec.name).items():
        if keys[key] is None and getattr(defaults, key) is None:
            keys[key] = value
    return MappingSpec(
        **keys,
        name=f"modbus {spec.name}",
        topic=f"{TOPIC}{spec.name}",
        payload="json",
        readings=[_reading(each, spec, defaults) for each in spec.registers],
    )


def availability_mapping(spec: ModbusSpec) -> MappingSpec:
    """Return the mapping of the message that tells whether the device answers."""
    terms = _terms(spec.name)
    return MappingSpec(
        sensor=spec.sensor or terms["sensor"],
        sensor_label=spec.sensor_label,
        location=spec.location or terms["location"],
        name=f"modbus {spec.name} {AVAILABLE}",
        topic=f"{TOPIC}{spec.name}/{AVAILABLE}",
        payload="text",
        observation=f"edge:modbus:{spec.name}/{AVAILABLE}",
        property=f"edge:property:{AVAILABLE}",
        label=f"{spec.name} {AVAILABLE}",
        unit="unit:Unitless",
        values={"online": True, "offline": False},
    )


def _terms(name: str) -> dict[str, str]:
    return {"sensor": f"edge:modbus:{name}", "location": f"edge:place:{name}"}


def _reading(register: RegisterSpec, spec: ModbusSpec, defaults: ReadingKeys) -> ReadingSpec:
    keys = {key: getattr(register, key) for key in ReadingKeys.model_fields}

    def lacks(key: str) -> bool:
        return keys[key] is None and getattr(spec, key) is None and getattr(defaults, key) is None

    made = {
        "observation": f"edge:modbus:{spec.name}/{register.name}",
        "property": f"edge:property:{register.name}",
        "label": f"{register.name.replace('_', ' ')} of {spec.name}",
        **({"unit": "unit:Unitless"} if lacks("unit_from") else {}),
    }
    keys.update({key: value for key, value in made.items() if lacks(key)})
    truth = register.table in BITS or isinstance(register.bit, int)
    if lacks("values") and (truth or register.type == "string"):
        keys["datatype"] = keys["datatype"] or ("boolean" if truth else "string")
    setter = _setter(register, spec, defaults) if register.write else None
    return ReadingSpec(path=register.name, **keys, set=setter)


def _setter(register: RegisterSpec, spec: ModbusSpec, defaults: ReadingKeys) -> SetSpec:
    limits = register.write if isinstance(register.write, WriteSpec) else WriteSpec()
    calculated = any(getattr(keys, key) is not None for keys in (register, spec, defaults) for key in _ARITHMETIC)
    return SetSpec(
        topic=f"{TOPIC}{spec.name}/{register.name}",
        # The adapter converts the value to that of the register.
        scale=Decimal(1) if calculated else None,
        min=limits.min,
        max=limits.max,
        step=limits.step,
    )


_ARITHMETIC: Final = ("scale", "offset")


def _bus(spec: ModbusSpec) -> TcpBus | LineBus:
    if (spec.host is None) == (spec.device is None):
        raise BadKeyError("A device has either a host or a serial line.", key="host", allowed="host, device")
    for key in _TCP_KEYS if spec.host is None else _LINE_KEYS:
        if getattr(spec, key) is not None:
            kind = "serial lines" if key in _LINE_KEYS else "TCP connections"
            raise BadKeyError(f"This is for {kind}.", key=key)
    if spec.device is not None:
        if spec.unit_id > _MOST_BROADCAST:
            raise BadKeyError(f"On a serial line, an address is at most {_MOST_BROADCAST}.", key="unit_id")
        return LineBus(line_device(spec.device), spec.baud or 9600, spec.parity or "none", spec.stop_bits or 1)
    host = str(spec.host).strip()
    if not host or re.search(r"[\s/@\[\]]", host) or host.count(":") == 1:
        raise BadKeyError("A host is a name or an address, without a port.", key="host")
    return TcpBus(host, spec.port or 502, spec.framing or "tcp")


def _register(register: RegisterSpec, spec: ModbusSpec, defaults: ReadingKeys) -> Register:
    if not _VALUE_NAME.fullmatch(register.name) or register.name == AVAILABLE:
        reason = f'A name has 1 to 64 letters, digits and _, begins with no digit, and is not "{AVAILABLE}".'
        raise BadKeyError(reason, key="name")
    bits = register.table in BITS
    for key in ("type", "length", "bit", "byte_order", "word_order", "no_value") if bits else ():
        if getattr(register, key) is not None:
            raise BadKeyError("Coils and discrete inputs are single bits.", key=key)
    form = None if bits else _format(register, spec)
    count = 1 if form is None else form.count
    if register.address + count - 1 > _HIGHEST:
        raise BadKeyError(f"The value ends after the last address {_HIGHEST}.", key="address")
    if form is not None and count > spec.max_registers:
        raise BadKeyError(f"The value has {count} registers; one request reads {spec.max_registers}.", key="length")
    scale, offset = (_first(key, register, spec, defaults) for key in _ARITHMETIC)
    function = _function(register, count, scale) if register.write else None
    interval = spec.interval if register.interval is None else register.interval
    limits = register.write if isinstance(register.write, WriteSpec) else WriteSpec()
    return Register(
        register.name,
        register.table,
        register.address,
        count,
        float(interval),
        form,
        function,
        scale,
        offset,
        limits.min,
        limits.max,
    )


def _first(key: str, *tables: ReadingKeys) -> Decimal | None:
    return next((value for table in tables if (value := getattr(table, key)) is not None), None)


def _format(register: RegisterSpec, spec: ModbusSpec) -> RegisterFormat:
    kind = register.type or "uint16"
    if (kind == "string") != (register.length is not None):
        raise BadKeyError("A string has a length, and no other type has.", key="length", allowed="1 to 125 registers")
    count = register.length or (INTEGERS[kind][0] if kind in INTEGERS else FLOATS[kind][0])
    given = register.no_value
    no_value = frozenset([given] if isinstance(given, int) else given or ())
    if any(each >> 16 * count for each in no_value):
        raise BadKeyError(f"The content is larger than {count} registers.", key="no_value")
    bits = None
    if register.bit is not None:
        if kind not in INTEGERS:
            raise BadKeyError("Only integers have bits.", key="bit")
        bits = (register.bit, 1) if isinstance(register.bit, int) else register.bit
        if sum(bits) > 16 * count:
            raise BadKeyError(f"This is beyond the {16 * count} bits of the value.", key="bit")
    return RegisterFormat(
        kind,
        count,
        register.byte_order or spec.byte_order,
        register.word_order or spec.word_order,
        bits,
        no_value,
    )


def _function(register: RegisterSpec, count: int, scale: Decimal | None) -> int:
    """Return the function code of writes. Raises `BadKeyError`."""
    if register.table in ("input", "discrete"):
        raise BadKeyError(
            "Input registers and discrete inputs cannot be written.", key="write", allowed="holding, coil"
        )
    if register.bit is not None:
        raise BadKeyError("Single bits of a register cannot be written: the other bits could change.", key="write")
    if register.scale_from is not None or register.scale10_from is not None:
        raise BadKeyError("A value that the device scales cannot be written.", key="write")
    if scale is not None and not scale:
        raise BadKeyError("A value with the scale 0 cannot be written.", key="write")
    coil = register.table == "coil"
    wanted = register.write.function if isinstance(register.write, WriteSpec) else None
    allowed = (5, 15) if coil else (6, 16) if count == 1 else (16,)
    if wanted is not None and wanted not in allowed:
        raise BadKeyError(
            "The table and the size of the value do not allow this function.",
            key="write",
            allowed=", ".join(map(str, allowed)),
        )
    return wanted or allowed[0]
