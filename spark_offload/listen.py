"""Where a server of ours listens: this machine alone, unless others cannot read what is sent."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

import click


class Address(NamedTuple):
    """Of a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        """As in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine's programs reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class AddressType(click.ParamType[Address]):
    """An address as people write it: HOST:PORT, [IPV6]:PORT, and port 0 for any that is free."""

    name = "HOST:PORT"

    def convert(self, value: str | Address, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        """Read it."""
        if isinstance(value, Address):
            return value
        found = re.fullmatch(r"(?:\[([0-9a-fA-F:]+)\]|([^:\s]+)):([0-9]{1,5})", value)
        if found is None or int(found[3]) > 65535:
            self.fail(f'"{value}" is no address: write 127.0.0.1:8500 or [::1]:8500', param, ctx)
        return Address(found[1] or found[2], int(found[3]))
