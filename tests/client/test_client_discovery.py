"""Clients and applications find the gateway: by URL, by the environment, and by the file of its data directory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading

import pytest

from edge.client import (
    Application,
    BadAnswer,
    Brokers,
    Client,
    Endpoints,
    NoAnswer,
    NoConnection,
    Options,
    Refused,
    Unsupported,
    explain,
)
from edge.client.discovery import LocalAddress, UrlAddress
from edge.jsap import Profile
from edge.security import certificates
from tests.support.waiting import PATIENCE

LAMP = "INSERT DATA { <urn:lamp> <urn:is> 'on' }"
STATES = "SELECT ?state { <urn:lamp> <urn:is> ?state }"


@pytest.fixture
def gateway(empty_gateway):
    return empty_gateway


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    for name in ("EDGE_URL", "EDGE_TOKEN", "EDGE__DATA_DIR", "EDGE_CONFIG", "STATE_DIRECTORY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def uses(client, gateway):
    """Check that updates and subscriptions reach the gateway."""
    async with asyncio.timeout(PATIENCE):
        await client.update(LAMP)
        async with await client.subscribe(STATES) as subscription:
            (row,) = (await anext(subscription)).added
            assert row.plain() == {"state": "on"}
    assert client.endpoints.subscribe == gateway.endpoints.subscribe


@pytest.mark.parametrize("end", ["", "/"])
@pytest.mark.parametrize("over", ["auto", "http", "websocket"])
async def test_a_client_asks_the_gateway_for_its_other_address(gateway, over, end):
    async with Client(gateway.url + end, over=over) as client:
        await uses(client, gateway)
        assert client.endpoints.query == gateway.url + "/query"


async def test_the_environment_names_the_gateway(gateway, monkeypatch):
    monkeypatch.setenv("EDGE_URL", gateway.url)
    async with Client() as client:
        await uses(client, gateway)


@pytest.mark.parametrize("name", ["EDGE__DATA_DIR", "EDGE_CONFIG"])
async def test_the_data_directory_names_the_gateway(gateway, monkeypatch, tmp_path, name):
    config = tmp_path / "edge.toml"
    config.write_text(f"data_dir = '{gateway.data_dir}'\n")
    monkeypatch.setenv(name, str(config if name == "EDGE_CONFIG" else gateway.data_dir))
    async with Client() as client:
        await uses(client, gateway)


async def test_the_default_data_directory_names_the_gateway(gateway, tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "sepa-edge").symlink_to(gateway.data_dir)
    async with Client() as client:
        await uses(client, gateway)


async def test_the_environment_precedes_the_file(gateway, monkeypatch):
    monkeypatch.setenv("EDGE__DATA_DIR", str(gateway.data_dir))
    monkeypatch.setenv("EDGE_URL", "http://127.0.0.1:1")
    async with Client(options=Options(timeout=0.2)) as client:
        with pytest.raises(NoAnswer):
            await client.ask("ASK {}")


async def test_addresses_of_the_program_precede_the_environment(gateway, monkeypatch):
    monkeypatch.setenv("EDGE_URL", "http://127.0.0.1:1")
    async with Client(gateway.url) as client:
        await uses(client, gateway)


def test_without_a_gateway_the_default_ports_count():
    assert Client().endpoints == Endpoints()
    assert Client("gateway.local").endpoints == Endpoints.at("gateway.local")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"http": 1, "ws": 2}',
        '{"http": "http://127.0.0.1:18000"}',
        '{"http": "http://gateway.example:80", "ws": "ws://127.0.0.1:9000/subscribe"}',
        '{"http": "http://127.0.0.1:18000", "ws": "ws://gateway.example/subscribe"}',
        '{"http": "http://127.0.0.1:x", "ws": "ws://127.0.0.1"}',
    ],
)
def test_a_file_without_addresses_of_this_machine_does_not_count(tmp_path, content):
    (tmp_path / "endpoints.json").write_text(content)
    assert LocalAddress(tmp_path, Endpoints()).endpoints() == Endpoints()


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "http://", "http://h:x", "http://h:0", "http://h?a", "http://me:secret@h", "://"]
)
def test_an_invalid_url_is_refused(url, monkeypatch):
    with pytest.raises(ValueError, match="is not an address such as"):
        Client(url)
    monkeypatch.setenv("EDGE_URL", url)
    with pytest.raises(ValueError, match="is not an address such as"):
        Client()


def test_an_address_without_a_scheme_in_the_environment_is_refused(monkeypatch):
    monkeypatch.setenv("EDGE_URL", "gateway.local:8000")
    with pytest.raises(ValueError, match="EDGE_URL"):
        Client()


@pytest.mark.parametrize("url", ["https://gateway.example/edge", "http://127.0.0.1:8000/query", "HTTP://h/a"])
def test_an_address_with_a_path_is_refused(url, monkeypatch):
    with pytest.raises(ValueError, match=r"has a path.*such as https?://"):
        Client(url)
    monkeypatch.setenv("EDGE_URL", url)
    with pytest.raises(ValueError, match=r"has a path"):
        Brokers(find_gateway=True)


def test_a_file_with_an_address_of_another_machine_is_reported_once(tmp_path, caplog):
    file = tmp_path / "endpoints.json"
    file.write_text('{"http": "http://192.168.7.7:8000", "ws": "ws://192.168.7.7:9000/subscribe"}')
    address = LocalAddress(tmp_path, Endpoints())
    for _ in range(3):
        assert address.endpoints() == Endpoints()
    (record,) = caplog.records
    assert "endpoints.json names http://192.168.7.7:8000" in record.message
    assert "set EDGE_URL" in record.message
    file.write_text('{"http": "http://127.0.0.1:1", "ws": "ws://192.168.7.8:9000/subscribe"}')
    address.endpoints()
    assert "names ws://192.168.7.8:9000/subscribe" in caplog.records[1].message


@contextlib.contextmanager
def _server(answer=None):
    """Yield the URL of a server that gives one connection this answer; None: that never answers."""

    def respond():
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as received:
            while received.readline().strip():
                pass
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=respond)
        if answer is not None:
            thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        if answer is not None:
            thread.join()


def _answer(body, status="200 OK", more=""):
    return f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "answer",
    [
        _answer("no"),
        _answer("[]"),
        _answer('{"wss": "wss://h:1/subscribe"}'),
        _answer('{"ws": 7}'),
        _answer('{"ws": "ws://h:port/"}'),
        _answer("", "404 Not Found"),
        _answer("", "302 Found", "Location: http://127.0.0.1:1/\r\n"),
    ],
    ids=["text", "list", "other-service", "number", "port", "missing", "redirect"],
)
def test_another_server_is_not_a_gateway(answer):
    with _server(answer) as url, pytest.raises(BadAnswer, match="is not a gateway that offers ws"):
        UrlAddress(url).subscribe_url("")


def test_the_answer_cannot_send_the_client_to_another_host():
    with _server(_answer('{"ws": "ws://attacker.example:9000/subscribe"}')) as url:
        assert UrlAddress(url).subscribe_url("") == "ws://127.0.0.1:9000/subscribe"


def test_a_token_of_the_environment_is_not_sent_unencrypted(monkeypatch):
    monkeypatch.setenv("EDGE_TOKEN", "secret")
    assert Client().endpoints == Endpoints()
    assert Client("http://gateway.example").endpoints  # the token is for the gateway of the environment only
    monkeypatch.setenv("EDGE_URL", "http://gateway.example")
    with pytest.raises(ValueError, match="is not encrypted"):
        Client()


@pytest.mark.parametrize("token", ["two words", "a\r\nX-Other: b", "ü"])
def test_a_value_that_is_not_a_token_is_refused_without_repeating_it(monkeypatch, token):
    monkeypatch.setenv("EDGE_TOKEN", token)
    with pytest.raises(ValueError, match="EDGE_TOKEN is not a token") as raised:
        Client()
    assert token not in str(raised.value)
    Application(profile())


@contextlib.contextmanager
def _endless_server(begin, piece):
    """Yield the URL of a server that sends `begin`, and then pieces until the client disconnects."""
    ended = threading.Event()

    def respond():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(begin)
            while not ended.wait(0.01):
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=respond)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        thread.join()


BODY = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"


@pytest.mark.parametrize("begin", [BODY, b"HTTP/1.1 200 OK\r\nX-Slow: "], ids=["body", "header"])
def test_a_slow_answer_with_the_addresses_has_a_time_limit(monkeypatch, begin):
    monkeypatch.setattr("edge.client.discovery._TIMEOUT", 0.2)
    with _endless_server(begin, b" ") as url, pytest.raises(NoAnswer, match=r"no answer within 0\.2 s"):
        UrlAddress(url).subscribe_url("")


def test_a_long_answer_is_not_one_with_addresses():
    with _endless_server(BODY, b" " * 10_000) as url, pytest.raises(BadAnswer, match="more than 64 KiB"):
        UrlAddress(url).subscribe_url("")


async def test_a_long_answer_is_not_one_of_a_gateway():
    with _endless_server(BODY, b" " * 10_000) as url:
        async with Client(Endpoints(f"{url}/query", f"{url}/update", f"{url.replace('http', 'ws')}/")) as client:
            with pytest.raises(Unsupported):
                await client.timers()


@contextlib.contextmanager
def _tls_server(directory):
    """Yield the port of a server with a certificate that no system trusts."""

    def respond():
        connection, _ = listener.accept()
        with contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(65_536)
            encrypted.sendall(_answer('{"wss": "wss://127.0.0.1:9443/subscribe"}'))

    files = certificates.make(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=respond)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_the_certificate_of_a_gateway_is_checked(scheme, tmp_path):
    """Also with a scheme in upper case (RFC 3986, section 3.1)."""
    with _tls_server(tmp_path) as port, pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
        UrlAddress(f"{scheme}://127.0.0.1:{port}").subscribe_url("")


async def test_a_server_that_does_not_answer_is_reported(monkeypatch):
    monkeypatch.setattr("edge.client.discovery._TIMEOUT", 0.2)
    with _server() as url:
        with pytest.raises(NoAnswer, match=r"no connection to \S+/api/endpoints: \w+"):
            await asyncio.to_thread(UrlAddress(url).subscribe_url, "")
        async with Client(url, over="http", options=Options(timeout=0.2)) as client:
            with pytest.raises(NoAnswer, match=r"no answer from \S+/query: \w+"):
                await client.ask("ASK {}")


def test_remedies_fit_the_failure():
    refused = Refused("invalid_grant", "The token has expired", 401)
    assert "Set EDGE_TOKEN" in explain(refused)
    assert "Set EDGE_TOKEN" in explain(NoConnection("ws://h", "refused", cause=refused))
    assert "clients allow" in explain(Refused("forbidden", "The client may not query", 403))
    assert "edge run" in explain(NoAnswer("no connection to http://h", sent=False))
    assert "SSL_CERT_FILE" in explain(NoAnswer("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed", sent=False))
    assert explain(NoAnswer("no answer from http://h", sent=True)) == "no answer from http://h"
    assert explain(Refused("parsing_failed", "Line 1\nis wrong.", 400)) == "Line 1 is wrong. (parsing_failed, 400)"


def profile(http_port=1, ws_port=1, **queries):
    return Profile.parse(
        json.dumps(
            {
                "host": "127.0.0.1",
                "sparql11protocol": {"protocol": "http", "port": http_port},
                "sparql11seprotocol": {"protocol": "ws", "availableProtocols": {"ws": {"port": ws_port}}},
                "updates": {"ON": {"sparql": LAMP}},
                "queries": {"STATES": {"sparql": STATES}, **queries},
            }
        )
    )


async def served(app, updated=True):
    """Return the first result that the application's consumer gets."""
    found = asyncio.get_running_loop().create_future()

    async def states(change):
        if change.added and not found.done():
            found.set_result([row.plain()["state"] for row in change.added])

    app.consumer("STATES")(states)
    running = asyncio.create_task(app.serve())
    if updated:
        await app.producer("ON").produce()
    async with asyncio.timeout(PATIENCE):
        result = await found
    running.cancel()
    await asyncio.wait({running})
    return result


