"""What there is at which path, and what holds for every request."""

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
from edge.gates.coap.requests import Primitive, check_options, peer, read_message, token
from edge.gates.coap.senml import as_json
from edge.gates.guard import check, check_publish
from edge.gates.rate_limit import client_of
from edge.gates.session import Session, Sessions
from edge.gates.subscriptions import as_told
from edge.protocol.errors import InvalidRequest, MethodNotAllowed, NotAcceptable, NotFound, NotReady, TooManyRequests
from edge.protocol.topics import is_topic

Readings = Callable[[str, bytes], Awaitable[int]]
"""Takes what a device says on a topic. Returns how many readings were in it, once they are stored."""

_Serve = Callable[[Pipe], Awaitable[Message]]


class Site(Resource):  # type: ignore[misc]  # the library has no types
    """All resources. Errors of the tree become answers; anything else that is raised is a fault of ours."""

    following: ObserveRegistry
    """Set before the first request comes."""

    def __init__(
        self,
        sessions: Sessions,
        blocks: Blocks,
        readings: Readings,
        *,
        own_topics: str,
        max_pending: int,
        protected: bool,
    ) -> None:
        """`own_topics`: what those begin with that hold no readings; empty where there are none.

        `max_pending`: requests in work at a time; observers do not count. `protected`: whether OSCORE is spoken.
        """
        super().__init__()
        self._sessions = sessions
        self._blocks = blocks
        self._readings = readings
        self._own_topics = own_topics
        self._working = Quota(max_pending, "requests in work", "coap.max_pending_requests", retry_after=1)
        self._core = WKCResource(partial(_links, protected), impl_info=None)

    async def render(self, request: Message) -> Message:
        """Never called: all goes the way of `render_to_pipe`."""
        raise NotImplementedError

    async def needs_blockwise_assembly(self, request: Message) -> bool:
        """Never called, likewise."""
        raise NotImplementedError

    async def render_to_pipe(self, pipe: Pipe) -> None:
        """Answer a request."""
        request, started = pipe.request, time.perf_counter()
        try:
            check_options(request)
            said = self._blocks.part(request) or self._blocks.whole(request)
            if said is None:
                said = await self._route(request)(pipe)
        except RenderableError:
            raise
        except Exception as failure:  # noqa: BLE001 - a fault of ours is told and logged, and ends this request alone
            error = as_told(failure, None, self._sessions.metrics)
            self._sessions.answered("message", error.status_code, started)
            said = refused(request, error)
        said = self._in_blocks(request, said)
        said.opt.block1 = request.opt.block1
        said.opt.no_response = request.opt.no_response
        pipe.add_response(said, is_last=True)

    def _in_blocks(self, request: Message, said: Message) -> Message:
        if not said.payload or said.opt.block2 is not None:
            return said
        try:
            return self._blocks.first(request, said)
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
            case ("reading", _, *_):
                found = {Code.POST: self._read}
            case _:
                paths = "/query, /update, /subscribe, /reading/TOPIC, /.well-known/core"
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
            said = await _Once.ask(self._sessions, read_message(primitive, request), peer(request))
        if "error" in said:
            return failed(request, said)
        ((_, content),) = said.items()
        return answer(request, content, Code.CHANGED if request.code == Code.POST else Code.CONTENT)

    async def _subscribe(self, pipe: Pipe) -> Message:
        request = pipe.request
        check_acceptable(request)
        access = self._sessions.guard.access(token(request))
        message = read_message("subscribe", request)
        with self._work(request):
            followed, first = await self.following.create(message, access, peer(request))
        if "error" in first:
            return failed(request, first)
        path = ("subscribe", followed.name)
        created = {"path": f"/{'/'.join(path)}", "spuid": first["notification"]["spuid"]}
        said = answer(request, created, Code.CREATED)
        said.opt.location_path = path
        return said

    async def _follow(self, pipe: Pipe) -> Message:
        request = pipe.request
        check_acceptable(request)
        followed = self._followed(request)
        if request.opt.observe == 0:
            return await followed.follow(pipe)
        if request.opt.observe == 1:
            followed.end()
        with self._work(request):
            said = await _Once.ask(self._sessions, followed.as_query(token(request)), peer(request))
        return failed(request, said) if "error" in said else answer(request, said["result"], Code.CONTENT)

    async def _unsubscribe(self, pipe: Pipe) -> Message:
        started = time.perf_counter()
        self._followed(pipe.request).end()
        self._sessions.answered("unsubscribe", 200, started)
        return Message(code=Code.DELETED)

    def _followed(self, request: Message) -> ObservedSubscription:
        access = self._sessions.guard.access(token(request))
        check(access, "subscribe")
        return self.following.find(request.opt.uri_path[1], access.client)

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
                f'Nothing in it is a reading, as far as the mappings say for the topic "{topic}"; /api/unmapped and '
                "/api/bad-values of the HTTP gate tell more"
            )
        self._sessions.answered("reading", 200, started)
        return answer(request, {"readings": count}, Code.CHANGED)

    def _topic(self, request: Message) -> str:
        """What the path of a reading says. Raises `InvalidRequest`."""
        topic = "/".join(request.opt.uri_path[1:])
        if not is_topic(topic):
            raise InvalidRequest(f'"{topic}" is no topic: it has a wildcard or a zero byte, or is empty or too long')
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
            self._working.give_back(who)


class _Once:
    """The connection of a session for one request; a `Connection` of `edge.gates.outgoing`."""

    writable = True
    unsent = 0

    def __init__(self) -> None:
        self.said: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    @classmethod
    async def ask(cls, sessions: Sessions, message: dict[str, Any], peer: str) -> dict[str, Any]:
        """The answer to a message, or the error. What was begun is finished whatever becomes of who asks."""
        connection = cls()
        session = Session(sessions, connection, peer)
        try:
            session.receive(json.dumps(message))
            return await connection.said
        finally:
            session.close()

    def write(self, text: str) -> None:
        """Take in the answer."""
        if not self.said.done():
            self.said.set_result(json.loads(text))

    async def write_and_wait(self, text: str) -> bool:
        """Take in the answer."""
        self.write(text)
        return True

    async def taken(self) -> bool:
        """The answer always is."""
        return True

    def close(self, code: int, reason: str) -> None:
        """There is nothing to close."""

    def abort(self) -> None:
        """Likewise."""


def _payload(request: Message) -> bytes:
    """What a device sent, as the mapping language reads it."""
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
    """RFC 6690; `osc`: protected with OSCORE (RFC 8613, section 9)."""
    about: dict[str, str | None] = {"osc": None} if protected else {}
    formats = dict.fromkeys(("query", "update", "subscribe"), f"{JSON} {CBOR}")
    formats["reading"] = f"{TEXT} {JSON} {CBOR} {SENML_JSON} {SENML_CBOR}"
    return LinkFormat([Link(f"/{name}", rt=f"sepa.{name}", ct=ct, **about) for name, ct in formats.items()])
