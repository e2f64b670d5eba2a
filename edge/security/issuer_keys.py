"""Keys of an external authorization server: refreshed, cached on disk, and used for some time without the server.

Only the operator's settings decide what is fetched and from where, never a request.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from edge import durable
from edge.protocol.trust import trusting
from edge.security.jwks import KeySet, KeysRefused, PublicKey
from edge.security.settings import IssuerSettings

_LARGEST: Final = 256 * 1024
"""Maximum bytes of a JWK Set; common ones have up to 20 KB."""
_LONGEST: Final = 10.0
"""Timeout of a fetch in seconds."""
_AGAIN: Final = 30.0
"""Rate limit: seconds between two fetches, whatever key ids tokens have."""
_LOOK: Final = 10.0
"""Seconds between two checks of a key file."""

_log = logging.getLogger(__name__)


class IssuerKeys:
    """Keys of one server. Used on the event loop."""

    def __init__(self, settings: IssuerSettings, cache: Path, changed: Callable[[], None]) -> None:
        """`cache`: the file for downloaded keys. `changed` is called when the keys change."""
        self._settings = settings
        self._cache = cache
        self._changed = changed
        self._set: KeySet | None = None
        self._since = time.monotonic()
        self._wanted = asyncio.Event()
        self.fault = "they have not been fetched yet"
        """Problem that prevents current keys; empty without a problem."""
        with suppress(KeysRefused, OSError):
            self._set = KeySet((settings.jwks_file or cache).read_bytes())

    @property
    def known(self) -> bool:
        """Whether there are keys that are recent enough."""
        if self._set is not None and time.monotonic() - self._since > self._settings.keys_for:
            self._set = None
            self._changed()
        return self._set is not None

    def fitting(self, kid: str | None, algorithm: str) -> Sequence[PublicKey]:
        """Return the keys that may have made a signature."""
        return self._set.fitting(kid, algorithm) if self.known and self._set is not None else ()

    def ask(self) -> None:
        """Request a fetch as soon as possible, because of an unknown key id."""
        self._wanted.set()

    async def run(self) -> None:
        """Refresh the keys forever."""
        settings = self._settings
        least, regular = (_LOOK, _LOOK) if settings.jwks_file is not None else (_AGAIN, settings.refresh)
        while True:
            self._wanted.clear()
            failed = not await self._renew()
            await asyncio.sleep(least)
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if failed else max(regular - least, 0)):
                    await self._wanted.wait()

    async def _renew(self) -> bool:
        file = self._settings.jwks_file
        try:
            document = await (self._fetched() if file is None else asyncio.to_thread(file.read_bytes))
            found = await asyncio.to_thread(KeySet, document)
        except (KeysRefused, OSError) as error:
            reason = error.description if isinstance(error, KeysRefused) else str(error)
            if reason != self.fault:
                _log.error("issuer.keys_unavailable", extra={"issuer": self._settings.url, "reason": reason})
            self.fault = reason
            return False
        if self.fault:
            _log.info("issuer.keys_known", extra={"issuer": self._settings.url})
        self._since, self.fault = time.monotonic(), ""
        if self._set is None or found.text != self._set.text:
            self._set = found
            self._changed()
        if file is None:
            await asyncio.to_thread(self._remember, found.text)
        return True

    def _remember(self, text: str) -> None:
        """Write the cache if its content differs: SD cards wear out."""
        try:
            if self._cache.exists() and self._cache.read_text(encoding="utf-8") == text:
                return
            self._cache.parent.mkdir(mode=0o700, exist_ok=True)
            durable.write(self._cache, text.encode())
        except OSError as error:
            _log.error("issuer.keys_not_written", extra={"reason": str(error)})

    async def _fetched(self) -> bytes:
        """Return the server's response. Certificates and DNS names are loaded in threads. Raises `KeysRefused`."""
        httpx = await asyncio.to_thread(_httpx)
        try:
            context = await asyncio.to_thread(trusting, self._settings.ca_file)
            # Uncompressed, so that the limit on received bytes is also that of the document.
            headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
            async with (
                asyncio.timeout(_LONGEST),
                httpx.AsyncClient(verify=context, headers=headers, timeout=_LONGEST, follow_redirects=False) as client,
                client.stream("GET", self._settings.jwks_url) as answer,
            ):
                if answer.is_redirect:
                    where = answer.headers.get("location", "")[:200]
                    raise KeysRefused(f"a redirection to {where}, which is not followed; set jwks_url to its target")
                if answer.status_code != 200:
                    raise KeysRefused(f"the server answers {answer.status_code}")
                content = bytearray()
                async for part in answer.aiter_raw():
                    content += part
                    if len(content) > _LARGEST:
                        raise KeysRefused(f"the document is larger than {_LARGEST} bytes")
        except TimeoutError:
            raise KeysRefused(f"the server did not answer within {_LONGEST:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            raise KeysRefused(f"{type(error).__name__}: {error}") from None
        return bytes(content)


def _httpx() -> Any:  # noqa: ANN401  a module
    import httpx  # late: only gateways with an issuer need this memory

    return httpx
