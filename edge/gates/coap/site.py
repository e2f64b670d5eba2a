"""CoAP resources by path, and the common handling of all requests."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from aiocoap import Code, Message
from aiocoap.error import RenderableError
from aiocoap.interfaces import Resource
from aiocoap.pipe import Pipe
from aiocoap.resource import WKCResource
from aiocoap.util.linkformat import Link, LinkFormat

from edge.gates.coap.blocks import Blocks
from edge.gates.coap.cbor import read_cbor
from edge.gates.coap.formats import (
    CBOR,
    JSON,
    LINK_FORMAT,
    SENML_CBOR,
    SENML_JSON,
    TEXT,
    answer,
    check_acceptable,
    failed,
    format_of,
    refused,
    unsupported,
)
from edge.gates.coap.observe import ObservedSubscription, ObserveRegistry
from edge.gates.coap.quota import Quota
from edge.gates.coap.report_observer import ReportObservers
from edge.gates.coap.requests import Primitive, check_options, peer, read_message, token
from edge.gates.coap.senml import as_json
from edge.gates.guard import check, check_publish
from edge.gates.rate_limit import client_of
from edge.gates.refusals import log_refusal
from edge.gates.report_following import ReportSource, no_streams, read_after
from edge.gates.session import Session
from edge.gates.sessions import Sessions
from edge.protocol.errors import InvalidRequest, MethodNotAllowed, NotAcceptable, NotFound, NotReady, TooManyRequests
from edge.protocol.topics import is_topic

Readings = Callable[[str, bytes], Awaitable[int]]
"""Processes a device's message on a topic. Returns the number of readings, after they are stored."""

_Serve = Callable[[Pipe], Awaitable[Message]]


