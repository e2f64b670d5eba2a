"""RDF streams of the gateway: starts and stops their thread and the delivery to observers, and describes them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote, urlsplit

import pyoxigraph as ox

from edge.config import Settings
from edge.engine.admission.byte_quota import Charge
from edge.engine.clock import SystemClock
from edge.engine.requests import ActiveSubscription, QueryRequest, Sink
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.watchdog import Component, Stalled
from edge.metrics import Metrics
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError, NotFound
from edge.protocol.report_position import ReportPosition
from edge.protocol.series import SeriesRequest
from edge.streams.callback_hosts import CallbackHosts
from edge.streams.callbacks import Callbacks, Destination
from edge.streams.followed_reports import FollowedReports
from edge.streams.language import is_registration
from edge.streams.observations import PastValue
from edge.streams.observer import iso_time
from edge.streams.processor import NewElement, Processor
from edge.streams.running_query import RunningQuery
from edge.streams.service import StreamService
from edge.streams.stored_rows import StoredObserver
from edge.streams.stream import Stream
from edge.streams.target_inbox import check_target

if TYPE_CHECKING:
    from edge.gateway.recent import Recent

T = TypeVar("T")
_STREAMS: Final = "/streams/"
"""Beginning of the paths of streams. A callback URL that begins with it names a stream of this gateway."""
_LONGEST_RESTORE: Final = 30.0
"""Seconds for which the inputs of the gateway wait for the streams of an earlier process."""
_log = logging.getLogger(__name__)


class RunningStreams:
    """See `edge.gates.http.streams.Streams`."""

    def __init__(
        self,
        settings: Settings,
        engine: Scheduler,
        metrics: Metrics,
        rights: Callable[[Access], Access],
        endpoints: Callable[[], Mapping[str, str]],
        recent: Recent | None,
    ) -> None:
        """Call this on the event loop. `recent`: None if the gateway keeps no recent values."""
        self._settings = settings.streams
        self._timeout = settings.shutdown.timeout * 0.2
        self._endpoints = endpoints
        self._hosts = CallbackHosts(settings.streams.callback_hosts, security=settings.security.enabled)
        self._service = StreamService(
            settings.data_dir,
            settings.streams,
            settings.engine,
            engine,
            SystemClock(settings.engine.trust_clock),
            rights,
            self._notify,
            self._own_stream,
            None if recent is None else partial(_past, recent, settings.engine.query_timeout),
        )
        self._callbacks = Callbacks(self._service, self._hosts, ended=self._gone)
        self.part = Component("streams", self._prove)
        self._restoring: asyncio.Task[None] | None = None
        service = self._service
        metrics.watch("streams_up", "Whether reports of streams can be stored: 1 or 0.", lambda: not service.fault())

    async def restore(self, longest: float = _LONGEST_RESTORE) -> None:
        """Go on with the streams of an earlier process. Without them, the rest of the gateway works.

        `longest`: seconds after which this returns at the latest. The streams then go on later.
        """
        self._restoring = asyncio.create_task(self._restore())
        await asyncio.wait([self._restoring], timeout=longest)
        if self._restoring.done():
            self._restoring.result()
        else:
            _log.warning("streams.restore_is_slow", extra={"seconds": longest})

    async def _restore(self) -> None:
        try:
            await asyncio.to_thread(self._service.start)
            observers = await self._wait(self._service.observers(None, ANYBODY))
        except EdgeError as error:
            self._service.failing = error.description
            _log.critical("streams.not_started", extra={"reason": error.description})
            return
        for observer in observers:
            self._deliver_to(observer)

    async def stop(self) -> None:
        """End the delivery, and store what has happened."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
        await self._callbacks.stop()
        await asyncio.to_thread(self._service.close, self._timeout)

    def registers(self, text: str) -> bool:
        """Return whether a text registers a continuous query."""
        return is_registration(text)

    def subscribe(self, query: QueryRequest, sink: Sink, alias: str | None) -> Future[ActiveSubscription]:
        """See `StreamService.subscribe`."""
        return self._service.subscribe(query, sink, alias)

    def unsubscribe(self, spuid: str) -> Future[None] | None:
        """See `StreamService.unsubscribe`."""
        return self._service.unsubscribe(spuid)

    async def put_stream(self, identifier: str, lateness: int | None, access: Access) -> str:
        """Register a stream, or change its lateness."""

        def put(processor: Processor, _now: int) -> str:
            processor.put_stream(identifier, lateness, access)
            return processor.stream(identifier, access).iri

        return await self._call(put)

    async def drop_stream(self, identifier: str, access: Access) -> str:
        """End a stream."""

        def drop(processor: Processor, _now: int) -> str:
            iri = processor.stream(identifier, access).iri
            processor.drop_stream(identifier, access)
            return iri

        return await self._call(drop)

    async def stream(self, identifier: str, access: Access) -> Mapping[str, object]:
        """Return a description of a stream."""
        return await self._call(lambda processor, _now: _stream(processor, processor.stream(identifier, access)))

    async def late_elements(self, identifier: str, access: Access) -> Sequence[Mapping[str, object]]:
        """Return the kept elements of a stream that came too late."""
        found = await self._call(lambda processor, _now: processor.late(identifier, access))
        return [
            {
                "number": each.number,
                "time": iso_time(each.time),
                "arrived": iso_time(each.arrived),
                "graph": None if each.graph is None else each.graph.decode(),
            }
            for each in found
        ]

    async def streams(self, access: Access) -> Sequence[Mapping[str, object]]:
        """Return descriptions of the streams that the client may read."""
        return await self._call(
            lambda processor, _now: [_stream(processor, each) for each in processor.streams(access)]
        )

    async def add(
        self, identifier: str, elements: Sequence[tuple[tuple[ox.Triple, ...], int | None]], access: Access
    ) -> Mapping[str, int]:
        """Add elements."""
        new = [NewElement(triples, time) for triples, time in elements]
        accepted = await self._call(lambda processor, now: processor.add(identifier, new, access, now), by_arrival=True)
        return {"accepted": accepted.elements, "late": accepted.late, "too late": accepted.too_late}

    async def explain(self, text: str, access: Access) -> Mapping[str, object]:
        """Explain how a query would be evaluated, with its windows as lines of text."""
        windows, explanation = await self._call(lambda processor, now: processor.explain(text, access, now))
        return {"windows": windows.splitlines(), **asdict(explanation)}

    async def register(self, name: str, text: str, access: Access) -> None:
        """Register a query."""
        await self._call(lambda processor, now: processor.register(name, text, access, now))

    async def unregister(self, name: str, access: Access) -> None:
        """End a query, with its observers."""
        for observer in await self._wait(self._service.unregister(name, access)):
            self._callbacks.remove(observer)

    async def pause(self, name: str, access: Access, *, paused: bool) -> None:
        """Pause a query, or let it go on."""
        await self._call(lambda processor, _now: processor.pause(name, access, paused=paused))

    async def query(self, name: str, access: Access) -> Mapping[str, object]:
        """Return a description of a query."""
        return await self._call(lambda processor, _now: _query(processor, processor.query(name, access)))

    async def queries(self, access: Access) -> Sequence[Mapping[str, object]]:
        """Return descriptions of the queries that the client may see."""
        return await self._call(lambda processor, _now: [_query(processor, each) for each in processor.queries(access)])

    async def observe(self, name: str, url: str, access: Access, *, is_target: bool = False) -> str:
        """Add an observer: a callback URL, or a target of notifications. A callback URL of a stream of this gateway is
        served within the process, also if its address changes later, so only its path is stored.
        """
        if is_target:
            check_target(url, self._hosts)
        else:
            url = self._own_path(url)
            if self._own_stream(url) is None:
                self._hosts.check(url)
        observer = await self._wait(self._service.observe(name, url, access, is_target=is_target))
        self._deliver_to(observer)
        return observer.id

    async def observers(self, name: str, access: Access) -> Sequence[Mapping[str, object]]:
        """Return descriptions of the observers of a query."""
        return [self._observer(each) for each in await self._wait(self._service.observers(name, access))]

    async def end_observer(self, name: str, observer: str, access: Access) -> None:
        """End an observer."""
        await self._wait(self._service.end_observer(name, observer, access))
        self._callbacks.remove(observer)

    async def follow(
        self,
        name: str,
        access: Access,
        charge: Charge,
        wake: Callable[[], object],
        largest: int | None = None,
        after: ReportPosition | None = None,
    ) -> FollowedReports:
        """See `StreamService.follow`."""
        loop = asyncio.get_running_loop()

        def wake_loop() -> None:
            with suppress(RuntimeError):  # the loop is closed: the gateway has stopped
                loop.call_soon_threadsafe(wake)

        future = self._service.follow(name, access, charge, wake_loop, largest, after)
        try:
            return await self._wait(future)
        except asyncio.CancelledError:
            future.add_done_callback(_close_follower)  # it begins nevertheless, and nobody takes its reports
            raise

    def _observer(self, observer: StoredObserver) -> Mapping[str, object]:
        found: dict[str, object] = {
            "id": observer.id,
            "query": observer.query,
            "target" if observer.is_target else "callback": observer.url,
            "acknowledged": observer.acknowledged,
        }
        if observer.is_target:
            found["inbox"] = self._callbacks.inbox(observer.id)
        status = self._callbacks.status(observer.id)
        return found if status is None else found | status._asdict()

    def _deliver_to(self, observer: StoredObserver) -> None:
        if self._own_stream(observer.url) is None:
            destination = Destination(
                observer.id,
                observer.query,
                observer.url,
                is_target=observer.is_target,
                query_identifier=observer.query_identifier,
            )
            self._callbacks.add(destination, last=observer.acknowledged)

    def _own_path(self, url: str) -> str:
        """Return the path of a URL of a stream of this gateway, otherwise the URL."""
        own = {urlsplit(self._endpoints().get(name, "")).netloc for name in ("http", "https")} - {""}
        try:
            parts = urlsplit(url)
        except ValueError:
            return url  # which is refused with the reason
        is_stream = parts.scheme in ("http", "https") and parts.path.startswith(_STREAMS) and not parts.query
        return parts.path if is_stream and parts.netloc in own else url

    @staticmethod
    def _own_stream(url: str) -> str | None:
        """Return the stream of this gateway that a stored callback URL names; None if it names none."""
        return unquote(url.removeprefix(_STREAMS)) if url.startswith(_STREAMS) else None

    def _notify(self, observer: str) -> None:
        self._callbacks.notify(observer)

    def _gone(self, observer: str) -> None:
        self._service.gone(observer)

    async def _prove(self) -> None:
        if fault := self._service.fault():
            raise Stalled(fault)

    async def _call(self, action: Callable[[Processor, int], T], *, by_arrival: bool = False) -> T:
        await asyncio.to_thread(self._service.start)  # the first one creates a file
        return await self._wait(self._service.call(action, by_arrival=by_arrival))

    @staticmethod
    async def _wait(future: Future[T]) -> T:
        # Shielded: a request of a client that goes away is not left half done.
        waiting = asyncio.wrap_future(future)
        waiting.add_done_callback(_retrieve_exception)
        return await asyncio.shield(waiting)


