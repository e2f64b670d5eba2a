"""Shipment of observations to the history: creates the outbox status, the landing zone and the shipper."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.config import Settings
from edge.metrics import Metrics
from edge.outbox.outbox import Outbox
from edge.outbox.settings import OffloadSettings
from edge.outbox.sqlite_tables import DamagedDatabase
from edge.outbox.status import ShipmentStatus
from edge.protocol.errors import InvalidRequest, NotReady, RequestTimeout

if TYPE_CHECKING:
    from edge.outbox.landing import LandingTarget
    from edge.outbox.shipper import Shipper

_REFRESH: Final = 1.0
"""Seconds between two updates of the outbox status."""
_PATIENCE: Final = 50.0
"""Seconds that a ship request waits for the end of the round; a little less than the timeout of the commands."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""


class Shipping:
    """Shipment of the outbox to a landing zone, if the settings name one."""

    def __init__(self, settings: Settings, outbox: Outbox, metrics: Metrics) -> None:
        offload = settings.offload
        self._patience = settings.shutdown.timeout * 0.2
        self._shipper = _shipper(outbox, offload) if offload.to else None
        self.status = ShipmentStatus(outbox, self._shipper, offload.to)
        self._watch(metrics, outbox)

    def start(self, stack: AsyncExitStack) -> None:
        """Start to ship; `stack` stops it."""
        if self._shipper is not None:
            self._shipper.start()
            stack.push_async_callback(asyncio.to_thread, self._shipper.stop, self._patience)
        stack.callback(asyncio.create_task(self._follow()).cancel)

    async def ship(self) -> Mapping[str, object]:
        """Ship now. Returns the result: segments, observations in them, and why it ended early or an empty text.

        Raises `InvalidRequest`: no landing zone is configured; `RequestTimeout`: the round continues; `NotReady`: the
        gateway stops.
        """
        if self._shipper is None:
            raise InvalidRequest("Nothing is shipped: the setting offload.to names no landing zone")
        shipping = asyncio.wrap_future(self._shipper.ship())
        try:
            async with asyncio.timeout(_PATIENCE):
                return (await asyncio.shield(shipping))._asdict()
        except TimeoutError:
            raise RequestTimeout(
                f"The shipment takes longer than {_PATIENCE:g} s and continues; `edge outbox status` shows its progress"
            ) from None
        except asyncio.CancelledError:
            if shipping.cancelled():
                raise NotReady(
                    "The gateway is stopping; waiting observations are shipped after its next start"
                ) from None
            raise

    async def _follow(self) -> None:
        """Refresh the status on a thread: a disk that does not respond must not delay requests for metrics."""
        while True:
            if self.status.stale:
                with contextlib.suppress(DamagedDatabase, OSError):  # the shipper meets and reports the same error
                    await asyncio.to_thread(self.status.refresh)
            await asyncio.sleep(_REFRESH)

    def _watch(self, metrics: Metrics, outbox: Outbox) -> None:
        watch, status = metrics.watch, self.status
        watch("outbox_observations", "Observations that wait for the history.", lambda: outbox.count)
        watch("outbox_bytes", "Bytes of these, as stored.", lambda: outbox.bytes)
        watch("outbox_oldest_seconds", "Age of the oldest of these.", lambda: status.oldest_age)
        watch("outbox_dropped", "Observations dropped that the history does not know of yet.", lambda: status.dropped)
        watch("outbox_last", "Number of the last observation.", lambda: outbox.last)
        watch("outbox_acknowledged", "Number up to which all are in the history.", lambda: outbox.acknowledged)
        watch("offload_up", "Whether the landing zone takes segments: 1 or 0.", lambda: status.state == "ships")
        watch("offload_shipped", "Number of the last observation at the landing zone.", lambda: status.shipped)
        watch("offload_segments", "Segments shipped.", lambda: status.segments)
        watch("offload_failures", "Attempts to ship that failed.", lambda: status.failures)


def _shipper(outbox: Outbox, offload: OffloadSettings) -> Shipper:
    # Imported here: without a landing zone, the gateway saves the memory and start-up time.
    from edge.outbox.shipper import Shipper

    return Shipper(outbox, _landing(offload), offload)


def _landing(offload: OffloadSettings) -> LandingTarget:
    from edge.outbox.directory import DirectoryLanding
    from edge.outbox.over_http import HttpLanding

    if offload.over_http:
        token = partial(_token, offload)
        return HttpLanding(offload.to, timeout=offload.timeout, token=token, ca_file=offload.ca_file)
    return DirectoryLanding(Path(offload.to))


def _token(offload: OffloadSettings) -> str:
    """Return the current token; empty without one. Raises `LandingFailed`."""
    from edge.outbox.landing import LandingFailed

    token, file = offload.token, offload.token_file
    if file is not None:
        try:
            token = file.read_text(encoding="utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise LandingFailed(f"offload.token_file: {file} cannot be read: {error}") from error
    if token and not _TOKEN.fullmatch(token):
        raise LandingFailed("offload.token holds characters that no token has; `edge-history gateways add` makes one")
    return token
