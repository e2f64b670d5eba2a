"""Addresses of the servers. Commands allow addresses beyond loopback only with encryption."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

import click


class Address(NamedTuple):
    """Host and TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as in a URL: IPv6 hosts have brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only programs on this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class AddressType(click.ParamType[Address]):
    """Option type for addresses: HOST:PORT or [IPV6]:PORT. Port 0 means any free port."""

    name = "HOST:PORT"

    def convert(self, value: str | Address, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Parse an address."""
        if isinstance(value, Address):
            return value
        found = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^:\s]+)):([0-9]{1,5})", value)
        if found is None or int(found[3]) > 65535:
            self.fail(f'"{value}" is not an address: write 127.0.0.1:8500 or [::1]:8500', param, ctx)
        return Address(found[1] or found[2], int(found[3]))
