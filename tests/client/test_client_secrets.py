"""A client sends its token to its broker only."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from reference_broker import reference_broker
from websockets.asyncio.server import serve

from edge.client import Backoff, Brokers, Client, Endpoints, Options
from edge.client.authorization import Authorization
from edge.client.connections import Connections
from edge.client.discovery import LocalAddress, with_environment
from edge.jsap import Profile
from edge.protocol.addresses import keeps_secrets
from tests.support.waiting import PATIENCE


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


ELSEWHERE = "127.1"
"""Name of this machine that counts as one of another machine, so that tests can run its broker."""
LOCAL = '{"http": "http://127.0.0.1:1", "ws": "ws://127.0.0.1:1/subscribe"}'


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """The data directory of a gateway that runs, and a token for it in the environment."""
    for name in ("EDGE_URL", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("EDGE__DATA_DIR", str(tmp_path))
    monkeypatch.setenv("EDGE_TOKEN", "secret")
    (tmp_path / "endpoints.json").write_text(LOCAL)
    return tmp_path


def profile_entry(host, http_port=8000, ws_port=9000):
    """Return a query of a profile of this broker."""
    profile = {
        "host": host,
        "sparql11protocol": {"protocol": "http", "port": http_port},
        "sparql11seprotocol": {"protocol": "ws", "availableProtocols": {"ws": {"port": ws_port}}},
        "queries": {"ALL": {"sparql": "SELECT ?n { ?s ?p ?n }"}},
    }
    return Profile.parse(json.dumps(profile)).query("ALL")


async def test_a_stopped_gateway_does_not_make_the_client_send_its_token_unencrypted(data_dir):
    options = Options(token=lambda: "abc", timeout=0.2)
    async with Brokers(options, find_gateway=True) as brokers:
        client = brokers.client(profile_entry("192.168.7.7"))
        (data_dir / "endpoints.json").unlink()
        requests = (
            client.select("SELECT * {}"),
            client.update("INSERT DATA {}"),
            client.series("urn:o"),
            client.timers(),
        )
        for request in requests:
            with pytest.raises(ValueError, match=r"http://192\.168\.7\.7:8000/\S+ is not encrypted"):
                await request


async def test_the_token_of_the_gateway_is_not_sent_to_the_broker_of_a_profile(data_dir):
    async with reference_broker() as broker:
        ports = (int(url.split(":")[2].split("/")[0]) for url in (broker.endpoints.update, broker.endpoints.subscribe))
        async with Brokers(Options(timeout=5), find_gateway=True) as brokers:
            client = brokers.client(profile_entry(ELSEWHERE, *ports))
            (data_dir / "endpoints.json").unlink()
            broker.rows = [1]
            assert len(await client.select("SELECT ?n { ?s ?p ?n }")) == 1
            await client.update("INSERT DATA {}")
            await client.subscribe("SELECT ?n { ?s ?p ?n }")
    assert [headers.get("Authorization") for headers in broker.headers] == [None, None]
    assert [message.get("authorization") for message in broker.subscribes] == [None]


async def test_the_broker_of_a_profile_on_this_machine_gets_the_token(data_dir):
    (data_dir / "endpoints.json").unlink()
    async with reference_broker() as broker:
        ports = (int(url.split(":")[2].split("/")[0]) for url in (broker.endpoints.update, broker.endpoints.subscribe))
        async with Brokers(Options(timeout=5), find_gateway=True) as brokers:
            client = brokers.client(profile_entry("127.0.0.1", *ports))
            await client.select("SELECT ?n { ?s ?p ?n }")
            await client.subscribe("SELECT ?n { ?s ?p ?n }")
    assert [headers.get("Authorization") for headers in broker.headers] == ["Bearer secret"]
    assert [message.get("authorization") for message in broker.subscribes] == ["Bearer secret"]


@pytest.mark.parametrize(
    ("edge_url", "url", "goes"),
    [
        ("", "http://127.0.0.1:1/query", True),
        ("", "ws://[::1]:1/subscribe", True),
        ("", "https://other.example/query", False),
        ("", "https://127.0.0.1.example/query", False),
        ("", "http://[::1", False),
        ("https://GATEWAY.example", "https://gateway.example/query", True),
        ("https://gateway.example", "wss://gateway.example:9443/subscribe", True),
        ("https://gateway.example", "https://other.example/query", False),
        ("https://gateway.example", "https://gateway.example@other.example/query", False),
    ],
)
def test_the_token_of_the_environment_is_for_the_gateway_only(monkeypatch, data_dir, edge_url, url, goes):
    monkeypatch.setenv("EDGE_URL", edge_url)
    options = with_environment(Options())
    assert Authorization(options.token).goes_to(url) is goes
    assert "secret" not in repr(options)
    assert Authorization(lambda: "of the program").goes_to(url)
    assert not Authorization(None).goes_to(url)


def test_a_broker_without_encryption_is_permitted_if_it_gets_no_token(data_dir):
    (data_dir / "endpoints.json").unlink()
    brokers = Brokers(find_gateway=True)
    assert brokers.client(profile_entry("192.168.7.7")).endpoints.query == "http://192.168.7.7:8000/query"


async def test_waiting_requests_leave_their_token_behind_if_the_address_changes(data_dir):
    """A request waits for the local gateway. Then the gateway's file is gone, and another broker answers."""
    received = asyncio.get_running_loop().create_future()

    async def broker(connection):
        received.set_result((connection.request.headers.get("Authorization"), json.loads(await connection.recv())))
        await connection.wait_closed()

    async with serve(broker, "127.0.0.1", 0) as server:
        url = f"{ELSEWHERE}:{server.sockets[0].getsockname()[1]}"
        address = LocalAddress(data_dir, Endpoints(f"http://{url}/query", f"http://{url}/update", f"ws://{url}/"))
        options = with_environment(Options(timeout=5))
        failed = asyncio.Event()

        def on_failure(_):
            failed.set()
            (data_dir / "endpoints.json").unlink(missing_ok=True)
            return True

        connections = Connections(dataclasses.replace(options, on_failure=on_failure, backoff=Backoff(0.01, 0.02)))
        client = Client(over="websocket", connections=connections, address=address)
        waiting = asyncio.create_task(client.query("ASK {}"))
        try:
            async with asyncio.timeout(PATIENCE):
                header, message = await received
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
            await connections.close()
    assert failed.is_set()
    assert header is None
    assert message["query"].keys() == {"sparql", "alias"}