class Site(Resource):  # type: ignore[misc]  # the library has no types
    """All resources. An `EdgeError` becomes a response; any other exception is an internal error."""

    observations: ObserveRegistry
    """Set before the first request arrives."""
    reports: ReportObservers
    """Set before the first request arrives."""

    def __init__(
        self,
        sessions: Sessions,
        blocks: Blocks,
        readings: Readings,
        *,
        own_topics: str,
        max_pending: int,
        protected: bool,
        streams: Callable[[], ReportSource | None] = lambda: None,
    ) -> None:
        """`own_topics`: prefix of topics that cannot hold readings; empty for none.

        `max_pending`: maximum number of concurrent requests, without observers. `protected`: whether OSCORE is used.
        """
        super().__init__()
        self._sessions = sessions
        self._streams = streams
        self._blocks = blocks
        self._readings = readings
        self._own_topics = own_topics
        self._working = Quota(max_pending, "requests in work", "coap.max_pending_requests", retry_after=1)
        self._core = WKCResource(partial(_links, protected), impl_info=None)

    async def render(self, request: Message) -> Message:
        """Not used: all requests go through `render_to_pipe`."""
        raise NotImplementedError

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        """Not used either."""
        raise NotImplementedError

    async def render_to_pipe(self, pipe: Pipe) -> None:
        """Answer a request."""
        request, started = pipe.request, time.perf_counter()
        try:
            check_options(request)
            response = self._blocks.part(request) or self._blocks.whole(request)
            if response is None:
                response = await self._route(request)(pipe)
        except RenderableError:
            raise
        except Exception as failure:  # noqa: BLE001 - an internal error is reported and logged, and ends only this request
            error = self._sessions.as_error(failure, None)
            self._sessions.answered("message", error.status_code, started)
            log_refusal(error, self._sessions.gate, peer(request), "/" + "/".join(request.opt.uri_path))
            response = refused(request, error)
        response = self._in_blocks(request, response)
        response.opt.block1 = request.opt.block1
        response.opt.no_response = request.opt.no_response
        pipe.add_response(response, is_last=True)

    def _in_blocks(self, request: Message, response: Message) -> Message:
        if not response.payload or response.opt.block2 is not None:
            return response
        try:
            return self._blocks.first(request, response)
        except (NotReady, TooManyRequests) as error:
            return refused(request, error)

    def _route(self, request: Message) -> _Serve:
        path = tuple(request.opt.uri_path)
        found: dict[Code, _Serve]
        match path:
            case (".well-known", "core"):
                found = {Code.GET: self._list}
            case ("query",):
                found = dict.fromkeys((Code.GET, Code.FETCH, Code.POST), self._query)
            case ("update",):
                found = {Code.POST: self._update}
            case ("subscribe",):
                found = {Code.POST: self._subscribe}
            case ("subscribe", _):
                found = {Code.GET: self._follow, Code.DELETE: self._unsubscribe}
            case ("queries", _, *_):
                found = {Code.GET: self._registered}
            case ("reading", _, *_):
                found = {Code.POST: self._read}
            case _:
                paths = "/query, /update, /subscribe, /queries/NAME, /reading/TOPIC, /.well-known/core"
                raise NotFound(f'There is nothing at "/{"/".join(path)}"; the paths are {paths}')
        if request.code not in found:
            methods = ", ".join(code.name for code in found)
            raise MethodNotAllowed(f"{request.code.name} does not apply to /{'/'.join(path)}; use {methods}")
        return found[request.code]

    async def _list(self, pipe: Pipe) -> Message:
        if pipe.request.opt.accept not in (None, LINK_FORMAT):
            raise NotAcceptable(f"This is given as link format ({LINK_FORMAT}) only")
        message: Message = await self._core.render_get(pipe.request)
        message.code = Code.CONTENT
        return message

    async def _query(self, pipe: Pipe) -> Message:
        return await self._ask("query", pipe.request)

    async def _update(self, pipe: Pipe) -> Message:
        return await self._ask("update", pipe.request)

    async def _ask(self, primitive: Primitive, request: Message) -> Message:
        check_acceptable(request)
        with self._work(request):
            response = await _SingleRequest.ask(self._sessions, read_message(primitive, request), peer(request))
        if "error" in response:
            return failed(request, response)
        ((_, content),) = response.items()
        return answer(request, content, Code.CHANGED if request.code == Code.POST else Code.CONTENT)

    async def _subscribe(self, pipe: Pipe) -> Message:
        request = pipe.request
        check_acceptable(request)
        access = self._sessions.guard.access(token(request))
        message = read_message("subscribe", request)
        with self._work(request):
            followed, first = await self.observations.create(message, access, peer(request))
        if "error" in first:
            return failed(request, first)
        path = ("subscribe", followed.name)
        created = {"path": f"/{'/'.join(path)}", "spuid": first["notification"]["spuid"]}
        response = answer(request, created, Code.CREATED)
        response.opt.location_path = path
        return response

    async def _follow(self, pipe: Pipe) -> Message:
        request = pipe.request
        check_acceptable(request)
        followed = self._followed(request)
        if request.opt.observe == 0:
            return await followed.follow(pipe)
        if request.opt.observe == 1:
            followed.end()
        with self._work(request):
            response = await _SingleRequest.ask(self._sessions, followed.as_query(token(request)), peer(request))
        return failed(request, response) if "error" in response else answer(request, response["result"], Code.CONTENT)

    async def _unsubscribe(self, pipe: Pipe) -> Message:
        started = time.perf_counter()
        self._followed(pipe.request).end()
        self._sessions.answered("unsubscribe", 200, started)
        return Message(code=Code.DELETED)

    def _followed(self, request: Message) -> ObservedSubscription:
        access = self._sessions.guard.access(token(request))
        check(access, "subscribe")
        return self.observations.find(request.opt.uri_path[1], access.client)

    async def _registered(self, pipe: Pipe) -> Message:
        """Observe the reports of a registered query, or describe it."""
        request, started = pipe.request, time.perf_counter()
        check_acceptable(request)
        # The slashes of a name may be encoded or not, as over HTTP.
        name = "/".join(request.opt.uri_path[1:])
        if request.opt.observe == 0:
            parameters = [each.partition("=") for each in request.opt.uri_query]
            values = {key: [value for name, _, value in parameters if name == key] for key in ("after", "of")}
            after = read_after(values["after"], values["of"])
            return await self.reports.observe(pipe, name, after)
        access = self._sessions.admit(token(request), peer(request), "query")
        if (streams := self._streams()) is None:
            raise no_streams()
        with self._work(request):
            described = await streams.query(name, access)
        self._sessions.answered("query", 200, started)
        return answer(request, dict(described), Code.CONTENT)

    async def _read(self, pipe: Pipe) -> Message:
        request, started = pipe.request, time.perf_counter()
        check_acceptable(request)
        access = self._sessions.guard.access(token(request))
        self._sessions.rate_limit.request(client_of(access, peer(request)), time.monotonic())
        topic = self._topic(request)
        check_publish(access, topic)
        with self._work(request):
            count = await self._readings(topic, _payload(request))
        if not count:
            raise InvalidRequest(
                f'No mapping finds a reading in this message on the topic "{topic}"; see /api/unmapped and '
                "/api/bad-values of the HTTP gate"
            )
        self._sessions.answered("reading", 200, started)
        return answer(request, {"readings": count}, Code.CHANGED)

    def _topic(self, request: Message) -> str:
        """Return the topic in the path of a reading. Raises `InvalidRequest`."""
        topic = "/".join(request.opt.uri_path[1:])
        if not is_topic(topic):
            raise InvalidRequest(
                f'"{topic}" is not a valid topic: it contains a wildcard or a zero byte, or is empty or too long'
            )
        if topic.startswith("$"):
            raise InvalidRequest(f'"{topic}" is a topic of a broker\'s own (it begins with $); no readings are there')
        if self._own_topics and topic.startswith(self._own_topics):
            raise InvalidRequest(f'"{topic}" is a topic of the MQTT gate (mqtt_gate.root); no readings are there')
        return topic

    @contextmanager
    def _work(self, request: Message) -> Iterator[None]:
        who = peer(request)
        self._working.take(who)
        try:
            yield
        finally:
            self._working.release(who)