@pytest.mark.parametrize("name", ["EDGE_URL", "EDGE__DATA_DIR"])
async def test_an_application_finds_the_gateway(gateway, monkeypatch, name):
    value = gateway.url if name == "EDGE_URL" else str(gateway.data_dir)
    monkeypatch.setenv(name, value)
    assert await served(Application(profile(), find_gateway=True)) == ["on"]


async def test_an_application_uses_its_profile_if_there_is_no_other_gateway(gateway):
    ports = gateway.http_port, gateway.ws_port
    assert await served(Application(profile(*ports), find_gateway=True)) == ["on"]


async def test_an_application_uses_its_profile_unless_discovery_is_requested(gateway, monkeypatch):
    monkeypatch.setenv("EDGE_URL", "http://127.0.0.1:1")
    ports = gateway.http_port, gateway.ws_port
    assert await served(Application(profile(*ports))) == ["on"]


def test_entries_of_another_broker_keep_their_address(monkeypatch):
    monkeypatch.setenv("EDGE_URL", "http://127.0.0.1:2")
    monkeypatch.setenv("EDGE_TOKEN", "secret")
    other = {"sparql": STATES, "sparql11protocol": {"port": 3}}
    remote = {"sparql": STATES, "host": "store.example"}
    app = Application(profile(1, 1, OTHER=other, REMOTE=remote), find_gateway=True)
    brokers = app._brokers
    found = {name: brokers.client(app.profile.query(name)) for name in ("STATES", "OTHER", "REMOTE")}
    assert found["STATES"].endpoints.query == "http://127.0.0.1:2/query"
    assert found["OTHER"].endpoints.query == "http://127.0.0.1:3/query"
    # With a token, the unencrypted address of another machine would have been refused.
    assert found["REMOTE"].endpoints.query.startswith("http://store.example")
