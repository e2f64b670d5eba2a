"""Edge cases of the HTTP gate: limits, errors, browsers, health, metrics and views."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from concurrent.futures import Future

import httpx
import pytest
from gate_server import running

from edge import listener as listening
from edge.gates.http import HttpGate, Views
from edge.gates.settings import HttpGateSettings
from edge.metrics import Metrics
from tests.support.waiting import PATIENCE, eventually

UPDATE = {"Content-Type": "application/sparql-update"}
MIB = 1024 * 1024


async def raw(gateway, data: bytes) -> bytes:
    """Return all bytes that the gate answers until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    await writer.wait_closed()
    return answer


def error_in(answer: bytes) -> dict:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


async def endless():
    part = b" " * MIB
    for _ in range(50):
        yield part


async def test_a_body_of_50_mb_is_refused_without_being_stored(serve):
    async with serve(http=HttpGateSettings(port=0, max_message=MIB)) as gateway, gateway.http() as http:
        for content in (b" " * (50 * MIB), endless()):
            answer = await http.post("/update", content=content, headers=UPDATE)
            assert answer.status_code == 413
            assert answer.json()["error"] == "payload_too_large"
        exact = b"CLEAR ALL".ljust(MIB)
        assert (await http.post("/update", content=exact, headers=UPDATE)).status_code == 200


async def test_a_header_beyond_the_limit_is_refused(serve):
    async with serve(http=HttpGateSettings(port=0, max_header=8192)) as gateway:
        for request in (
            b"GET /query?query=" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 300_000,
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-Many: a\r\n" * 2000 + b"\r\n",
        ):
            answer = await raw(gateway, request)
            assert answer.startswith(b"HTTP/1.1 431 ")
            assert error_in(answer)["error"] == "header_too_large"
        assert (await gateway.update("CLEAR ALL"))["added"] == 0


async def test_invalid_http_gets_a_flat_error(gateway):
    answer = await raw(gateway, b"HELLO THERE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert error_in(answer)["error"] == "invalid_request"


async def test_too_slow_client_is_disconnected(serve):
    async with serve(http=HttpGateSettings(port=0, read_timeout=0.2)) as gateway:
        assert error_in(await raw(gateway, b"GET /health HT"))["error"] == "timeout"
        head = b"POST /update HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        answer = await raw(
            gateway, head + b"Content-Type: application/sparql-update\r\nContent-Length: 100\r\n\r\nCLEAR"
        )
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert error_in(answer)["status_code"] == 408


async def test_a_body_has_an_end_however_steadily_it_comes(serve):
    async with serve(http=HttpGateSettings(port=0, body_timeout=0.3)) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
        head = b"POST /update HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        writer.write(head + b"Content-Type: application/sparql-update\r\nContent-Length: 100000\r\n\r\n")

        async def drip() -> None:
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        answer = b""
        # A client that still sends when the connection ends gets a reset, after the answer.
        with contextlib.suppress(ConnectionResetError):
            while part := await reader.read(65_536):
                answer += part
        dripping.cancel()
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert "http.body_timeout" in error_in(answer)["error_description"]
        writer.close()


async def test_connections_beyond_the_limit_are_refused(serve):
    async with serve(http=HttpGateSettings(port=0, max_connections=1)) as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        refused = error_in(await raw(gateway, b""))
        assert refused["status_code"] == 429
        assert "http.max_connections" in refused["error_description"]
        writer.close()
        await writer.wait_closed()


HALF_REQUESTS = {
    "silence": b"",
    "half a header": b"POST /update HTTP/1.1\r\nHost: localhost\r\n",
    "half a body": b"POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-update\r\n"
    b"Content-Length: 100\r\n\r\nCLEAR",
}


