"""Updates of an image's system: the gateway takes the file over HTTP, and a service of the system installs it.

The gateway may neither write a system nor restart the host. It puts the file and a request into a directory. The
service (`sepa_edge_appliance.update`) has the signature checked, and writes how far it is.

    DIRECTORY/incoming/update.raucb   the file
    DIRECTORY/incoming/request        `install` or `restart`, until the service takes it
    DIRECTORY/state                   of the service: JSON with state, percent, message, version
    DIRECTORY/trial, undone           of the system: the slot and version of an unconfirmed or undone update
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator
from io import FileIO
from pathlib import Path
from typing import Final

from edge import durable
from edge.protocol.errors import (
    InvalidRequest,
    NotFound,
    RequestTimeout,
    StorageFailed,
    TooLarge,
    TooManyRequests,
    UpdateConflict,
)

_LARGEST: Final = 2 * 1024**3
"""Bytes of a file. Those of images have about 150 MB."""
_SPARE: Final = 64 * 1024**2
"""Bytes of the disk that stay free."""
_PIECE: Final = 4 * 1024**2
"""Bytes that are written and synchronized together: other writes wait for one piece at most."""
_SILENCE: Final = 120.0
"""Seconds without a part of the file after which it is given up."""
_WHOLE: Final = 3_600.0
"""Seconds for a whole file."""
_BUSY: Final = ("receiving", "waiting", "installing")


class SystemUpdates:
    """The updates of a system, one at a time."""

    def __init__(self, directory: Path | None) -> None:
        """`directory`: None if the gateway does not run on an image with updates."""
        self._directory = directory
        self._receiving = False

    def state(self) -> dict[str, object]:
        """Return the state of an update: `idle`, `receiving`, `waiting`, `installing`, `installed` or `failed`.

        With `percent` and `message` of an installation, the `version` that is installed, and the versions that are
        not confirmed yet (`trial`) or were undone (`undone`). `off`: the system takes no updates from the gateway.
        """
        if self._directory is None:
            return {"state": "off"}
        found: dict[str, object] = {"state": "idle"}
        with contextlib.suppress(OSError, ValueError):
            known = json.loads((self._known / "state").read_bytes())
            if isinstance(known, dict):
                found |= known
        if self._receiving:
            found = {"state": "receiving"}
        elif self._request.exists():
            found = {"state": "waiting"}
        for name in ("trial", "undone"):
            with contextlib.suppress(OSError):
                found[name] = (self._known / name).read_text(errors="replace").partition(" ")[2].strip()
        return found

    async def install(self, parts: AsyncGenerator[bytes, None], size: int | None) -> None:
        """Take the file of an update and ask for its installation. `size`: bytes of the file, if known.

        Raises `NotFound`, `TooManyRequests` during another update, `TooLarge`, `StorageFailed`, `RequestTimeout`, and
        `InvalidRequest` for an empty file. Then nothing is installed.
        """
        request = self._request
        if self.state()["state"] in _BUSY:
            raise TooManyRequests("Another update is being installed; try again when it has ended", retry_after=30)
        self._receiving = True
        try:
            async with contextlib.aclosing(parts):
                await self._receive(parts, size)
            await asyncio.to_thread(durable.write, request, b"install")
        except OSError as error:
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._remove_files)
            raise StorageFailed(
                f"The update could not be stored below {self._known} ({error}). Check that disk, then send it again"
            ) from error
        finally:
            self._receiving = False

    async def restart(self) -> None:
        """Ask for a restart of the host into the installed system. Raises `NotFound`, `UpdateConflict` without one."""
        request = self._request
        if self.state()["state"] != "installed":
            raise UpdateConflict("No installed update waits for a restart: send one first")
        try:
            await asyncio.to_thread(durable.write, request, b"restart")
        except OSError as error:
            raise StorageFailed(
                f"The restart could not be requested below {self._known} ({error}). Check that disk, then try again"
            ) from error

    async def _receive(self, parts: AsyncGenerator[bytes, None], size: int | None) -> None:
        draft = self._incoming / "update.part"
        await asyncio.to_thread(self._remove_files)  # of an interrupted update: the space is needed
        self._check_size(size or 0)
        try:
            with draft.open("wb", buffering=0) as out:
                async with asyncio.timeout(_WHOLE):
                    written = await self._write(parts, out)
            if not written:
                raise InvalidRequest("The update is empty: send the .raucb file of the image's build")
            draft.replace(self._incoming / "update.raucb")
        except TimeoutError:
            raise RequestTimeout(
                f"The update stood still for {_SILENCE:g} s, or took longer than {_WHOLE:g} s; send it again over a"
                " faster network"
            ) from None
        finally:
            await asyncio.to_thread(draft.unlink, missing_ok=True)

    def _remove_files(self) -> None:
        for name in ("update.part", "update.raucb"):
            (self._incoming / name).unlink(missing_ok=True)

    async def _write(self, parts: AsyncGenerator[bytes, None], out: FileIO) -> int:
        """Write the parts piece by piece. Returns their bytes."""
        piece = bytearray()
        written = 0
        while True:
            async with asyncio.timeout(_SILENCE):
                part = await anext(parts, None)
            piece += part or b""
            if piece and (part is None or len(piece) >= _PIECE):
                written += len(piece)
                self._check_size(len(piece), written)
                await asyncio.to_thread(_append, out, bytes(piece))
                piece.clear()
            if part is None:
                return written

    def _check_size(self, more: int, whole: int = 0) -> None:
        """Refuse bytes for which there is no space."""
        if max(more, whole) > _LARGEST:
            raise TooLarge(f"An update may have {_LARGEST} bytes at most")
        filesystem = os.statvfs(self._incoming)
        free = filesystem.f_bavail * filesystem.f_frsize
        if more + _SPARE > free:
            raise StorageFailed(
                f"There is no space for the update: {more} bytes, of which {_SPARE} must stay free, and the disk of"
                f" {self._known} has {free}. Remove files from it, such as a recent history (recent.max_bytes)"
            )

    @property
    def _known(self) -> Path:
        if self._directory is None:
            raise NotFound("This system has no updates over HTTP: only images of the gateway have (docs/images.md)")
        return self._directory

    @property
    def _incoming(self) -> Path:
        return self._known / "incoming"

    @property
    def _request(self) -> Path:
        return self._incoming / "request"


def _append(out: FileIO, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[out.write(view) :]
    os.fdatasync(out.fileno())
