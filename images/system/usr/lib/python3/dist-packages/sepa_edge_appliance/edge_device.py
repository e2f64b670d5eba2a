"""Manage the devices that may connect to the box's MQTT broker (port 8883, TLS).

    edge-device add NAME        add a device and print its password, which is not stored in clear text
    edge-device add NAME -      add a device with the password from standard input
    edge-device remove NAME     remove a device and close its connection
    edge-device list            list all devices

A device reads and writes NAME/# and, where firmware puts its name second, tele/NAME/#, stat/NAME/#, cmnd/NAME/#,
shellies/NAME/# and senml/NAME/#.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from typing import NoReturn

from sepa_edge_appliance import devices


def main(words: list[str]) -> None:
    """Run a command."""
    match words:
        case ["list"]:
            print("\n".join(name for name in devices.names() if name != devices.GATEWAY))
        case ["add", name] | ["add", name, "-"]:
            checked(name)
            password = sys.stdin.readline().rstrip("\r\n") if words[-1] == "-" else secrets.token_urlsafe(18)
            if not password:
                fail("a password is missing on standard input")
            devices.let_in(name, password)
            # Mosquitto reads the file again. Open connections stay.
            subprocess.run(["systemctl", "reload", "mosquitto"], check=True)
            if words[-1] != "-":
                print(password)
        case ["remove", name]:
            checked(name)
            if name not in devices.names():
                fail(f"{name} is not on the list; edge-device list shows it")
            devices.shut_out(name)
            # A reload would leave an open connection of the device.
            subprocess.run(["systemctl", "restart", "mosquitto"], check=True)
        case ["--help" | "-h"]:
            print((__doc__ or "").strip())
        case _:
            fail("usage: add NAME [-], remove NAME or list; see --help")


def checked(name: str) -> None:
    """Exit with an error if a device cannot have this name."""
    if not devices.may_be_called(name):
        fail(f"{name} is not a device name; use letters, digits, . _ - and no reserved name")


def fail(text: str) -> NoReturn:
    """Exit with an error message."""
    sys.exit(f"edge-device: {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
