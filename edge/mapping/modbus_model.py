"""Model of Modbus devices in mapping files: the connection, and the map of registers."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from edge.mapping.model import Number, ReadingKeys
from edge.mapping.toml_table import Table

Bit = Annotated[int, Field(strict=True, ge=0, le=63)]
Interval = Annotated[Number, Field(ge=Decimal("0.1"), le=86_400)]


class WriteSpec(Table):
    """How the value of a register is written."""

    min: Number | None = Field(default=None, description="Smallest desired value.")
    max: Number | None = Field(default=None, description="Largest desired value.")
    step: Annotated[Number, Field(gt=0)] | None = Field(default=None, description="Distance of the values of a slider.")
    function: Literal[5, 6, 15, 16] | None = Field(
        default=None,
        description="Function code. Default: 5 for coils, 6 for one register, 16 for several.",
    )


class RegisterSpec(ReadingKeys):
    """One value of a Modbus device, and the keys of its reading."""

    name: str = Field(description="Name of the value: the member of the payload.")
    address: Annotated[int, Field(strict=True, ge=0, le=65_535)] = Field(
        description="Address in requests, which begins at 0. Many manuals count from 1, or add 30001 or 40001."
    )
    table: Literal["holding", "input", "coil", "discrete"] = Field(
        default="holding",
        description="holding registers (function 3), input registers (4), coils (1), discrete inputs (2).",
    )
    type: Literal["int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "string"] | None = (
        Field(default=None, description="Type of the registers. Default: uint16.")
    )
    length: Annotated[int, Field(strict=True, ge=1, le=125)] | None = Field(
        default=None, description="Registers of a string; each has two characters."
    )
    bit: Bit | tuple[Bit, Annotated[int, Field(strict=True, ge=1, le=64)]] | None = Field(
        default=None, description="One bit of the integer (0 is the lowest), or [lowest bit, number of bits]."
    )
    byte_order: Literal["big", "little"] | None = Field(
        default=None, description="Order of the bytes of a register. Default: that of the device."
    )
    word_order: Literal["big", "little"] | None = Field(
        default=None, description="Order of the registers of a value. Default: that of the device."
    )
    no_value: Annotated[int, Field(strict=True, ge=0)] | list[Annotated[int, Field(strict=True, ge=0)]] | None = Field(
        default=None, description='Content that means "no value", without sign: 0x8000, or [0x7FFF, 0x8000].'
    )
    interval: Interval | None = Field(
        default=None, description="Seconds between two polls. Default: that of the device."
    )
    write: StrictBool | WriteSpec | None = Field(
        default=None, description="Whether the value can be set: true, or { min = 5, max = 30 }. Default: false."
    )


class ModbusSpec(ReadingKeys):
    """One Modbus device. Its keys of readings are the defaults of its registers."""

    name: str = Field(description="Its values are a message of the topic modbus/NAME.")
    host: str | None = Field(default=None, description="Host name or address of the device or its gateway.")
    port: Annotated[int, Field(strict=True, ge=1, le=65_535)] | None = Field(
        default=None, description="TCP port. Default: 502."
    )
    framing: Literal["tcp", "rtu"] | None = Field(
        default=None, description="Frames on a TCP connection: tcp (default), or rtu for simple serial servers."
    )
    device: str | None = Field(
        default=None, description="Serial line: a path such as /dev/serial/by-id/..., or usb:VENDOR:PRODUCT[:SERIAL]."
    )
    baud: Annotated[int, Field(strict=True, ge=300, le=4_000_000)] | None = Field(
        default=None, description="Bits a second. Default: 9600."
    )
    parity: Literal["none", "even", "odd"] | None = Field(default=None, description="Parity bit. Default: none.")
    stop_bits: Literal[1, 2] | None = Field(default=None, description="Stop bits. Default: 1.")
    unit_id: Annotated[int, Field(strict=True, ge=1, le=255)] = Field(
        default=1, description="Address of the device on its bus: 1 to 247; with TCP also 255."
    )
    interval: Interval = Field(default=Decimal(10), description="Seconds between two polls.")
    timeout: Annotated[Number, Field(ge=Decimal("0.05"), le=60)] | None = Field(
        default=None, description="Seconds to wait for a response. Default: modbus.timeout."
    )
    gap: Annotated[int, Field(strict=True, ge=0, le=124)] = Field(
        default=0, description="Unused addresses between two values that one request may read as well."
    )
    max_registers: Annotated[int, Field(strict=True, ge=4, le=125)] = Field(
        default=125, description="Most registers of one request."
    )
    max_bits: Annotated[int, Field(strict=True, ge=1, le=2000)] = Field(
        default=2000, description="Most coils or discrete inputs of one request."
    )
    byte_order: Literal["big", "little"] = Field(
        default="big", description="Order of the bytes of a register. The standard demands big."
    )
    word_order: Literal["big", "little"] = Field(
        default="big", description="Order of the registers of a value; little: the lowest one comes first."
    )
    registers: list[RegisterSpec] = Field(description="The values of the device.")
