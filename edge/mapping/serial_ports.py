"""Serial ports in mapping files: device, framing and checksum."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from edge.mapping.checksums import ALGORITHMS, ALIASES, Checksum
from edge.mapping.errors import BadKeyError, Fault, FaultsOfTable, nearest
from edge.mapping.fault_reasons import because
from edge.mapping.serial_model import ChecksumSpec, FramingSpec, SerialSpec
from edge.mapping.unused_keys import idle_port_keys

TOPIC: Final = "serial/"
"""Prefix of the topics of frames; the name of the port follows."""

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_USB: Final = re.compile(r"usb:([0-9A-Fa-f]{4}|\*):([0-9A-Fa-f]{4}|\*)(?::(.+))?")
_DEVICES: Final = '"/dev/serial/by-id/...", "/dev/ttyUSB0", "usb:10c4:ea60", "usb:10c4:ea60:SERIAL"'
# The keys that each kind of framing accepts.
_KEYS: Final = {
    "lines": ("end",),
    "slip": (),
    "hdlc": (),
    "cobs": (),
    "delimited": ("start", "end", "escape", "flip"),
    "length": ("sync", "at", "size", "endian", "plus"),
}


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """A USB device by its identity, on any USB port. None: any value."""

    vendor: int | None
    product: int | None
    serial: str | None


@dataclass(frozen=True, slots=True)
class Delimited:
    """Framing with delimiters that occur nowhere else."""

    end: bytes
    start: bytes = b""
    escape: bytes = b""
    changed: tuple[tuple[bytes, bytes], ...] = ()
    """Bytes that are escaped within a frame, and the bytes that follow the escape in their place."""
    text: bool = False
    """Whether frames are text. Data that is not text is then not a frame."""
    cobs: bool = False
    """Whether frames use Consistent Overhead Byte Stuffing, which removes zeros."""


@dataclass(frozen=True, slots=True)
class LengthPrefixed:
    """Framing with sync bytes and a length field."""

    sync: bytes
    at: int
    size: int
    endian: Literal["big", "little"]
    plus: int
    """Bytes of a frame that its length field does not count."""


@dataclass(frozen=True, slots=True, eq=False)
class SerialPort:
    """A compiled serial port."""

    name: str
    spec: SerialSpec
    device: str | UsbDevice
    """A path, or a USB identity."""
    framing: Delimited | LengthPrefixed
    checksum: Checksum | None
    place: Fault
    """Its position in the file, for later messages."""

    @property
    def topic(self) -> str:
        """Topic of its frames."""
        return TOPIC + self.name

    def same(self, other: SerialPort) -> bool:
        """Whether the settings of the port equal those of `other`."""
        return self.spec == other.spec


def port_of(topic: str) -> str:
    """Return the name of the port with this topic; empty: not a port's topic."""
    return topic.removeprefix(TOPIC).partition("/")[0] if topic.startswith(TOPIC) else ""


def serial_port(spec: SerialSpec, place: Fault, faults: FaultsOfTable) -> SerialPort | None:
    """Compile one port. Adds its faults to `faults`, and returns None if it cannot be used."""
    attempt = faults.attempt
    if not _NAME.fullmatch(spec.name):
        faults.add(BadKeyError(because("device_name"), key="name"))
    given = spec.crc
    checksum = None if given is None else attempt(lambda: _checksum(given))
    form = spec.framing
    framing = attempt(lambda: _framing(FramingSpec(kind=form) if isinstance(form, str) else form, checksum))
    device = attempt(lambda: line_device(spec.device))
    for key, reason in idle_port_keys(spec, 0 if checksum is None else checksum.algorithm.size):
        faults.warn(BadKeyError(reason, key=key))
    if faults.fatal or framing is None or device is None:
        return None
    return SerialPort(spec.name, spec, device, framing, checksum, place)


def line_device(text: str) -> str | UsbDevice:
    """Return a path, or the identity of a USB device. Raises `BadKeyError`."""
    if text.startswith("/"):
        return text
    found = _USB.fullmatch(text)
    if found is None:
        raise BadKeyError(f'"{text}" is neither a path nor a USB identity.', key="device", allowed=_DEVICES)
    vendor, product, serial = found.groups()
    # Such an identity would also match the adapters of other programs.
    if vendor == product == "*" and serial in (None, "*"):
        raise BadKeyError("This could be any device.", key="device", allowed=_DEVICES)
    return UsbDevice(
        None if vendor == "*" else int(vendor, 16),
        None if product == "*" else int(product, 16),
        None if serial == "*" else serial,
    )


