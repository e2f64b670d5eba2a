"""The file provision.toml of the owner on the boot partition: it is applied, and then cleared of its secrets."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sepa_edge_appliance.devices import may_be_called
from sepa_edge_appliance.files import remove, rename, write_in_place

CLEARED = "(applied)"
"""Placeholder for a removed secret."""
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123, section 2.1."""
_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-\S+|sk-\S+) [A-Za-z0-9+/=]+( [^\n]*)?")
_COUNTRY = re.compile(r"[A-Z]{2}")
"""ISO 3166-1 country code, for the radio regulations."""
_URL = re.compile(r"https://[A-Za-z0-9.\[\]:_/~%-]+")
_SECRET = re.compile(
    r"""^(\s*(?:\#\s*)?(?:password|token)\s*=\s*)(?!"\.\.\.")("(?:[^"\\\n]|\\.)+"|'[^'\n]+')""", re.MULTILINE
)


class ProvisioningRefused(Exception):
    """The file is invalid, and no part of it is applied. The text names the necessary change."""


@dataclass(frozen=True)
class Network:
    """Settings of the wired network. Without an address it uses DHCP."""

    address: str = ""
    """Address with prefix length."""
    gateway: str = ""
    dns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wifi:
    """A wireless network."""

    name: str
    password: str
    """Empty for an open network; `CLEARED` keeps the previous password."""
    country: str
    """Country whose radio regulations apply."""


@dataclass(frozen=True)
class HistoryAddress:
    """HTTPS URL of `edge-history receive`, to which observations are shipped; empty disables the shipment."""

    url: str
    token: str
    """Token; `CLEARED` keeps the previous one."""


@dataclass(frozen=True)
class Wanted:
    """Content of the file. Settings that the file omits, or that were applied before, stay as they are on the box."""

    hostname: str = ""
    devices: tuple[tuple[str, str], ...] = ()
    """Name and password of each device; `CLEARED` keeps the previous password."""
    keys: tuple[str, ...] | None = None
    """Public keys for SSH, which replace the previous ones."""
    network: Network | None = None
    wifi: Wifi | None = None
    history: HistoryAddress | None = None


