"""Model of serial ports in mapping files."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from edge.mapping.toml_table import Table


class FramingSpec(Table):
    """Framing of a serial port."""

    kind: Literal["lines", "slip", "hdlc", "cobs", "delimited", "length"] = Field(
        default="lines",
        description="lines of text, SLIP (RFC 1055), HDLC-like byte stuffing (RFC 1662), COBS, frames between given "
        "bytes, or frames that tell their length.",
    )
    start: str | None = Field(default=None, description="delimited: the bytes a frame begins with, in hexadecimal.")
    end: str | None = Field(
        default=None, description="delimited, lines: the bytes a frame ends with, in hexadecimal. Lines: 0A."
    )
    escape: str | None = Field(
        default=None, description="delimited: the byte that says that the next one is changed, in hexadecimal."
    )
    flip: Annotated[int, Field(strict=True, ge=1, le=255)] | None = Field(
        default=None, description="delimited: the bits that are changed in an escaped byte. Default: 0x20."
    )
    sync: str | None = Field(default=None, description="length: the bytes every frame begins with, in hexadecimal.")
    at: Annotated[int, Field(strict=True, ge=0, le=255)] | None = Field(
        default=None, description="length: where in the frame its length stands. Default: after sync."
    )
    size: Literal[1, 2, 4] | None = Field(default=None, description="length: bytes of the length. Default: 1.")
    endian: Literal["big", "little"] | None = Field(
        default=None, description="length: the order of these bytes. Default: big."
    )
    plus: Annotated[int, Field(strict=True, ge=-255, le=255)] | None = Field(
        default=None,
        description="length: how many bytes more than its length a frame has, from sync to checksum. Default: those "
        "up to the end of the length, and those of a checksum at the end.",
    )


class ChecksumSpec(Table):
    """Checksum of frames."""

    name: str = Field(description="crc-16/modbus, crc-32, xor8 and so on.")
    endian: Literal["big", "little"] | None = Field(
        default=None, description="The order of its bytes. Default: little for reflected CRCs, else big."
    )
    at: Annotated[int, Field(strict=True, ge=0, le=255)] | None = Field(
        default=None, description="Where in the frame it stands. Default: at the end."
    )
    start: Annotated[int, Field(strict=True, ge=0, le=255)] | None = Field(
        default=None, description="The first byte that it is of. Default: the first, or the one after it."
    )


class SerialSpec(Table):
    """One serial port."""

    name: str = Field(description="Its frames are messages of the topic serial/NAME.")
    device: str = Field(description="Path such as /dev/serial/by-id/..., or usb:VENDOR:PRODUCT[:SERIAL].")
    baud: Annotated[int, Field(strict=True, ge=50, le=12_000_000)] = Field(
        default=115_200, description="Bits a second."
    )
    data_bits: Literal[5, 6, 7, 8] = Field(default=8, description="Bits of a character.")
    parity: Literal["none", "even", "odd", "mark", "space"] = Field(default="none", description="Parity bit.")
    stop_bits: Literal[1, 2] = Field(default=1, description="Stop bits.")
    flow: Literal["none", "rtscts", "xonxoff"] = Field(default="none", description="Flow control.")
    dtr: StrictBool | None = Field(default=None, description="State of the line DTR. Default: left alone.")
    rts: StrictBool | None = Field(default=None, description="State of the line RTS. Default: left alone.")
    framing: Literal["lines", "slip", "hdlc", "cobs"] | FramingSpec = Field(
        default="lines", description="Framing of the byte stream."
    )
    crc: str | ChecksumSpec | None = Field(default=None, description="Checksum of the frames. Default: none.")
    skip: Annotated[int, Field(strict=True, ge=0, le=255)] = Field(
        default=0, description="Bytes at the beginning of a frame that are not part of the payload."
    )
    max_frame: Annotated[int, Field(strict=True, ge=1, le=65_536)] | None = Field(
        default=None, description="Longest frame in bytes. Default: serial.max_frame."
    )
