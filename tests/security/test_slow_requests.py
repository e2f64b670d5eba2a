"""Requests whose body is still incomplete when the permissions of the client end, and requests that never end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from secured import Harness

from edge.gates.rate_limit import RateLimit
from edge.security.clients import Rights

INSERT = "INSERT DATA { <urn:t:lamp> <urn:t:is> 'on' }"
EVERYTHING = Rights(actions=frozenset({"query", "update", "subscribe", "administer"}))


class SlowRequest:
    """A request with a sent header and no body."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: str) -> None:
        self._reader = reader
        self._writer = writer
        self._body = body

    async def finish(self) -> bytes:
        """Send the body. Return the answer."""
        self._writer.write(self._body.encode())
        return await self._reader.read()


@asynccontextmanager
async def begun(
    harness: Harness, token: str, method: str, path: str, kind: str, body: str
) -> AsyncIterator[SlowRequest]:
    port = urlsplit(harness.gateway.endpoints["http"]).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    header = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
        f"Expect: 100-continue\r\nContent-Type: application/{kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(header.encode())
    try:
        # It asks for the body after it has checked the header.
        assert b"100 Continue" in await reader.readuntil(b"\r\n\r\n")
        yield SlowRequest(reader, writer, body)
    finally:
        writer.close()
        await writer.wait_closed()


REQUESTS = [
    ("POST", "/update", "sparql-update", INSERT),
    ("POST", "/update?delay=PT0.1S", "sparql-update", INSERT),
    ("PUT", "/timers/mine?delay=PT0.1S", "sparql-update", INSERT),
    ("POST", "/query", "sparql-query", "ASK {}"),
    ("POST", "/explain", "sparql-query", "ASK {}"),
    ("PUT", "/api/engine", "json", '{"processing": "sequential"}'),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request[1])
async def test_a_client_revoked_during_its_request_is_refused(harness, request_):
    other, token = await harness.member("other", EVERYTHING), await harness.member("lamp", EVERYTHING)
    async with begun(harness, token, *request_) as slow:
        harness.clients.revoke("lamp")
        answer = await slow.finish()
    assert b" 401 " in answer.splitlines()[0]
    assert b"invalid_client" in answer
    assert (await harness.query(other)).json()["results"]["bindings"] == []
    async with harness.http() as http:
        bearer = {"Authorization": f"Bearer {other}"}
        assert (await http.get("/timers", headers=bearer)).json() == {"timers": []}
        assert (await http.get("/api/engine", headers=bearer)).json()["processing"] == "parallel"


async def test_permissions_reduced_during_a_request_apply(harness):
    token = await harness.member("lamp")
    async with begun(harness, token, *REQUESTS[0]) as slow:
        harness.clients.allow("lamp", Rights(actions=frozenset({"query"})))
        assert b" 403 " in (await slow.finish()).splitlines()[0]


async def test_a_slow_request_with_unchanged_permissions_is_served_and_counted_once(harness, monkeypatch):
    token = await harness.member("lamp")
    counted: list[str] = []
    monkeypatch.setattr(RateLimit, "request", lambda self, who, now: counted.append(who))
    async with begun(harness, token, *REQUESTS[0]) as slow:
        assert b" 200 " in (await slow.finish()).splitlines()[0]
    assert counted == ["lamp"]
