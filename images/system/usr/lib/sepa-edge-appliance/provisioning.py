"""What the owner of a box wrote on its boot partition: applied, then cleared of its secrets."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

CLEARED = "(applied)"
"""What stands where a secret was."""
_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123, section 2.1."""
_DEVICE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-\S+|sk-\S+) [A-Za-z0-9+/=]+( [^\n]*)?")
_SECRET = re.compile(r"""^(\s*(?:password|token|psk)\s*=\s*)("[^"\n]*"|'[^'\n]*')""", re.MULTILINE)


class Refused(Exception):
    """The file cannot be applied; the text says what is to be changed. Nothing of it is."""


@dataclass(frozen=True)
class Wanted:
    """What the file says."""

    hostname: str = ""
    devices: tuple[tuple[str, str], ...] = ()
    """Name and password of each that is to be let in."""
    keys: tuple[str, ...] = field(default=())
    """Public keys that may log in."""


def read(file: Path) -> Wanted:
    """What is wanted; nothing where there is no file. Raises `Refused`."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Wanted()
    except (OSError, ValueError) as error:
        raise Refused(f"{file.name} cannot be read: {error}") from error
    if unknown := set(found) - {"hostname", "device", "ssh"}:
        raise Refused(f"{file.name}: {min(unknown)} is not known; there are hostname, [[device]] and [ssh]")
    name = found.get("hostname", "")
    if name and not (isinstance(name, str) and _HOSTNAME.fullmatch(name)):
        raise Refused(f'hostname: "{name}" is not a name; small letters, digits and hyphens make one')
    return Wanted(name, tuple(_devices(found.get("device", []))), tuple(_keys(found.get("ssh", {}))))


def clear(file: Path) -> None:
    """Take the secrets out of the file: who takes the card out, or borrows it, reads none."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    cleared = _SECRET.sub(rf'\g<1>"{CLEARED}"', text)
    if cleared == text:
        return
    # In place and over the whole length: what is written beside leaves the old text on the card.
    blank = cleared.encode().ljust(len(text.encode()), b"\n")
    with file.open("r+b") as out:
        out.write(blank)
        out.truncate()
        out.flush()
        os.fsync(out.fileno())


def _devices(found: object) -> list[tuple[str, str]]:
    devices = []
    for position, device in enumerate(found if isinstance(found, list) else [found], 1):
        name, password = (device.get("name"), device.get("password")) if isinstance(device, dict) else (None, None)
        if not isinstance(name, str) or not _DEVICE.fullmatch(name) or name == "gateway":
            raise Refused(f"device {position}: name is missing or no name; letters, digits, . _ - make one")
        if not isinstance(password, str) or not password or ":" in name:
            raise Refused(f"device {position} ({name}): password is missing")
        if password != CLEARED:
            devices.append((name, password))
    return devices


def _keys(found: object) -> list[str]:
    keys = found.get("authorized_keys", []) if isinstance(found, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, str) and _KEY.fullmatch(key) for key in keys):
        raise Refused('ssh: authorized_keys is a list of public keys, like ["ssh-ed25519 AAAA... me"]')
    return keys