class _SingleRequest:
    """Connection of a session for a single request; implements `ClientConnection` of `edge.gates.outgoing`."""

    writable = True
    unsent = 0

    def __init__(self) -> None:
        self.response: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @classmethod
    async def ask(cls, sessions: Sessions, message: dict[str, Any], peer: str) -> dict[str, Any]:
        """Return the response to a message, or the error. The engine finishes the request even if the client
        disconnects.
        """
        connection = cls()
        session = Session(sessions, connection, peer)
        try:
            session.receive(json.dumps(message))
            return await connection.response
        finally:
            session.close()

    def write(self, text: str) -> None:
        """Store the response."""
        if not self.response.done():
            self.response.set_result(json.loads(text))

    async def write_and_wait(self, text: str) -> bool:
        """Store the response."""
        self.write(text)
        return True

    async def taken(self) -> bool:
        """Return True: the response is stored at once."""
        return True

    def close(self, code: int, reason: str) -> None:
        """Do nothing: there is no connection."""

    def abort(self) -> None:
        """Do nothing."""


def _payload(request: Message) -> bytes:
    """Return the payload of a device in the form that the mapping language reads."""
    sent = format_of(request)
    payload: bytes = request.payload
    if sent == SENML_CBOR:
        return as_json(payload)
    if sent == CBOR:
        return json.dumps(read_cbor(payload)).encode()
    if sent in (TEXT, JSON, SENML_JSON):
        return payload
    raise unsupported(request, TEXT, JSON, CBOR, SENML_JSON, SENML_CBOR)


def _links(protected: bool) -> LinkFormat:
    """Return the link format (RFC 6690); `osc` marks resources protected with OSCORE (RFC 8613, section 9)."""
    about: dict[str, str | None] = {"osc": None} if protected else {}
    formats = dict.fromkeys(("query", "update", "subscribe"), f"{JSON} {CBOR}")
    formats["reading"] = f"{TEXT} {JSON} {CBOR} {SENML_JSON} {SENML_CBOR}"
    return LinkFormat([Link(f"/{name}", rt=f"sepa.{name}", ct=ct, **about) for name, ct in formats.items()])
