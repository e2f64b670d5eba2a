"""Which gateways may send segments over HTTP, and by which token: a file that only its owner may read.

A token is 256 random bits, and the file has its SHA-256: a slow hash protects what people can remember, and nobody can
guess this. Who reads the file cannot send with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from edge.outbox.segment import GATEWAY
from spark_offload.errors import GatewayRefused
from spark_offload.landing import QUARANTINE

_SCHEMA: Final = 1
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class GatewayEntry:
    """What is known of a gateway."""

    digest: str
    """SHA-256 of its token, hexadecimal."""
    since: str
    """When it was added: an ISO 8601 time in UTC."""


class Gateways:
    """The gateways of a file; changes of the file are noticed when somebody asks."""

    def __init__(self, path: Path) -> None:
        """A file that is not there has no gateways."""
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._entries: dict[str, GatewayEntry] = {}

    def all(self) -> Mapping[str, GatewayEntry]:
        """The gateways by name. Raises `GatewayRefused` where the file cannot be read."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                seen = (state.st_ino, state.st_size, state.st_mtime_ns)
                if seen != self._seen:
                    self._entries, self._seen = _read(file.read()), seen
        except FileNotFoundError:
            self._entries, self._seen = {}, None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise GatewayRefused(f"{self._path} is no file of gateways ({error}): put it back, or begin anew") from None
        return self._entries

    def whose(self, token: str) -> str | None:
        """The gateway whose token it is. All are compared, each in constant time: how long it takes tells nothing."""
        digest = _digest(token)
        found = None
        for name, entry in self.all().items():
            if hmac.compare_digest(entry.digest, digest):
                found = name
        return found

    def add(self, name: str) -> str:
        """Let a gateway in. Returns its token, which is not kept. Raises `GatewayRefused`."""
        if not GATEWAY.fullmatch(name) or name == QUARANTINE:
            raise GatewayRefused(
                f'"{name}" is no name of a gateway: up to 64 letters, digits, ".", "_" and "-", the first of them a'
                f' letter or digit, and not "{QUARANTINE}"'
            )
        token = secrets.token_urlsafe(32)
        with self._changed() as entries:
            if name in entries:
                raise GatewayRefused(f"{name} has a token; `edge-history gateways remove {name}` makes it void")
            entries[name] = GatewayEntry(_digest(token), datetime.now(UTC).isoformat(timespec="seconds"))
        return token

    def remove(self, name: str) -> None:
        """Let a gateway in no more. Raises `GatewayRefused`."""
        with self._changed() as entries:
            if entries.pop(name, None) is None:
                raise GatewayRefused(f"there is no gateway {name} in {self._path}")

    @contextlib.contextmanager
    def _changed(self) -> Iterator[dict[str, GatewayEntry]]:
        """The gateways to change; they are written when the block ends well. One program does so at a time."""
        folder = self._path.absolute().parent
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise GatewayRefused(f"{folder} cannot be used ({error}): make the directory") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            entries = dict(self.all())
            yield entries
            self._write(entries)
            os.fsync(descriptor)
        except OSError as error:
            raise GatewayRefused(f"{self._path} cannot be written: {error}") from None
        finally:
            os.close(descriptor)

    def _write(self, entries: Mapping[str, GatewayEntry]) -> None:
        told = {name: {"sha256": entry.digest, "since": entry.since} for name, entry in sorted(entries.items())}
        # It is made with mode 0600.
        with tempfile.NamedTemporaryFile(dir=self._path.absolute().parent, prefix=".gateways-", delete=False) as draft:
            try:
                draft.write(json.dumps({"schema": _SCHEMA, "gateways": told}, indent=2).encode() + b"\n")
                draft.flush()
                os.fsync(draft.fileno())
                Path(draft.name).replace(self._path)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise


def _read(text: bytes) -> dict[str, GatewayEntry]:
    body: dict[str, Any] = json.loads(text)
    if body["schema"] != _SCHEMA:
        raise ValueError(f"it has schema {body['schema']}, and this program knows {_SCHEMA}")
    entries = {
        str(name): GatewayEntry(str(told["sha256"]), str(told["since"])) for name, told in body["gateways"].items()
    }
    if wrong := [name for name, entry in entries.items() if not _SHA256.fullmatch(entry.digest)]:
        raise ValueError(f"what it has of {wrong[0]} is no SHA-256")
    return entries


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