def _checksum(given: str | ChecksumSpec) -> Checksum:
    spec = ChecksumSpec(name=given) if isinstance(given, str) else given
    name = spec.name.lower()
    algorithm = ALGORITHMS.get(ALIASES.get(name, name))
    if algorithm is None:
        known = [*ALGORITHMS, *ALIASES]
        raise BadKeyError(
            f'"{spec.name}" is not a known checksum.', key="crc", nearest=nearest(name, known), allowed=", ".join(known)
        )
    start = spec.start
    if start is None:
        start = 0 if spec.at is None else spec.at + algorithm.size
    return Checksum(algorithm, spec.endian or algorithm.endian, spec.at, start)


def _framing(spec: FramingSpec, checksum: Checksum | None) -> Delimited | LengthPrefixed:
    for key in spec.model_fields_set - {"kind"}:
        if key not in _KEYS[spec.kind] and getattr(spec, key) is not None:
            allowed = ", ".join(_KEYS[spec.kind]) or "none"
            raise BadKeyError(
                f'Framing of the kind "{spec.kind}" has no such key.', key=f"framing.{key}", allowed=allowed
            )
    if spec.kind == "length":
        return _length(spec, checksum)
    if spec.kind == "slip":
        # RFC 1055: END, ESC, ESC_END and ESC_ESC.
        return Delimited(b"\xc0", b"\xc0", b"\xdb", ((b"\xdb", b"\xdd"), (b"\xc0", b"\xdc")))
    if spec.kind == "hdlc":
        # RFC 1662, section 4.2: flag 0x7E, escape 0x7D; an escaped byte is XORed with 0x20.
        return Delimited(b"~", b"~", b"}", ((b"}", b"]"), (b"~", b"^")))
    if spec.kind == "cobs":
        return Delimited(b"\0", b"\0", cobs=True)
    if spec.kind == "lines":
        # A checksum already detects damaged lines. Without one, only text is accepted as a line.
        return Delimited(_bytes(spec.end, "end") or b"\n", text=checksum is None)
    return _delimited(spec)


def _delimited(spec: FramingSpec) -> Delimited:
    end, start, escape = (_bytes(getattr(spec, key), key) for key in ("end", "start", "escape"))
    if not end:
        raise BadKeyError("Frames between bytes have an end.", key="framing.end", allowed='"03", "0D0A"')
    if not escape:
        if spec.flip is not None:
            raise BadKeyError("Nothing is changed without an escape.", key="framing.flip")
        return Delimited(end, start)
    if len(escape) != 1 or len(end) != 1 or len(start) > 1:
        raise BadKeyError("Where there is an escape, all of them are one byte.", key="framing.escape")
    flip = 0x20 if spec.flip is None else spec.flip
    special = dict.fromkeys([escape, end, *([start] if start else [])])
    changed = tuple((byte, bytes([byte[0] ^ flip])) for byte in special)
    # The receiver could not tell the changed byte from a delimiter.
    if any(after in special for _, after in changed):
        raise BadKeyError("The byte after the escape is itself one of the special bytes.", key="framing.flip")
    return Delimited(end, start, escape, changed)


def _length(spec: FramingSpec, checksum: Checksum | None) -> LengthPrefixed:
    sync = _bytes(spec.sync, "sync")
    if not sync:
        raise BadKeyError(
            "Frames that tell their length begin with certain bytes.", key="framing.sync", allowed='"C000"'
        )
    at, size = len(sync) if spec.at is None else spec.at, spec.size or 1
    if at < len(sync):
        raise BadKeyError("The length stands behind sync.", key="framing.at")
    plus = spec.plus
    if plus is None:
        plus = at + size + (checksum.algorithm.size if checksum is not None and checksum.at is None else 0)
    return LengthPrefixed(sync, at, size, spec.endian or "big", plus)


def _bytes(text: str | None, key: str) -> bytes:
    if text is None:
        return b""
    try:
        found = bytes.fromhex(text)
    except ValueError:
        raise BadKeyError(
            because("no_hexadecimal", name=text), key=f"framing.{key}", allowed='"C0 00", "0D0A"'
        ) from None
    if not 1 <= len(found) <= 8:
        raise BadKeyError("1 to 8 bytes.", key=f"framing.{key}")
    return found