@pytest.mark.parametrize("begun", HALF_REQUESTS.values(), ids=HALF_REQUESTS)
async def test_connections_without_a_complete_request_make_place_for_a_client(serve, begun):
    async with serve(http=HttpGateSettings(port=0, max_connections=4)) as gateway, contextlib.AsyncExitStack() as stack:
        used = await stack.enter_async_context(gateway.http())
        assert (await used.get("/health")).status_code == 200
        pending = []
        for _ in range(30):
            pending.append(await asyncio.open_connection("127.0.0.1", gateway.http_port))
            pending[-1][1].write(begun)
            await pending[-1][1].drain()
        for _ in range(3):
            client = await stack.enter_async_context(gateway.http())
            assert (await client.post("/update", content="CLEAR ALL", headers=UPDATE)).status_code == 200
        assert (await asyncio.wait_for(pending[0][0].read(), 20)) == b""
        assert (await used.get("/health")).status_code == 200  # on the same connection
        assert error_in(await raw(gateway, b""))["status_code"] == 429
        for _, writer in pending:
            writer.close()


async def test_connections_with_unread_bodies_make_place_for_a_client(serve, monkeypatch):
    """The gate does not read from them: they are aborted, because they would not notice a shutdown."""
    monkeypatch.setattr(listening, "_CLOSING", 2)
    slow = "SELECT%20(COUNT(*)%20AS%20%3Fn)%20%7B%3Fa%20%3Fp%20%3Fx.%3Fb%20%3Fq%20%3Fy.%3Fc%20%3Fr%20%3Fz%7D"
    head = f"GET /query?query={slow} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n".encode()
    limit = HttpGateSettings(port=0, max_connections=4)
    async with serve(http=limit, query_timeout=5) as gateway:
        await gateway.update("INSERT DATA {" + " ".join(f"<urn:s{i}> <urn:p> {i} ." for i in range(300)) + "}")
        pending = []
        for _ in range(13):
            pending.append(await asyncio.open_connection("127.0.0.1", gateway.http_port))
            pending[-1][1].write(head + b"x" * 300_000)
        connections = gateway.http_gate._server.server_state.connections
        await eventually(lambda: sum(each.flow.read_paused for each in connections) > 5)
        silent = [await asyncio.open_connection("127.0.0.1", gateway.http_port) for _ in range(20)]
        async with gateway.http() as client:
            assert (await client.get("/health")).status_code == 200
        for _, writer in pending + silent:
            writer.transport.abort()


async def test_no_request_of_a_replaced_connection_is_carried_out(serve):
    """Requests that have arrived when a newer connection takes the slot."""
    async with serve(http=HttpGateSettings(port=0, max_connections=4)) as gateway, contextlib.AsyncExitStack() as stack:
        opened = []

        def connect() -> None:  # without a turn of the event loop
            client = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.http_port), PATIENCE))
            opened.append(client)

        def send(number: int) -> None:
            update = b"INSERT DATA { <urn:a> <urn:b> %d }" % number
            with contextlib.suppress(ConnectionError):
                opened[number].sendall(
                    b"POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-update\r\n"
                    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(update), update)
                )

        def answer(number: int) -> bytes:
            try:
                return opened[number].recv(15)
            except ConnectionError:
                return b""

        for _ in range(13):
            connect()
        connections = gateway.http_gate._server.server_state.connections
        await eventually(lambda: len(connections) == 13)
        for _ in range(6):
            connect()
        for number in range(6):
            send(number)
        for number in range(6, 40):
            if number >= len(opened):
                connect()
            send(number)
        answers = [await asyncio.to_thread(answer, number) for number in range(40)]
        async with gateway.http() as http:
            found = await http.post("/query", data={"query": "SELECT ?n { <urn:a> <urn:b> ?n }"})
        carried_out = {int(row["n"]["value"]) for row in found.json()["results"]["bindings"]}
        assert carried_out == {number for number, begin in enumerate(answers) if begin == b"HTTP/1.1 200 OK"}
        assert b"" in answers


async def test_pipelined_requests_are_answered_in_order(gateway):
    request = b"GET /query?query=ASK%7B%7D HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = await raw(gateway, request * 5 + last)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 5 + [b"404"]


