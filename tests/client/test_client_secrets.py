"""A client sends its token to its broker only."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.server import serve

from edge.client import Client, Endpoints, Options
from edge.protocol.addresses import keeps_secrets


@pytest.mark.parametrize(
    ("url", "keeps"),
    [
        ("https://gateway.example/query", True),
        ("wss://192.0.2.1:9443/subscribe", True),
        ("mqtts://broker", True),
        ("http://127.0.0.1:8000/query", True),
        ("http://[::1]:8000", True),
        ("ws://localhost:9000", True),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
        ("http://127.0.0.1@example.org", False),
        ("http://0.0.0.0:8000", False),
        ("ws://192.168.1.5:9000", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_a_connection_that_others_can_read_is_recognised(url, keeps):
    assert keeps_secrets(url) is keeps


async def test_unencrypted_remote_endpoints_are_refused_with_a_token():
    options = Options(token=lambda: "abc")
    for endpoints in (
        Endpoints.at("192.168.1.5"),
        Endpoints("https://g/query", "https://g/update", "ws://g/subscribe"),
        Endpoints("https://g/query", "http://g/update", "wss://g/subscribe"),
    ):
        with pytest.raises(ValueError, match="use https and wss"):
            Client(endpoints, options=options)
        async with Client(endpoints):
            pass
    async with Client(Endpoints("https://g/query", "https://g/update", "wss://g/subscribe"), options=options):
        pass


async def test_a_websocket_with_a_token_does_not_follow_redirects():
    seen: list[str | None] = []

    async def other(connection):
        seen.append(connection.request.headers.get("Authorization"))
        await connection.close()

    asked = asyncio.Event()
    async with serve(other, "127.0.0.1", 0) as elsewhere:
        port = elsewhere.sockets[0].getsockname()[1]

        def send_on(connection, request):
            asked.set()
            response = connection.respond(302, "there")
            response.headers["Location"] = f"ws://127.0.0.1:{port}/"
            return response

        async with serve(other, "127.0.0.1", 0, process_request=send_on) as broker:
            url = f"127.0.0.1:{broker.sockets[0].getsockname()[1]}"
            endpoints = Endpoints(f"http://{url}/query", f"http://{url}/update", f"ws://{url}/subscribe")
            async with Client(endpoints, over="websocket", options=Options(token=lambda: "abc", timeout=0.5)) as client:
                with pytest.raises(Exception, match="302"):
                    await client.query("ASK {}")
                assert asked.is_set()
    assert seen == []
