"""Gateways that may send segments over HTTP, and the hashes of their tokens, in a file that only its owner may read.

A token has 256 random bits, and the file stores its SHA-256. A slow password hash is not necessary, because random
tokens cannot be guessed. A client that reads the file cannot send segments with its content.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
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
    """Token hash and registration time of a gateway."""

    digest: str
    """SHA-256 of the token, in hexadecimal."""
    since: str
    """Time at which the gateway was added: ISO 8601, in UTC."""


class Gateways:
    """Gateways of a file. Each access reads the file again if it has changed."""

    def __init__(self, path: Path) -> None:
        """Create a registry. A missing file is an empty registry."""
        self._path = path
        self._seen: tuple[int, ...] | None = None
        self._entries: dict[str, GatewayEntry] = {}
        self._by_digest: dict[str, str] = {}

    def all(self) -> Mapping[str, GatewayEntry]:
        """Return the gateways by name. Raises `GatewayRefused` if the file cannot be read."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                # A replaced file has another inode, even if it was replaced within the resolution of its time.
                seen = (state.st_ino, state.st_size, state.st_mtime_ns)
                if seen != self._seen:
                    self._entries = _read(file.read())
                    self._by_digest = {entry.digest: name for name, entry in self._entries.items()}
                    self._seen = seen
        except FileNotFoundError:
            self._entries, self._by_digest, self._seen = {}, {}, None
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise GatewayRefused(
                f"{self._path} is not a valid file of gateways ({error}): restore it, or remove it and add the gateways"
            ) from None
        return self._entries

    def whose(self, token: str) -> str | None:
        """Return the gateway to which a token belongs, or None. Raises `GatewayRefused`.

        The look-up by digest takes the same time with any number of gateways. Its time could only reveal something
        about digests, for which nobody can choose tokens.
        """
        self.all()
        return self._by_digest.get(_digest(token))

    def add(self, name: str) -> str:
        """Add a gateway. Returns its token, which is not stored. Raises `GatewayRefused`."""
        if not GATEWAY.fullmatch(name) or name == QUARANTINE:
            raise GatewayRefused(
                f'"{name}" is not a valid gateway name: use up to 64 letters, digits, ".", "_" and "-", beginning with'
                f' a letter or digit, and not "{QUARANTINE}"'
            )
        token = secrets.token_urlsafe(32)
        with self._changed() as entries:
            if name in entries:
                raise GatewayRefused(
                    f"{name} already has a token; revoke it with `edge-history gateways remove {name}`"
                )
            entries[name] = GatewayEntry(_digest(token), datetime.now(UTC).isoformat(timespec="seconds"))
        return token

    def remove(self, name: str) -> None:
        """Remove a gateway and its token. Raises `GatewayRefused`."""
        with self._changed() as entries:
            if entries.pop(name, None) is None:
                raise GatewayRefused(f"{self._path} has no gateway {name}: see `edge-history gateways list`")

    @contextlib.contextmanager
    def _changed(self) -> Iterator[dict[str, GatewayEntry]]:
        """Yield the entries for changes, and write them if the block succeeds. A lock excludes other processes."""
        folder = self._path.absolute().parent
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except OSError as error:
            raise GatewayRefused(f"{folder} cannot be used ({error}): make the directory") from None
        try:
            # The directory is locked and not the file, because each change replaces the file.
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
        body = {name: {"sha256": entry.digest, "since": entry.since} for name, entry in sorted(entries.items())}
        # NamedTemporaryFile creates the file with mode 0600.
        with tempfile.NamedTemporaryFile(dir=self._path.absolute().parent, prefix=".gateways-", delete=False) as draft:
            try:
                draft.write(json.dumps({"schema": _SCHEMA, "gateways": body}, indent=2).encode() + b"\n")
                draft.flush()
                os.fsync(draft.fileno())
                Path(draft.name).replace(self._path)
            except BaseException:
                Path(draft.name).unlink(missing_ok=True)
                raise


def _read(text: bytes) -> dict[str, GatewayEntry]:
    body: dict[str, Any] = json.loads(text)
    if body["schema"] != _SCHEMA:
        raise ValueError(f"schema {body['schema']} is not supported, only {_SCHEMA}")
    entries = {
        str(name): GatewayEntry(str(entry["sha256"]), str(entry["since"])) for name, entry in body["gateways"].items()
    }
    if wrong := [name for name, entry in entries.items() if not _SHA256.fullmatch(entry.digest)]:
        raise ValueError(f"the entry of {wrong[0]} has no valid SHA-256")
    return entries


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