async def test_complete_requests_are_answered_before_a_later_one_is_refused(gateway):
    request = b"GET /query?query=ASK%7B%7D HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-update\r\n"
    for rest in (b"HELLO THERE\r\n\r\n", head + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n"):
        for before in (0, 1, 3):
            answer = await raw(gateway, request * before + rest)
            assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200"] * before + [b"400"]
    assert gateway.metric("edge_internal_errors_total") == 0


async def test_unknown_paths_are_flat_errors(gateway):
    async with gateway.http() as http:
        for path in ("/nowhere", "/query/", "/../etc/passwd", "/%2e%2e/app.js", "/index.html", "/api"):
            answer = await http.get(path)
            assert answer.status_code == 404
            assert answer.json()["error"] == "not_found"


async def test_the_error_for_an_unknown_path_lists_all_paths(gateway):
    async with gateway.http() as http:
        description = (await http.get("/nowhere")).json()["error_description"]
        start = 'There is nothing at "/nowhere"; the paths are /, /.well-known/wot, /api/access, /api/backup, '
        assert description.startswith(start)
        listed = description.partition("the paths are ")[2].split(", ")
        assert {"/api/openapi.json", "/query", "/timers", "/timers/ID", "/sparql"} < set(listed)
        assert "/app.js" not in listed
        for path in listed:
            answer = await http.get(path)
            assert "There is nothing at" not in answer.text, path


async def test_preflight_and_simple_requests_of_any_origin(serve):
    async with serve(http=HttpGateSettings(port=0, cors_origins=("*",))) as gateway, gateway.http() as http:
        asked = {
            "Origin": "https://app.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type,authorization",
        }
        preflight = await http.options("/update", headers=asked)
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "*"
        assert "POST" in preflight.headers["access-control-allow-methods"]
        assert preflight.headers["access-control-allow-headers"] == "content-type,authorization"
        for path in ("/query?query=ASK%7B%7D", "/nowhere", "/query"):
            answer = await http.get(path, headers={"Origin": "https://app.example"})
            assert answer.headers["access-control-allow-origin"] == "*"


async def test_origins_that_are_not_listed_can_neither_read_nor_update(serve):
    async with (
        serve(http=HttpGateSettings(port=0, cors_origins=("https://app.example",))) as gateway,
        gateway.http() as http,
    ):
        good, evil = {"Origin": "https://app.example"}, {"Origin": "https://evil.example"}
        asked = {"Access-Control-Request-Method": "POST"}
        assert (await http.options("/update", headers=good | asked)).headers["access-control-allow-origin"] == good[
            "Origin"
        ]
        assert (await http.options("/update", headers=evil | asked)).json()["error"] == "forbidden"
        answer = await http.get("/query?query=ASK%7B%7D", headers=good)
        assert answer.headers["access-control-allow-origin"] == good["Origin"]
        assert "Origin" in answer.headers["vary"]
        assert (await http.get("/query?query=ASK%7B%7D", headers=evil)).status_code == 403
        form = {"update": "INSERT DATA { <urn:a> <urn:b> 1 }"}
        assert (await http.post("/update", data=form, headers=evil)).status_code == 403
        assert (await http.post("/update", data=form, headers=good)).json()["added"] == 1
        answer = await http.post("/update", data=form, headers={"Origin": gateway.http_url})
        assert answer.status_code == 200
        assert [name for name in answer.headers if name.startswith("access-control")] == []
        assert "Origin" in answer.headers["vary"]


async def test_health_is_ready_only_when_the_engine_is(serve):
    state = {"ready": False}
    views = Views(ready=lambda: state["ready"], health=lambda: {"version": "1.2.3"})
    async with serve(views=views) as gateway, gateway.http() as http:
        answer = await http.get("/health")
        assert answer.status_code == 503
        assert answer.json()["error"] == "not_ready"
        assert (await http.get("/query?query=ASK%7B%7D")).json()["error"] == "not_ready"
        assert (await http.post("/update", content="CLEAR ALL", headers=UPDATE)).json()["error"] == "not_ready"
        state["ready"] = True
        assert (await http.get("/health")).json() == {"status": "ready", "version": "1.2.3"}


async def test_views_are_evaluated_for_each_request(serve):
    unmapped: list[dict] = []
    views = Views(
        endpoints=lambda: {"http": "http://h", "ws": "ws://h/subscribe"},
        unmapped=lambda: unmapped,
        bad_values=lambda: [{"topic": "a/b", "reason": "no number"}],
    )
    async with serve(views=views) as gateway, gateway.http() as http:
        assert (await http.get("/api/endpoints")).json() == {"http": "http://h", "ws": "ws://h/subscribe"}
        assert (await http.get("/api/unmapped")).json() == []
        unmapped.append({"topic": "x/y", "count": 3})
        assert (await http.get("/api/unmapped")).json() == [{"topic": "x/y", "count": 3}]
        assert (await http.get("/api/bad-values")).json() == [{"topic": "a/b", "reason": "no number"}]


async def test_metrics_count_requests_by_gate_primitive_and_status(gateway):
    client = await gateway.client()
    await client.subscribe()
    async with gateway.http() as http:
        await http.get("/query?query=ASK%7B%7D")
        await http.get("/query?query=ASK")
        text = (await http.get("/metrics")).text
    assert 'edge_requests_total{gate="http",primitive="query",status="200"} 1.0' in text
    assert 'edge_requests_total{gate="http",primitive="query",status="400"} 1.0' in text
    assert 'edge_requests_total{gate="ws",primitive="subscribe",status="200"} 1.0' in text
    assert 'edge_connections{gate="ws"} 1.0' in text
    assert 'edge_subscriptions{gate="ws"} 1.0' in text
    assert 'edge_request_seconds_count{gate="http",primitive="query"} 2.0' in text


async def test_internal_error_is_a_500_with_an_incident_number(serve, caplog):
    def broken() -> object:
        raise ZeroDivisionError("secret detail")

    async with serve(views=Views(unmapped=broken)) as gateway, gateway.http() as http:
        answer = await http.get("/api/unmapped")
        assert answer.status_code == 500
        assert answer.json()["error"] == "internal_error"
        assert "secret detail" not in answer.text
        incident = answer.json()["error_description"].split()[2].rstrip(":")
        assert incident in caplog.text
        assert (await http.get("/health")).status_code == 200
        assert gateway.metric("edge_internal_errors_total") == 1


class Never:
    """The engine's interface with queries that never end."""

    def read(self, request, read, /):
        self.future = Future()
        return self.future


async def test_a_query_that_takes_too_long_is_given_up(monkeypatch):
    engine = Never()
    async with running(engine, query_timeout=0.1) as gateway, gateway.http() as http:
        answer = await http.get("/query?query=ASK%7B%7D")
        assert answer.status_code == 408
        assert answer.json()["error"] == "timeout"
        assert engine.future.cancelled()


async def test_the_gate_stops_in_time_with_idle_connections(serve):
    async with serve() as gateway:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.http_port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readline()
        async with asyncio.timeout(PATIENCE):
            await gateway.http_gate.stop()
        writer.close()
        await writer.wait_closed()


async def test_a_gate_without_open_requests_stops_without_a_pause(gateway, monkeypatch):
    loop, timers = asyncio.get_running_loop(), []
    call_at = loop.call_at
    async with gateway.http() as http:
        assert (await http.get("/health")).status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr(loop, "call_at", lambda *args, **options: timers.append(args) or call_at(*args, **options))
            await gateway.http_gate.stop()
    assert timers == []


@pytest.mark.parametrize("turns", range(5))
async def test_a_connection_that_is_accepted_while_the_gate_stops_ends(gateway, turns):
    """`turns`: of the event loop between the connection and the stop."""
    with socket.create_connection(("127.0.0.1", gateway.http_port), 20) as late:
        for _ in range(turns):
            await asyncio.sleep(0)
        await gateway.http_gate.stop()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(late.recv, 1) == b""


async def test_a_port_that_is_taken_is_an_os_error(gateway, serve):
    with pytest.raises(OSError, match="in use"):
        async with serve(http=HttpGateSettings(port=gateway.http_port)):
            pass


async def test_answers_do_not_wait_for_acknowledgements(gateway):
    async with gateway.http() as http:
        await http.get("/health")
        (connection,) = gateway.http_gate._server.server_state.connections
        option = connection.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert option, "every answer but the first of a connection would be 40 ms late"


async def test_without_security_every_client_has_all_permissions(engine):
    gate = HttpGate(engine, HttpGateSettings(port=0), Metrics())
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{await gate.start()}") as http:
        found = (await http.get("/api/access")).json()
    await gate.stop()
    assert found.pop("actions") == ["administer", "query", "subscribe", "update"]
    assert {name: value for name, value in found.items() if value is not None} == {"client": "", "priority": "normal"}
