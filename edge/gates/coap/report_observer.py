"""Observers of registered queries: a notification is a report."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Final

from aiocoap import Message
from aiocoap.pipe import Pipe

from edge.gates.coap.formats import refused
from edge.gates.coap.observer import Notifier, Observer
from edge.gates.coap.quota import Quota
from edge.gates.coap.requests import peer, token
from edge.gates.report_following import ReportFollowing, ReportSource
from edge.gates.sessions import Sessions
from edge.protocol.errors import EdgeError, NotReady
from edge.protocol.report_position import ReportPosition

_PRIMITIVE: Final = "follow"
_NOTIFY_TIMEOUT: Final = 1.0
"""Seconds to notify all observers during shutdown."""


class ReportObservers:
    """The observers of all queries."""

    def __init__(
        self, sessions: Sessions, notifier: Notifier, quota: Quota, streams: Callable[[], ReportSource | None]
    ) -> None:
        """`quota`: of the subscriptions of all clients. `streams` returns None without streams."""
        self._sessions = sessions
        self._notifier = notifier
        self._quota = quota
        self._streams = streams
        self._followings: dict[ReportFollowing, asyncio.Task[Any]] = {}

    async def observe(self, pipe: Pipe, name: str, after: ReportPosition | None = None) -> Message:
        """Send the reports of a query until the observer is gone, which cancels the task. Returns the final response:
        the reason why no more reports follow. `after`: see `ReportSource.follow`. Raises `EdgeError` if the query
        cannot be observed.
        """
        request, started = pipe.request, time.perf_counter()
        woken = asyncio.Event()
        limit = self._sessions.limits.max_result
        following = ReportFollowing(self._sessions, self._streams, token(request), peer(request), woken.set, limit)
        who = following.admit()
        self._quota.take(who)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._followings[following] = task
        observer = Observer(self._notifier, pipe)
        try:
            observer.notify(await following.begin(name, after))
            self._sessions.answered(_PRIMITIVE, 200, started)
            return refused(request, await self._send(observer, following, woken))
        finally:
            following.close()
            observer.leave()
            self._quota.release(who)
            del self._followings[following]

    async def _send(self, observer: Observer, following: ReportFollowing, woken: asyncio.Event) -> EdgeError:
        """Send reports. Returns why no more follow."""
        while True:
            woken.clear()
            if not (observer.free or following.stopping.is_set()):
                await _until_free(observer, following)
            elif (text := following.take()) is not None:
                try:
                    observer.notify(json.loads(text)["report"])
                except EdgeError as refusal:
                    return refusal
            elif (error := following.error) is not None:
                return error
            else:
                await self._wait(observer, woken)

    async def _wait(self, observer: Observer, woken: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._notifier.ping):
                await woken.wait()
        except TimeoutError:
            observer.ping()

    async def stop(self) -> None:
        """Notify all observers that the gateway stops."""
        for following in self._followings:
            following.end(NotReady("The gateway is stopping; observe again in a few seconds"))
        if self._followings:
            # Without a limit, an unreachable observer would delay the stop by the retransmissions of CoAP.
            await asyncio.wait(self._followings.values(), timeout=_NOTIFY_TIMEOUT)


async def _until_free(observer: Observer, following: ReportFollowing) -> None:
    """Wait until the observer is free, or gets no more reports."""
    freeing = asyncio.create_task(observer.freed())
    stopping = asyncio.create_task(following.stopping.wait())
    try:
        await asyncio.wait((freeing, stopping), return_when=asyncio.FIRST_COMPLETED)
        if freeing.done() and not freeing.result():
            # It does not request all blocks, so the report is lost for it. The number of the next one shows this.
            observer.leave()
    finally:
        freeing.cancel()
        stopping.cancel()