def _past(recent: Recent, seconds: float, begin: int, end: int) -> Sequence[PastValue]:
    """Return the recorded values of a period. None if there are too many: then a window fills as values come."""
    values: list[PastValue] = []
    try:
        names = list({each.observation for each in recent.available(ANYBODY, seconds) if not each.graph})
        found = recent.series(SeriesRequest(names, begin, end, None), ANYBODY, seconds) if names else ()
    except NotFound:
        return ()
    except EdgeError as error:
        _log.warning("streams.window_not_filled", extra={"reason": error.description})
        return ()
    for series in found:
        if not series.graph:
            values += [
                PastValue(row.time, series.observation, row.value)
                for row in series.rows
                if row.value is not None and row.samples is None and begin <= row.time < end
            ]
    return sorted(values, key=lambda each: each.time)


def _retrieve_exception(future: asyncio.Future[T]) -> None:
    """Retrieve the exception: with the client gone nobody else does, and asyncio would log it."""
    if not future.cancelled():
        future.exception()


def _close_follower(future: Future[FollowedReports]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().close()


def _stream(processor: Processor, stream: Stream) -> Mapping[str, object]:
    return {
        "iri": stream.iri,
        "elements": stream.number,
        "kept_bytes": stream.size,
        "lateness": stream.lateness / 1_000_000,
        "too_late": stream.too_late,
        "query": stream.query or None,
        "clock_set_back": processor.behind / 1_000_000,
    }


def _query(processor: Processor, query: RunningQuery) -> Mapping[str, object]:
    return {
        "name": query.name,
        "text": query.query.text,
        "language": query.query.language,
        "form": query.query.form,
        "operator": query.query.operator,
        "streams": [window.definition.stream for window in query.query.windows],
        "state": query.state,
        "reason": query.failure,
        "live_data_failures": processor.live_failures(query),
        "reports": processor.durable_number(query),
        "skipped": query.skipped,
        "registered": datetime.fromtimestamp(query.begun / 1_000_000, UTC).isoformat(),
    }
