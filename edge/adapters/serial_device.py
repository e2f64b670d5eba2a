"""Device of a serial port: found by path or USB identity, and opened exclusively."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import termios
from collections.abc import Iterable
from typing import Final

import serial
from serial.tools import list_ports
from serial.tools.list_ports_common import ListPortInfo

from edge.mapping.serial_ports import SerialPort, UsbDevice

_PARITIES: Final = {
    "none": serial.PARITY_NONE,
    "even": serial.PARITY_EVEN,
    "odd": serial.PARITY_ODD,
    "mark": serial.PARITY_MARK,
    "space": serial.PARITY_SPACE,
}
_TIOCGICOUNT: Final = 0x545D
"""ioctl_tty(2): counters of the line; `struct serial_icounter_struct` of the kernel, 20 integers."""
_OVERRUN, _BUFFER_OVERRUN = 7, 10


class DeviceUnavailable(Exception):
    """The device is missing or cannot be used; the text gives the reason."""


def find(device: str | UsbDevice) -> str:
    """Return the path of a device. Raises `DeviceUnavailable`, also if several devices match."""
    if isinstance(device, str):
        return device
    found = [each for each in list_ports.comports() if _is(each, device)]
    if len(found) == 1:
        return str(found[0].device)
    if found:
        raise DeviceUnavailable(
            f"several devices are like that: {_described(found)}; tell them apart by their serial number"
        )
    raise DeviceUnavailable("no such USB device is there")


def open_device(port: SerialPort) -> serial.Serial:
    """Open the device for non-blocking input and output. Raises `DeviceUnavailable`."""
    spec, path = port.spec, find(port.device)
    device = serial.Serial(
        None,
        spec.baud,
        spec.data_bits,
        _PARITIES[spec.parity],
        spec.stop_bits,
        timeout=0,
        xonxoff=spec.flow == "xonxoff",
        rtscts=spec.flow == "rtscts",
        exclusive=True,
    )
    device.port = path
    if spec.dtr is not None:
        device.dtr = spec.dtr
    if spec.rts is not None:
        device.rts = spec.rts
    try:
        device.open()
        os.set_blocking(device.fileno(), False)
        _keep_lines(device.fileno())
    except (OSError, ValueError, termios.error) as error:
        device.close()
        raise DeviceUnavailable(_why(path, error)) from None
    return device


def overruns(descriptor: int) -> int:
    """Return the characters that device or kernel dropped since the connection, if the driver counts them."""
    counters = array.array("i", bytes(20 * 4))
    try:
        fcntl.ioctl(descriptor, _TIOCGICOUNT, counters)
    except OSError:
        return 0
    return counters[_OVERRUN] + counters[_BUFFER_OVERRUN]


def _keep_lines(descriptor: int) -> None:
    """Keep DTR and RTS unchanged on close: falling edges reset many boards."""
    with contextlib.suppress(termios.error):
        settings = termios.tcgetattr(descriptor)
        settings[2] &= ~termios.HUPCL
        termios.tcsetattr(descriptor, termios.TCSANOW, settings)


def _is(found: ListPortInfo, device: UsbDevice) -> bool:
    if found.vid is None:
        return False
    wanted = ((device.vendor, found.vid), (device.product, found.pid), (device.serial, found.serial_number))
    return all(one is None or one == other for one, other in wanted)


def _described(found: Iterable[ListPortInfo]) -> str:
    return ", ".join(
        f"{each.device} (usb:{each.vid:04x}:{each.pid:04x}:{each.serial_number or '*'})"
        for each in sorted(found, key=lambda each: str(each.device))
    )


def _why(path: str, error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code is None and error.args and isinstance(error.args[0], int):
        code = error.args[0]
    if isinstance(error, serial.SerialException) and "exclusively lock" in str(error):
        return f"{path} is in use by another program"
    return f"{path}: {os.strerror(code) if code else error}"
