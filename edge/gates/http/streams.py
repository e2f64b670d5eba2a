"""Resources of RDF streams, continuous queries and their observers.

They follow Balduini and Della Valle, "A RESTful Interface for RDF Stream Processors" (ISWC 2013), Table 1. As with the
processors of its authors, answers to changes are JSON strings with status 200.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlsplit

import pyoxigraph as ox
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from edge.engine.admission.byte_quota import Charge
from edge.gates.guard import check
from edge.gates.http.body import CHARGE, FORM, content_type, parse_parameters, read_text
from edge.gates.http.documents import Endpoint, to_json
from edge.gates.http.inbox_address import inbox_link
from edge.gates.http.rdf_body import read_graph
from edge.gates.report_following import ReportSource, no_streams
from edge.gates.settings import HttpGateSettings
from edge.gates.stream_charge import request_size
from edge.protocol.access import Access
from edge.protocol.due_time import read_delay, read_time
from edge.protocol.errors import InvalidRequest, NotFound

_CALLBACK: Final = ("callback", "callbackUrl", "callback_url")
"""Names of the form field with a callback URL."""
_TARGET: Final = "target"
"""Name of the form field with the URL of a target of notifications."""
_QUERIES: Final = "/queries/"
_OBSERVERS_OF: Final = "/queries/{name}/observers"


_LONGEST_QUERY: Final = 256 * 1024
"""Bytes of a body with a query or a callback URL."""


class Streams(ReportSource, Protocol):
    """The processor of RDF streams. Its methods raise `EdgeError`."""

    async def put_stream(self, identifier: str, lateness: int | None, access: Access) -> str:
        """Register a stream, or change its lateness (microseconds). Returns its IRI."""

    async def drop_stream(self, identifier: str, access: Access) -> str:
        """End a stream. Returns its IRI."""

    async def stream(self, identifier: str, access: Access) -> Mapping[str, object]:
        """Return a description of a stream."""

    async def late_elements(self, identifier: str, access: Access) -> Sequence[Mapping[str, object]]:
        """Return the newest elements of a stream that came too late."""

    async def streams(self, access: Access) -> Sequence[Mapping[str, object]]:
        """Return descriptions of all streams."""

    async def add(
        self, identifier: str, elements: Sequence[tuple[tuple[ox.Triple, ...], int | None]], access: Access
    ) -> Mapping[str, int]:
        """Add all elements, or none: graphs with times in microseconds since 1970; None: now. Returns numbers of
        elements by fate.
        """

    def registers(self, text: str) -> bool:
        """Return whether a text registers a query."""

    async def explain(self, text: str, access: Access) -> Mapping[str, object]:
        """Explain how a query would be evaluated, with its windows as lines of text."""

    async def register(self, name: str, text: str, access: Access) -> None:
        """Register a query."""

    async def unregister(self, name: str, access: Access) -> None:
        """End a query."""

    async def pause(self, name: str, access: Access, *, paused: bool) -> None:
        """Pause a query, or let it go on."""

    async def queries(self, access: Access) -> Sequence[Mapping[str, object]]:
        """Return descriptions of all queries."""

    async def observe(self, name: str, url: str, access: Access, *, is_target: bool = False) -> str:
        """Add an observer: a callback URL, or the URL of a target, whose inbox gets notifications. A path instead of a
        callback URL names a stream of this gateway. Returns its id.
        """

    async def observers(self, name: str, access: Access) -> Sequence[Mapping[str, object]]:
        """Return descriptions of the observers of a query."""

    async def end_observer(self, name: str, observer: str, access: Access) -> None:
        """End an observer."""


class StreamResources:
    """The endpoints."""

    def __init__(
        self,
        streams: Callable[[], Streams | None],
        settings: HttpGateSettings,
        access: Callable[[Request], Access],
        recheck: Callable[[Request], Access],
    ) -> None:
        """`streams` returns None without streams. `access` authenticates a client and counts its request; `recheck`
        does so again after the body was read. Both raise `EdgeError`.
        """
        self._streams = streams
        self._settings = settings
        self._access = access
        self._recheck = recheck

    def routes(self) -> Iterable[tuple[str, Endpoint, list[str]]]:
        """Return path, endpoint and methods of each resource."""
        return (
            ("/streams", self._list_streams, ["GET"]),
            ("/streams/{id:path}", self._stream, ["GET", "PUT", "POST", "DELETE"]),
            ("/queries", self._list_queries, ["GET"]),
            ("/queries/{name:path}/observers", self._below_queries, ["GET"]),
            ("/queries/{name:path}/observers/{observer}", self._below_queries, ["GET", "DELETE"]),
            ("/queries/{name:path}", self._below_queries, ["GET", "PUT", "POST", "DELETE"]),
        )

    def _get(self) -> Streams:
        streams = self._streams()
        if streams is None:
            raise no_streams()
        return streams

    async def _list_streams(self, request: Request) -> Response:
        check(access := self._access(request), "query")
        return to_json(await self._get().streams(access))

    async def _stream(self, request: Request) -> Response:
        identifier: str = request.path_params["id"]
        if not identifier and request.method in ("GET", "HEAD"):
            return await self._list_streams(request)
        access, streams = self._access(request), self._get()
        if request.method in ("GET", "HEAD"):
            check(access, "query")
            if "elements" in (parameters := _parameters(request)):
                if parameters["elements"] != "late":
                    raise InvalidRequest('"elements" can be "late"; leave it out for the description of the stream')
                return to_json(await streams.late_elements(identifier, access))
            return to_json(await streams.stream(identifier, access))
        check(access, "update")
        parameters = _parameters(request)
        if request.method == "DELETE":
            return to_json(f"Stream {await streams.drop_stream(identifier, access)} unregistered")
        if request.method == "PUT":
            lateness = _read(parameters, "lateness", read_delay)
            return to_json(f"Stream {await streams.put_stream(identifier, lateness, access)} registered")
        time = _read(parameters, "timestamp", read_time)
        text = await read_text(request, self._settings, json_may_be_latin_1=True)
        check(access := self._recheck(request), "update")
        media_type = content_type(request).media_type
        with _charged(request, text) as charge:
            triples = await asyncio.to_thread(read_graph, text, media_type, str(request.base_url))
            charge.set(request_size(text, 1, len(triples)))
            found = await streams.add(identifier, [(triples, time)], access)
        return to_json(", ".join(f"{number} {fate}" for fate, number in found.items()))

    async def _list_queries(self, request: Request) -> Response:
        check(access := self._access(request), "query")
        return to_json(await self._get().queries(access))

    async def _below_queries(self, request: Request) -> Response:
        """Serve a path below /queries/. The route is chosen by the decoded path, where the slashes of an IRI look like
        those of the path, so the resource is found in the path as it was sent.
        """
        name, kind, observer = _resource(request)
        if kind == "observers":
            _check_method(request, "GET")
            return await self._observers(request, name)
        if kind == "observer":
            _check_method(request, "GET", "DELETE")
            return await self._observer(request, name, observer)
        if not name and request.method in ("GET", "HEAD"):
            return await self._list_queries(request)
        return await self._query(request, name)

    async def _query(self, request: Request, name: str) -> Response:
        access, streams = self._access(request), self._get()
        check(access, "query")
        if request.method in ("GET", "HEAD"):
            response = to_json(await streams.query(name, access))
            response.headers.update(inbox_link("query", name))
            # Without rel="hub": a WebSub hub sends the content of its topic (section 7), which is this description, and
            # not a report. Observers subscribe with POST to this URL.
            response.headers["Link"] += f', <{_path(name)}>; rel="self"'
            return response
        if request.method == "DELETE":
            await streams.unregister(name, access)
            return to_json(f"Query {name} unregistered")
        text = await read_text(request, self._settings, _LONGEST_QUERY)
        check(access := self._recheck(request), "query")
        with _charged(request, text):
            return await self._change_query(request, name, text, access, streams)

    async def _change_query(self, request: Request, name: str, text: str, access: Access, streams: Streams) -> Response:
        if request.method == "PUT":
            await streams.register(name, text, access)
            return to_json(_url(request, name))
        action, url, is_target = _command(request, text)
        if action:
            await streams.pause(name, access, paused=action == "pause")
            return to_json(f"Query {name} {'paused' if action == 'pause' else 'restarted'}")
        observed = url if is_target else _own_path(request, url)
        observer = await streams.observe(name, observed, access, is_target=is_target)
        location = f"{_url(request, name)}/observers/{observer}"
        response = to_json(location)
        response.headers["Location"] = location
        return response

    async def _observers(self, request: Request, name: str) -> Response:
        check(access := self._access(request), "query")
        return to_json(await self._get().observers(name, access))

    async def _observer(self, request: Request, name: str, observer: str) -> Response:
        check(access := self._access(request), "query")
        if request.method == "DELETE":
            await self._get().end_observer(name, observer, access)
            return to_json(f"Observer {observer} unregistered")
        for each in await self._get().observers(name, access):
            if each["id"] == observer:
                # Clients of this interface expect a JSON string here; its text is that of the description.
                return to_json(json.dumps(each, ensure_ascii=False))
        raise NotFound(f'The query "{name}" has no observer {observer}; GET {_OBSERVERS_OF} lists them')


@contextmanager
def _charged(request: Request, text: str) -> Iterator[Charge]:
    """Charge the client for a body until it is processed, also if the client disconnects. Raises `TooManyRequests`."""
    charge: Charge = request.scope[CHARGE]
    try:
        charge.set(request_size(text))
        yield charge
    finally:
        charge.release()


def _resource(request: Request) -> tuple[str, str, str]:
    """Return the name of a query, the kind of the resource, and the id of an observer, from the path as it was sent.

    A slash at the end is ignored.
    """
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    parts = raw.decode("ascii", "replace").removeprefix(_QUERIES).split("/")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    decoded = [unquote(part) for part in parts]
    if len(parts) > 1 and parts[-1] == "observers":
        return "/".join(decoded[:-1]), "observers", ""
    if len(parts) > 2 and parts[-2] == "observers":
        return "/".join(decoded[:-2]), "observer", decoded[-1]
    return "/".join(decoded), "query", ""


def _check_method(request: Request, *methods: str) -> None:
    if request.method not in (*methods, "HEAD"):
        raise HTTPException(405, headers={"Allow": ", ".join(sorted({*methods, "HEAD", "OPTIONS"}))})


def _parameters(request: Request) -> dict[str, str]:
    return dict(parse_parameters(request.scope["query_string"]))


def _read(parameters: Mapping[str, str], name: str, read: Callable[[str], int]) -> int | None:
    """Return a parameter; None if it is not there. Raises `InvalidRequest`."""
    value = parameters.get(name)
    if value is None:
        return None
    try:
        return read(value)
    except ValueError as error:
        # The readers are those of delayed updates, whose parameters have other names.
        reason = str(error).replace('"at"', f'"{name}"').replace('"delay"', f'"{name}"')
        raise InvalidRequest(reason) from None


def _command(request: Request, text: str) -> tuple[str, str, bool]:
    """Return the action of a POST to a query ("pause", "restart", or none), the URL of a new observer, and whether it
    is a target of notifications.
    """
    fields: dict[str, Any] = _parameters(request)
    target = None
    if content_type(request).media_type == FORM:
        fields |= dict(parse_parameters(text))
        target = fields.get(_TARGET)
        text = next((fields[name] for name in _CALLBACK if name in fields), "")
        if target is not None and text:
            raise InvalidRequest('An observer has a "callback" or a "target": leave out one of them')
    action = fields.get("action", "")
    if action not in ("", "pause", "restart", "addObserver"):
        raise InvalidRequest('"action" can be "pause" or "restart"; a new observer is a callback URL without an action')
    url = (text if target is None else target).strip()
    if action in ("pause", "restart"):
        return action, "", False
    if not url:
        raise InvalidRequest(
            "Send a callback URL as plain text, or target=URL, action=pause or action=restart as a form"
        )
    return "", url, target is not None


def _own_path(request: Request, url: str) -> str:
    """Return the path of a URL that has the host of the request, if it is that of a stream; otherwise the URL."""
    base, own = urlsplit(str(request.base_url)), url.startswith(("http://", "https://"))
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    if own and parts.netloc == base.netloc and parts.path.startswith("/streams/") and not parts.query:
        return parts.path
    return url


def _url(request: Request, name: str) -> str:
    return f"{str(request.base_url).removesuffix('/')}{_path(name)}"


def _path(name: str) -> str:
    return f"{_QUERIES}{quote(name, safe='')}"