def read(file: Path) -> Wanted:
    """Read and validate the file. A missing file requests no changes. Raises `ProvisioningRefused`."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
        found = tomllib.loads(text)
    except FileNotFoundError:
        return Wanted()
    except (OSError, ValueError) as error:
        raise ProvisioningRefused(f"{file.name} cannot be read: {error}") from error
    if not _can_be_cleared(text):
        raise ProvisioningRefused('write each password and each token on a line of its own, as password = "..."')
    if unknown := set(found) - {"hostname", "device", "ssh", "network", "wifi", "history"}:
        known = "hostname, [[device]], [ssh], [network], [wifi] and [history]"
        raise ProvisioningRefused(f"{file.name}: {min(unknown)} is not known; valid names are {known}")
    name = found.get("hostname", "")
    if "hostname" in found and not (isinstance(name, str) and _HOSTNAME.fullmatch(name)):
        raise ProvisioningRefused(f'hostname: "{name}" is not a name; use lower-case letters, digits and hyphens')
    return Wanted(
        name,
        tuple(_devices(found.get("device", []))),
        _keys(found.get("ssh", {})),
        _network(found["network"]) if "network" in found else None,
        _wifi(found["wifi"]) if "wifi" in found else None,
        _history(found["history"]) if "history" in found else None,
    )


def clear(file: Path) -> None:
    """Remove the secrets from the file, so that they cannot be read from the card in another machine."""
    try:
        text = file.read_bytes().decode()
    except FileNotFoundError:
        return
    cleared = _cleared(text)
    if cleared == text:
        return
    # In place and over the whole length: a new file would leave the old text on the card. A power cut may leave some
    # sectors of the old text between those of the new one, so a copy of the new text exists until all is written.
    blank = cleared.encode().ljust(len(text.encode()), b"\n")
    copy = _copy(file)
    new = copy.with_suffix(".new")
    write_in_place(new, blank)
    rename(new, copy)
    write_in_place(file, blank)
    remove(copy)


def finish_clearing(file: Path) -> None:
    """Clear the file to its end if a power cut interrupted that, unless its owner has changed it since."""
    copy = _copy(file)
    remove(copy.with_suffix(".new"))
    if not copy.exists():
        return
    blank, found = copy.read_bytes(), file.read_bytes() if file.exists() else b""
    if found and found != blank and (len(found) == len(blank) or not _can_be_cleared(found.decode(errors="replace"))):
        write_in_place(file, blank)
    remove(copy)


def _copy(file: Path) -> Path:
    """Return the file with the text without secrets, which exists while the original is overwritten."""
    return file.with_suffix(".cleared")


def _cleared(text: str) -> str:
    return _SECRET.sub(rf'\g<1>"{CLEARED}"', text)


def _can_be_cleared(text: str) -> bool:
    try:
        return all(secret in (CLEARED, "") for secret in _secrets(tomllib.loads(_cleared(text))))
    except tomllib.TOMLDecodeError:
        return False


def _secrets(found: object) -> Iterator[object]:
    """Yield all passwords and tokens of the file."""
    if isinstance(found, list):
        for one in found:
            yield from _secrets(one)
    elif isinstance(found, dict):
        for key, value in found.items():
            if key in {"password", "token"}:
                yield value
            else:
                yield from _secrets(value)


def _devices(found: object) -> list[tuple[str, str]]:
    devices = []
    for position, one in enumerate(found if isinstance(found, list) else [found], 1):
        device = _table(f"device {position}", one, {"name", "password"})
        name, password = device.get("name"), device.get("password")
        if not isinstance(name, str) or not may_be_called(name):
            raise ProvisioningRefused(
                f"device {position}: name is missing, reserved or invalid; use letters, digits, . _ -"
            )
        if not isinstance(password, str) or not password or not password.isprintable():
            raise ProvisioningRefused(
                f"device {position} ({name}): password is missing, or has characters that cannot be printed"
            )
        devices.append((name, password))
    return devices


def _keys(found: object) -> tuple[str, ...] | None:
    keys = _table("ssh", found, {"authorized_keys"}).get("authorized_keys")
    if keys is None:
        return None
    if not isinstance(keys, list) or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys):
        raise ProvisioningRefused('ssh: authorized_keys is a list of public keys, like ["ssh-ed25519 AAAA... me"]')
    return tuple(keys)


def _network(found: object) -> Network:
    keys = _table("network", found, {"address", "gateway", "dns"})
    dns = keys.get("dns", [])
    if keys.get("address") == "dhcp" and len(keys) == 1:
        return Network()
    try:
        interface = ipaddress.ip_interface(_plain(keys.get("address")))
        gateway = ipaddress.ip_address(_plain(keys["gateway"])) if "gateway" in keys else ""
        servers = tuple(str(ipaddress.ip_address(_plain(one))) for one in (dns if isinstance(dns, list) else [dns]))
    except ValueError as error:
        raise ProvisioningRefused(
            f'network: {error}; write address = "192.0.2.7/24", or address = "dhcp" alone'
        ) from error
    if "/" not in str(keys["address"]):
        raise ProvisioningRefused(f'network: address {interface.ip} has no prefix length; write "{interface.ip}/24"')
    return Network(str(interface), str(gateway), servers)


def _plain(address: object) -> str:
    """Return an address as it is written. A zone (RFC 4007) is refused, because it can contain any text."""
    if not isinstance(address, str) or "%" in address:
        raise ValueError(f"{address!r} is not an address")
    return address


def _wifi(found: object) -> Wifi:
    keys = _table("wifi", found, {"name", "password", "country"})
    name, password, country = keys.get("name", ""), keys.get("password", ""), keys.get("country", "")
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= 32:
        raise ProvisioningRefused("wifi: name is missing, or has more than 32 bytes")
    if (
        not isinstance(password, str)
        or (password and not 8 <= len(password.encode()) <= 63)
        or not password.isprintable()
    ):
        raise ProvisioningRefused("wifi: a password has 8 to 63 characters, or is  for an open network")
    if not isinstance(country, str) or not _COUNTRY.fullmatch(country):
        raise ProvisioningRefused('wifi: country is missing; it sets the radio regulations, like country = "DE"')
    return Wifi(name, password, country)


def _history(found: object) -> HistoryAddress:
    keys = _table("history", found, {"url", "token"})
    url, token = keys.get("url"), keys.get("token", "")
    if url == "":
        return HistoryAddress("", "")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise ProvisioningRefused("history: url must be an https URL")
    if not isinstance(token, str) or not token or not token.isprintable():
        raise ProvisioningRefused("history: token is missing; `edge-history gateways add` prints one")
    return HistoryAddress(url, token)


def _table(name: str, found: object, known: set[str]) -> dict[str, object]:
    if not isinstance(found, dict):
        raise ProvisioningRefused(f"{name} is not a table; begin it with its name in brackets")
    if unknown := set(found) - known:
        raise ProvisioningRefused(f"{name}: {min(unknown)} is not known; valid names are {', '.join(sorted(known))}")
    return found
