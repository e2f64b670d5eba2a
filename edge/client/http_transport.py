"""Transport over HTTP (SPARQL 1.1 Protocol, section 2), which every broker and SPARQL endpoint supports."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx
import pyoxigraph as ox

from edge.client.answers import Scheduled, Timer, Updated
from edge.client.authorization import Authorization, check_encrypted
from edge.client.endpoints import Endpoints, Method, host_and_port, sibling
from edge.client.errors import BadAnswer, Closed, NoAnswer, Refused, reason
from edge.client.http_body import ENDPOINTS_BYTES, PLAIN, read_body
from edge.client.results import Result, query_form, read_result
from edge.client.transport import QUERY_DATASET, UPDATE_DATASET, RequestAttempt, RequestText

_RESULTS: Final = "application/sparql-results+json"
_TRIPLES: Final = "application/n-triples"
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

Parameters = list[tuple[str, str]]


class Http:
    """HTTP connection pool for all servers."""

    def __init__(self, tls: ssl.SSLContext | None, timeout: float, authorization: Authorization) -> None:
        """`timeout`: seconds after which a request is aborted, even if the caller sets no deadline."""
        self._authorization = authorization
        self._tls = tls
        self._timeout = timeout
        self._client: httpx.AsyncClient | None = None
        self._closed = False
        self._unanswered: set[asyncio.Timeout] = set()
        """Time limits of the requests that wait for their answers."""

    async def close(self) -> None:
        """Close all connections. Waiting and later requests raise `Closed`."""
        self._closed = True
        for limit in self._unanswered:  # httpx lets them wait for their answers
            limit.reschedule(0)
        if self._client is not None:
            await self._client.aclose()

    async def send(
        self,
        method: str,
        url: str,
        attempt: RequestAttempt,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        limit_bytes: int | None = None,
    ) -> httpx.Response:
        """Send a request and return the response if it is a success. Raises `Refused`, `NoAnswer`, `Closed`.

        `limit_bytes`: maximum length of the body; raises `BadAnswer` for a longer one. Raises `ValueError` if the
        token would go to another machine without encryption.
        """
        headers = dict(headers or {})
        # For each request, because the address may have changed since the client was created.
        if attempt.authorization is not None and self._authorization.goes_to(url):
            check_encrypted(url)
            headers["Authorization"] = attempt.authorization
        if self._closed:  # the request waited for its turn until then, and httpx would raise a RuntimeError
            raise Closed("the client was closed")
        if self._client is None:  # loading the system's certificates is slow
            # No proxies and credentials from the environment. httpx does not follow redirects, so the token stays with
            # the broker.
            self._client = httpx.AsyncClient(verify=True if self._tls is None else self._tls, trust_env=False)
        now = asyncio.get_running_loop().time()
        deadline = min(attempt.deadline, now + self._timeout)
        left = deadline - now
        request = self._client.build_request(method, url, headers=headers, content=content, timeout=max(left, 0.001))
        # The phases have their own timeouts, which show whether the request was sent. This one is for slow answers.
        limit = asyncio.timeout_at(deadline + 1)
        try:
            async with limit:
                self._unanswered.add(limit)
                response = await read_body(await self._client.send(request, stream=True), limit_bytes)
        except _NOT_SENT as error:
            raise NoAnswer(f"no connection to {url}: {reason(error)}", sent=False) from None
        except (httpx.TransportError, TimeoutError) as error:
            if self._closed:
                raise Closed("the client was closed") from None
            raise NoAnswer(f"no answer from {url}: {reason(error)}", sent=True) from None
        finally:
            self._unanswered.discard(limit)
        if response.is_success:
            return response
        message = _object(response, lenient=True)
        if "error" not in message:
            message = {"error": "http", "error_description": f"{url} answered {response.status_code}"}
        raise Refused.of(message, response.status_code)

    async def is_gateway(self, endpoints: Endpoints, attempt: RequestAttempt, *, any_socket: bool = False) -> bool:
        """Return whether updates go to a sepa-edge gateway that also serves the subscriptions.

        `any_socket`: the client connects to the WebSocket that this broker names, whatever its address is. Raises
        `NoAnswer`, and `Refused` if a later attempt may succeed.
        """
        # A profile may combine the SPARQL endpoint of one broker with the WebSocket of another.
        host, _ = host_and_port(endpoints.update)
        subscribe_host, port = host_and_port(endpoints.subscribe)
        if host != subscribe_host:
            return False
        try:
            asked = sibling(endpoints.update, "/api/endpoints")
            response = await self.send("GET", asked, attempt, headers=PLAIN, limit_bytes=ENDPOINTS_BYTES)
        except Refused as error:
            if error.status_code in (401, 503):  # the token is rejected, or the broker starts: the answer is still open
                raise
            return False
        except BadAnswer:  # too long for a gateway
            return False
        url = _object(response, lenient=True).get("ws")
        if not isinstance(url, str) or not url.startswith(("ws://", "wss://")):
            return False
        return any_socket or host_and_port(url)[1] == port


class HttpTransport:
    """`Transport` over HTTP."""

    def __init__(self, http: Http, endpoints: Callable[[], Endpoints]) -> None:
        """`endpoints` is called at each request: the gateway may have other ports after a restart."""
        self._http = http
        self._find = endpoints

    @property
    def _endpoints(self) -> Endpoints:
        return self._find()

    async def query(self, text: RequestText, attempt: RequestAttempt) -> Result:
        """Execute a query."""
        form = query_form(text.sparql)
        accept = f"{_TRIPLES}, {_RESULTS};q=0.5" if form in ("CONSTRUCT", "DESCRIBE") else _RESULTS
        dataset = _parameters(text.members(*QUERY_DATASET))
        url, method = self._endpoints.query, self._endpoints.query_method
        response = await self._send("query", text.sparql, dataset, url, method, attempt, accept)
        if response.headers.get("content-type", "").split(";")[0].strip() != _TRIPLES:
            return read_result(_object(response), form)
        try:
            return [quad.triple for quad in ox.parse(response.content, format=ox.RdfFormat.N_TRIPLES)]
        except (SyntaxError, ValueError) as error:
            raise BadAnswer(f"these are not triples: {error}") from None

    async def update(self, text: RequestText, due: Mapping[str, Any], attempt: RequestAttempt) -> Updated | Scheduled:
        """Execute an update now, or when `due` says."""
        parameters = _parameters({**text.members(*UPDATE_DATASET), **due})
        url, method = self._endpoints.update, self._endpoints.update_method
        response = await self._send("update", text.sparql, parameters, url, method, attempt, "*/*")
        # Endpoints of other vendors answer an update with any text. The confirmation of a delayed one must be valid.
        answer = _object(response, lenient=not due)
        if not due:
            return Updated.of(answer)
        if "scheduled" not in answer:
            raise BadAnswer("the broker has not scheduled the update; it may have carried it out")
        return Scheduled.of(answer["scheduled"])

    async def timers(self, state: str | None, attempt: RequestAttempt) -> list[Timer]:
        """Return delayed updates, waiting and finished."""
        url = _with(self._timers(), [] if state is None else [("state", state)])
        return Timer.several(_object(await self._http.send("GET", url, attempt)))

    async def timer(self, id: str, attempt: RequestAttempt) -> Timer:  # noqa: A002 - the protocol's name
        """Return one delayed update."""
        answer = _object(await self._http.send("GET", self._timers(id), attempt)).get("timer")
        if not isinstance(answer, dict):
            raise BadAnswer(f'no "timer" in the answer of {self._timers(id)}')
        return Timer.of(answer)

    async def cancel(self, id: str, attempt: RequestAttempt) -> None:  # noqa: A002 - the protocol's name
        """Cancel a waiting delayed update."""
        await self._http.send("DELETE", self._timers(id), attempt)

    async def series(self, parameters: Parameters, attempt: RequestAttempt) -> dict[str, Any]:
        """Return the answer to a request for recent values."""
        # On the server of queries, because the permission to query covers it.
        url = _with(sibling(self._endpoints.query, "/api/series"), parameters)
        return _object(await self._http.send("GET", url, attempt, headers={"Accept": "application/json"}))

    def _timers(self, id: str | None = None) -> str:  # noqa: A002 - the protocol's name
        return sibling(self._endpoints.update, "/timers" if id is None else f"/timers/{quote(id, safe='')}")

    async def _send(
        self,
        primitive: str,
        sparql: str,
        parameters: Parameters,
        url: str,
        method: Method,
        attempt: RequestAttempt,
        accept: str,
    ) -> httpx.Response:
        whole = [(primitive, sparql), *parameters]
        if method == "GET":
            return await self._http.send("GET", _with(url, whole), attempt, headers={"Accept": accept})
        if method == "POST":
            url, media_type, body = _with(url, parameters), f"application/sparql-{primitive}", sparql
        else:
            media_type, body = "application/x-www-form-urlencoded", urlencode(whole)
        headers = {"Accept": accept, "Content-Type": media_type}
        return await self._http.send("POST", url, attempt, headers=headers, content=body.encode())


def _parameters(members: Mapping[str, Any]) -> Parameters:
    return [
        (name, str(item)) for name, value in members.items() for item in (value if isinstance(value, list) else [value])
    ]


def _with(url: str, parameters: Parameters) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}" if parameters else url


def _object(response: httpx.Response, *, lenient: bool = False) -> dict[str, Any]:
    """Return the body as a JSON object; with `lenient`, an empty one for any other body."""
    try:
        found = json.loads(response.content)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if lenient:
        return {}
    raise BadAnswer(f"{response.url.path} did not answer with a JSON object: {response.text:.200}")
