"""Subscriptions of a WebSocket: resumed or repeated on each connection, and supplied with notifications."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from edge.client.authorization import Authorization
from edge.client.errors import RETRY_LATER, UNAUTHORIZED, BadAnswer, ClientError, Closed, NoAnswer, Refused
from edge.client.options import Options
from edge.client.pending_requests import Message
from edge.client.results import read_rows
from edge.client.subscription import Subscription
from edge.client.websocket import WebSocketClient

_log = logging.getLogger("edge.client")


@dataclass(slots=True, eq=False)
class _Feed:
    """A subscription with its state at the broker."""

    alias: str
    subscription: Subscription
    first: asyncio.Future[None]
    """Completed with the first result, or with an error."""
    resume: bool = True
    """Whether the broker keeps it for a while if the connection is lost."""
    restart: bool = False
    """Whether the application gets the whole result again after a reconnection."""
    spuid: str | None = None
    """SPUID on the current connection."""
    known: str | None = None
    """SPUID under which the broker may suspend it when the connection is lost."""
    sequence: int = 0
    """Sequence number of the last notification under that SPUID."""
    opening: asyncio.Task[None] | None = None
    closed: bool = False
    """Whether the application has closed it. It stays here until the broker confirms the end, because a broker
    suspends a subscription whose unsubscribe request is lost with the connection."""

    @property
    def members(self) -> Message:
        """Return the members of the subscribe request: resume if possible, else subscribe as resumable."""
        if not self.resume:
            return self.subscription.members
        again = {"resume": True} if self.known is None else {"spuid": self.known, "sequence": self.sequence}
        return {**self.subscription.members, **again}

    def stop_opening(self) -> None:
        if self.opening is not None:
            self.opening.cancel()
            self.opening = None


class ClientSubscriptions:
    """Subscriptions of a client: the `WebsocketListener` that maintains them."""

    def __init__(self, link: WebSocketClient, options: Options, authorization: Authorization) -> None:
        self.link = link
        link.listener = self
        self._options = options
        self._authorization = authorization
        self._feeds: dict[str, _Feed] = {}
        self._by_spuid: dict[str, _Feed] = {}

    async def subscribe(
        self,
        sparql: str,
        default_graphs: Sequence[str] | None = None,
        named_graphs: Sequence[str] | None = None,
        *,
        resume: bool = True,
        restart: bool = False,
    ) -> Subscription:
        """Subscribe and return with the first result, without a time limit. Raises as `Client.subscribe`."""
        self.link.start()

        async def leave(_: Subscription) -> None:
            self._leave(feed)

        subscription = Subscription(sparql, default_graphs, named_graphs, self._options.waiting, leave)
        feed = _Feed(self.link.name(), subscription, asyncio.get_running_loop().create_future(), resume, restart)
        self._feeds[feed.alias] = feed
        if self.link.connected:
            self._open(feed)
        try:
            await feed.first
        except BaseException:
            self._leave(feed)
            raise
        return subscription

    def opened(self) -> None:
        """Subscribe or resume all."""
        for feed in self._feeds.values():
            self._open(feed)

    def broken(self) -> None:
        """Mark all as not served."""
        self._by_spuid.clear()
        for feed in self._feeds.values():
            feed.stop_opening()
            feed.spuid = None

    def failed(self, error: ClientError) -> None:
        """Fail all: the WebSocket does not connect again."""
        for feed in list(self._feeds.values()):
            self._fail(feed, error)

    def closed(self) -> None:
        """End all."""
        for feed in self._feeds.values():
            feed.subscription.end()
            if not feed.first.done():
                feed.first.set_exception(Closed("the client was closed"))
        self._feeds.clear()

    def notified(self, body: Message) -> None:
        """Process a result or a change. Raises `BadAnswer`."""
        spuid, sequence = body.get("spuid"), body.get("sequence")
        # The answer to a subscribe request has the alias. Later notifications may have the SPUID only.
        feed = self._by_spuid.get(str(spuid)) or self._feeds.get(str(body.get("alias")))
        if feed is None:
            if sequence == 0:  # the caller was cancelled in the meantime
                self.link.say("unsubscribe", {"spuid": spuid})
            return
        call = self.link.waits(feed.alias)
        if feed.closed:
            feed.sequence = sequence if isinstance(sequence, int) else 0
            if call is not None and isinstance(spuid, str):
                call.answer.set_result(body)
                self._serve(feed, spuid)
                self.link.say("unsubscribe", {"spuid": spuid})
            return
        added, removed = read_rows(body.get("addedResults") or {}), read_rows(body.get("removedResults") or {})
        # A resumed subscription keeps its SPUID and gets the changes since `sequence`, else it gets a whole result.
        resumed = call is not None and spuid == feed.known
        feed.sequence = sequence if isinstance(sequence, int) else 0
        merged = body.get("merged", 1)
        merged = merged if isinstance(merged, int) else 1
        if call is None and sequence != 0:
            feed.subscription.change(added, removed, merged)
            return
        if isinstance(spuid, str):
            self._serve(feed, spuid)
        feed.subscription.variables = added.variables
        if resumed:
            feed.subscription.change(added, removed, merged)
        else:
            feed.subscription.replace(added)
        if call is not None:
            call.answer.set_result(body)
        if not feed.first.done():
            feed.first.set_result(None)
        elif feed.restart:
            feed.subscription.restart()

    def unsubscribed(self, spuid: object) -> None:
        """Forget a closed subscription: the broker has ended it."""
        feed = self._by_spuid.pop(str(spuid), None)
        if feed is not None and feed.closed:
            self._feeds.pop(feed.alias, None)

    def refused(self, alias: object, spuid: object, error: Refused) -> bool:
        """Handle the end of an active subscription: subscribe again if that can help."""
        feed = self._by_spuid.pop(str(spuid), None) or self._feeds.get(str(alias))
        if feed is None:
            return isinstance(spuid, str)  # it concerns a closed subscription
        if feed.closed:
            if error.status_code != RETRY_LATER:  # a gateway that stops keeps the subscription for the next start
                self._feeds.pop(feed.alias, None)
            return True
        # The broker has ended the subscription, so it cannot be resumed: the next request asks for a whole result.
        feed.spuid = feed.known = None
        if _passing(feed, error) and self.link.continues(error):
            _log.warning("a subscription ended: %s; subscribing again", error)
            self._open(feed, after=next(iter(self._options.backoff)))
        else:
            self._fail(feed, error)
        return True

    def _serve(self, feed: _Feed, spuid: str) -> None:
        """Note under which SPUID the broker serves a subscription on this connection."""
        feed.spuid = feed.known = feed.subscription.spuid = spuid
        self._by_spuid[spuid] = feed

    def _open(self, feed: _Feed, *, after: float = 0.0) -> None:
        feed.stop_opening()
        feed.opening = asyncio.create_task(self._opening(feed, after))

    async def _opening(self, feed: _Feed, after: float) -> None:
        """Subscribe on the current connection. When the connection breaks, this task is cancelled."""
        await asyncio.sleep(after)
        renewed = False
        waits = iter(self._options.backoff)
        while True:
            value: str | None = None
            try:
                value = await self._authorization.value()
                members = feed.members
                if value is not None:
                    members = {**members, "authorization": value}
                call = self.link.call("subscribe", feed.alias, members, bound=True)
                await self.link.answer(feed.alias, call)
                if feed.spuid is None:
                    error = BadAnswer(f"{self.link.url} did not answer the subscribe request with a notification")
                    self._fail(feed, error)
                return
            except Refused as error:
                if error.status_code == UNAUTHORIZED and not renewed and self._authorization.refused(value):
                    renewed = True
                    continue
                if not (_passing(feed, error) and self.link.continues(error)):
                    self._fail(feed, error)
                    return
                _log.warning("a subscription was refused: %s; trying again", error)
            except NoAnswer as error:
                _log.warning("cannot subscribe: %s; trying again", error)
            await asyncio.sleep(next(waits))

    def _fail(self, feed: _Feed, error: ClientError) -> None:
        self._feeds.pop(feed.alias, None)
        if feed.closed:
            return
        if feed.first.done():
            feed.subscription.fail(error)
        else:
            feed.first.set_exception(error)

    def _leave(self, feed: _Feed) -> None:
        """Unsubscribe: the application has closed the subscription."""
        feed.subscription.end()
        if feed.alias not in self._feeds:
            return
        feed.closed = True
        if feed.spuid is not None:
            self.link.say("unsubscribe", {"spuid": feed.spuid})
        elif feed.known is None:  # a request that is on its way is answered with an unknown SPUID, and ended then
            feed.stop_opening()
            del self._feeds[feed.alias]
        # Otherwise the broker has suspended it, and ends it only on a connection that has resumed it.


def _passing(feed: _Feed, error: Refused) -> bool:
    """Return whether a retry may help. A first refusal is reported at once, unless the broker is starting."""
    if error.status_code == RETRY_LATER:
        return True
    if feed.closed:
        return False
    return feed.first.done() and (error.status_code in (408, 429) or error.status_code >= 500)
