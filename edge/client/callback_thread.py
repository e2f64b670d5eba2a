"""Thread for connection callbacks, which may block."""

from __future__ import annotations

import dataclasses
import logging
from concurrent.futures import ThreadPoolExecutor

from edge.client.options import ConnectionListener, Options

_log = logging.getLogger("edge.client")


class CallbackThread:
    """Calls a listener outside the event loop, one call at a time, in order."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "edge-client-connection")  # one worker keeps the calls in order

    def with_callbacks(self, options: Options) -> Options:
        """Return the options with a listener that is called on this thread."""
        listener = options.on_connection
        if listener is None:
            return options

        def submit(url: str, connected: bool) -> None:
            self._executor.submit(_call, listener, url, connected)

        return dataclasses.replace(options, on_connection=submit)

    def close(self) -> None:
        """Accept no more calls. Submitted ones are still made."""
        self._executor.shutdown(wait=False)


def _call(listener: ConnectionListener, url: str, connected: bool) -> None:
    try:
        listener(url, connected)
    except Exception:  # noqa: BLE001 - it is the application's code
        _log.exception("on_connection failed")
