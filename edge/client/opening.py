"""Opening of WebSockets to one broker, whose address may change."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.asyncio.client import connect

from edge.client.authorization import Authorization, check_encrypted
from edge.client.errors import ClientError, NoConnection
from edge.client.options import Options

_OPEN_TIMEOUT: Final = 10.0
_CLOSE_TIMEOUT: Final = 2.0
"""Seconds for the closing handshake."""

_log = logging.getLogger("edge.client")


class _Connect(connect):
    """Does not follow redirects: the requests carry a token for the broker only."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


class Opening:
    """The address of a WebSocket, and how to open it."""

    def __init__(self, url: str, options: Options, authorization: Authorization) -> None:
        self.url = url
        self._options = options
        self._authorization = authorization

    async def locate(self) -> None:
        """Look up the address, which may have changed. Raises `NoConnection`."""
        locate = self._options.locate
        if locate is None:
            return
        try:
            url = await asyncio.to_thread(locate, self.url)
            if self._authorization.goes_to(url):
                check_encrypted(url)
        except Exception as error:
            raise NoConnection(self.url, f"no address: {error}", cause=error) from error
        self.url = url

    async def authorization(self) -> str | None:
        """Return the value of the header `Authorization` for this address. Raises `NoAnswer`."""
        return await self._authorization.value() if self._authorization.goes_to(self.url) else None

    def connect(self, url: str, authorization: str | None) -> _Connect:
        """Return a context manager that opens a WebSocket. `url`: the address, or a sibling of it."""
        options = self._options
        return _Connect(
            url,
            proxy=None,  # brokers are on the local network
            compression=None,
            max_size=None,  # results that the client requested may have any size
            open_timeout=_OPEN_TIMEOUT,
            close_timeout=_CLOSE_TIMEOUT,
            ping_interval=options.ping,
            ping_timeout=options.ping,
            additional_headers={} if authorization is None else {"Authorization": authorization},
            **_tls(url, options),
        )

    def continues(self, failure: ClientError) -> bool:
        """Return whether to recover from a failure. The application decides (`Options.on_failure`)."""
        handler = self._options.on_failure
        if handler is None:
            return True
        try:
            return handler(failure)
        except Exception:  # noqa: BLE001 - it is the application's code
            _log.exception("on_failure failed")
            return True

    def report(self, url: str, *, connected: bool) -> None:
        """Tell the application about the connection (`Options.on_connection`)."""
        listener = self._options.on_connection
        if listener is not None:
            try:
                listener(url, connected)
            except Exception:  # noqa: BLE001 - it is the application's code
                _log.exception("on_connection failed")


def _tls(url: str, options: Options) -> dict[str, Any]:
    """Return the TLS argument of `connect`, which allows none for a plain connection."""
    return {} if options.tls is None or urlsplit(url).scheme != "wss" else {"ssl": options.tls}
