"""Reports of registered queries in Python: `client.reports(NAME)`."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import quote

import httpx
import pyoxigraph as ox
import pytest
from client_gateway import QUICK
from relay import relay
from websockets.asyncio.server import serve

from edge.client import BadAnswer, Client, Closed, Endpoints, Refused, Report, Rows, SyncClient, Unsupported
from edge.protocol.results import results_to_json
from tests.support.waiting import PATIENCE, eventually

NAME = "http://example.org/q?x=é"
SELECT = f"""REGISTER RSTREAM <{NAME}> AS SELECT ?o FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [ELEMENTS 1]
WHERE {{ WINDOW <urn:w> {{ ?s ?p ?o }} }}"""


class Streams:
    """Requests to streams and queries, independent of the tested client."""

    def __init__(self, gateway):
        self.gateway = gateway
        self._http = httpx.Client(base_url=gateway.url, timeout=20, trust_env=False)
        self.query(SELECT)

    def query(self, text):
        self._http.put("/streams/s")
        assert self._http.put(f"/queries/{quote(NAME, safe='')}", content=text).status_code == 200

    def put(self, *values):
        for value in values:
            body = f"<urn:a> <urn:p> {value} ."
            answer = self._http.post("/streams/s", content=body, headers={"Content-Type": "text/turtle"})
            assert answer.status_code == 200, answer.text

    def end(self):
        self._http.delete(f"/queries/{quote(NAME, safe='')}")

    def close(self):
        self.end()
        self._http.close()

    @property
    def followers(self):
        lines = self._http.get("/metrics").text.splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith('edge_subscriptions{gate="ws"}')), 0)


@pytest.fixture
def streams(shared_gateway):
    streams = Streams(shared_gateway)
    yield streams
    streams.close()


@pytest.fixture
async def client(shared_gateway):
    async with Client(shared_gateway.endpoints, options=QUICK) as client:
        yield client


async def following(feed):
    async with asyncio.timeout(PATIENCE):
        return await anext(feed)


def value(report):
    return report.number, [row.plain()["o"] for row in report.rows]


async def test_each_report_comes_with_its_number_and_time(client, streams):
    streams.put(1)
    async with client.reports(NAME) as feed:
        assert await feed.start() == 1
        before = datetime.now(UTC)
        streams.put(2, 3)
        reports = [await following(feed) for _ in range(2)]
    assert [value(each) for each in reports] == [(2, [2]), (3, [3])]
    assert isinstance(reports[0].result, Rows)
    assert abs((reports[0].time - before).total_seconds()) < 60
    first = replace(reports[0], time=None)
    assert first == Report(NAME, 2, None, reports[0].rows, merged=1, missed=0, correction=False)
    with pytest.raises(StopAsyncIteration):
        await following(feed)
    await eventually(lambda: not streams.followers, "no follower")


async def test_a_feed_can_be_iterated_without_a_with_statement(client, streams):
    feed = client.reports(NAME)
    await feed.start()
    streams.put(1)
    async for report in feed:
        assert value(report) == (1, [1])
        break
    await feed.close()
    await eventually(lambda: not streams.followers, "no follower")


@pytest.mark.parametrize(
    ("form", "result"),
    [
        ("ASK", True),
        ("CONSTRUCT { ?s ?p ?o }", [ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:p"), ox.Literal(1))]),
    ],
)
async def test_the_result_has_the_form_of_the_query(client, streams, form, result):
    streams.end()
    streams.query(SELECT.replace("SELECT ?o", form))
    async with client.reports(NAME) as feed:
        streams.put(1)
        report = await following(feed)
    assert report.result == result
    with pytest.raises(BadAnswer, match="another form"):
        _ = report.rows


async def test_an_unknown_query_is_refused(client, streams):
    with pytest.raises(Refused) as refusal:
        async with client.reports("urn:other"):
            pass
    assert refusal.value.status_code == 404
    feed = client.reports("urn:other")
    for _ in range(2):
        with pytest.raises(Refused):
            await following(feed)


async def test_a_query_that_ends_ends_the_feed_after_the_waiting_reports(client, streams):
    async with client.reports(NAME) as feed:
        streams.put(1)
        streams.end()
        assert value(await following(feed)) == (1, [1])
        with pytest.raises(Refused, match="has been ended"):
            await following(feed)


async def test_reports_that_were_made_without_a_connection_come_after_it(streams):
    gateway = streams.gateway
    async with relay(gateway.ws_port) as between:
        endpoints = Endpoints.at("127.0.0.1", http_port=gateway.http_port, ws_port=between.port)
        connected = asyncio.Queue()
        options = replace(QUICK, on_connection=lambda _, is_open: connected.put_nowait(is_open))
        async with Client(endpoints, options=options) as client, client.reports(NAME) as feed:
            streams.put(1)
            assert value(await following(feed)) == (1, [1])
            between.cut()
            streams.put(2, 3)
            states = [await asyncio.wait_for(connected.get(), PATIENCE) for _ in range(3)]
            assert states == [True, False, True]
            await eventually(lambda: streams.followers == 1, "the follower")
            streams.put(4)
            reports = [await following(feed) for _ in range(3)]
            assert [(value(each), each.missed) for each in reports] == [((2, [2]), 0), ((3, [3]), 0), ((4, [4]), 0)]


async def test_an_application_that_comes_back_gets_the_reports_after_its_number(client, streams):
    async with client.reports(NAME) as feed:
        streams.put(1)
        assert value(await following(feed)) == (1, [1])
    streams.put(2, 3)
    async with client.reports(NAME, after=1) as feed:
        assert await feed.start() == 1
        reports = [await following(feed) for _ in range(2)]
    assert [(value(each), each.missed) for each in reports] == [((2, [2]), 0), ((3, [3]), 0)]


@pytest.mark.parametrize(
    ("after", "error"), [("1", TypeError), (True, TypeError), (1.0, TypeError), (-1, ValueError), (10**18, ValueError)]
)
async def test_a_number_that_is_not_that_of_a_report_is_a_wrong_argument(client, after, error):
    with pytest.raises(error, match="number of a report"):
        client.reports(NAME, after=after)


async def test_a_restarted_gateway_goes_on_with_the_numbers(gateway):
    streams = Streams(gateway)
    async with Client(gateway.endpoints, options=QUICK) as client, client.reports(NAME) as feed:
        streams.put(1)
        assert value(await following(feed)) == (1, [1])
        gateway.kill()
        await asyncio.to_thread(gateway.start)
        await eventually(lambda: streams.followers == 1, "the follower")
        streams.put(2)
        report = await following(feed)
        assert (value(report), report.missed) == ((2, [2]), 0)
    streams.close()


async def test_a_slow_application_gets_each_report_that_waits_at_the_gateway(shared_gateway, streams):
    async with (
        Client(shared_gateway.endpoints, options=replace(QUICK, waiting=3)) as client,
        client.reports(NAME) as feed,
    ):
        streams.put(*range(1, 21))
        await eventually(lambda: feed._last == 3, "the first reports")
        reports = [await following(feed) for _ in range(20)]
    assert [(value(each), each.missed) for each in reports] == [((number, [number]), 0) for number in range(1, 21)]


async def test_a_number_of_an_earlier_query_with_the_name_leaves_out_no_report(client, streams):
    async with client.reports(NAME) as feed:
        streams.put(1, 2)
        assert [value(await following(feed)) for _ in range(2)] == [(1, [1]), (2, [2])]
        of = feed.of
    streams.end()
    streams.query(SELECT)
    async with client.reports(NAME) as new:
        streams.put(3, 4, 5)
        assert value(await following(new)) == (1, [3])
        async with client.reports(NAME, after=2, of=of) as feed:
            reports = [await following(feed) for _ in range(3)]
        assert [(value(each), each.missed) for each in reports] == [((1, [3]), 0), ((2, [4]), 0), ((3, [5]), 0)]
        assert feed.of == new.of != of


async def test_a_closed_client_ends_its_feeds(shared_gateway, streams):
    async with Client(shared_gateway.endpoints, options=QUICK) as client:
        feed = client.reports(NAME)
        await feed.start()
    with pytest.raises(StopAsyncIteration):
        await following(feed)
    with pytest.raises(Closed):
        client.reports(NAME)


async def test_a_closed_client_ends_feeds_that_have_not_begun(shared_gateway, streams):
    async with Client(shared_gateway.endpoints, options=QUICK) as client:
        feeds = client.reports(NAME), client.reports(NAME)
    with pytest.raises(StopAsyncIteration):
        await following(feeds[0])
    with pytest.raises(Closed):
        await feeds[1].start()
    assert not streams.followers


async def test_a_cancelled_reader_leaves_the_other_readers_alone(absent_gateway):
    async with Client(absent_gateway.endpoints, options=QUICK) as client:
        feed = client.reports("urn:q")
        readers = [asyncio.create_task(read()) for read in (feed.start, feed.start, feed.__anext__)]
        await asyncio.sleep(0)
        readers[0].cancel()
        await asyncio.wait(readers[:1])
        assert not any(reader.done() for reader in readers[1:])
        await asyncio.to_thread(absent_gateway.start)
        for reader in readers[1:]:
            with pytest.raises(Refused):  # the gateway has no such query
                await asyncio.wait_for(reader, PATIENCE)


async def test_a_with_statement_that_is_cancelled_ends_the_feed(absent_gateway):
    async with Client(absent_gateway.endpoints, options=QUICK) as client:
        feed = client.reports("urn:q")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), feed:
                pass
        with pytest.raises(StopAsyncIteration):
            await following(feed)


async def test_an_unreachable_gateway_is_waited_for_and_a_cancelled_start_can_be_repeated(absent_gateway):
    async with Client(absent_gateway.endpoints, options=QUICK) as client:
        feed = client.reports(NAME)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await feed.start()
        starting = asyncio.create_task(feed.start())
        await asyncio.to_thread(absent_gateway.start)
        with pytest.raises(Refused):  # the gateway has no such query
            await asyncio.wait_for(starting, PATIENCE)


@pytest.mark.parametrize(("name", "error"), [(None, TypeError), (5, TypeError), ("\ud800", ValueError)], ids=ascii)
async def test_a_name_that_is_no_text_is_a_wrong_argument(client, name, error):
    with pytest.raises(error, match="name of a query"):
        client.reports(name)


async def test_an_unexpected_failure_ends_the_feed(client):
    feed = client.reports("urn:q")
    feed._opening = None
    for _ in range(2):
        with pytest.raises(BadAnswer, match="AttributeError"):
            await following(feed)


async def test_the_application_decides_whether_to_reconnect(absent_gateway):
    async with Client(absent_gateway.endpoints, options=replace(QUICK, on_failure=lambda _: False)) as client:
        with pytest.raises(ConnectionError):
            await following(client.reports(NAME))


def test_a_feed_without_asyncio_that_does_not_begin_in_time_ends(absent_gateway):
    with SyncClient(absent_gateway.endpoints, options=QUICK) as client:
        with pytest.raises(TimeoutError):
            client.reports("urn:q", timeout=0.05)
        assert not client._client._connections._running


def test_reports_without_asyncio(shared_gateway, streams):
    with SyncClient(shared_gateway.endpoints, options=QUICK) as client, client.reports(NAME, timeout=PATIENCE) as feed:
        streams.put(1, 2)
        assert value(feed.next(timeout=PATIENCE)) == (1, [1])
        assert value(next(iter(feed))) == (2, [2])
        with pytest.raises(TimeoutError):
            feed.next(timeout=0.05)
        streams.put(3)
        assert value(feed.next(timeout=PATIENCE)) == (3, [3])
        feed.close()
        assert feed.next() is None
        with pytest.raises(Refused):
            client.reports("urn:other")


# Answers of other brokers


@asynccontextmanager
async def answering(*messages, process_request=None):
    """A broker that sends these messages to each follower."""
    paths = []

    async def answer(socket):
        paths.append((socket.request.path, socket.request.headers.get("Authorization")))
        for message in messages:
            await socket.send(message if isinstance(message, str) else json.dumps(message))
        await socket.wait_closed()

    async with serve(answer, "127.0.0.1", 0, process_request=process_request) as server:
        port = server.sockets[0].getsockname()[1]
        yield Endpoints.at("127.0.0.1", ws_port=port), paths


HEAD = {"following": {"query": "q", "number": 4}}


def message(number, **members):
    content = json.loads(results_to_json(("o",), [(ox.Literal("x"),)]))
    return {"report": {"query": "q", "number": number, "time": "12345", "merged": 1, "content": content, **members}}


async def test_the_token_and_the_encoded_name_are_in_the_request():
    async with answering(HEAD) as (endpoints, paths):
        options = replace(QUICK, token=lambda: "secret")
        async with Client(endpoints, options=options) as client, client.reports("a/b c"):
            assert paths == [("/queries/a%2Fb%20c", "Bearer secret")]


async def test_invalid_messages_are_skipped():
    wrong = [
        "nonsense",
        "[]",
        {"report": {}},
        {"report": {**message(5)["report"], "content": "no triples"}},
        {"new": 1},
        '{"following": {"number": 1e999}}',
        json.dumps(message(5)).replace('"number": 5', '"number": 1e999'),
        "[" * 100_000,
    ]
    async with (
        answering(HEAD, *wrong, message(9, merged=2)) as (endpoints, _),
        Client(endpoints, options=QUICK) as client,
        client.reports("q") as feed,
    ):
        report = await following(feed)
    assert (report.number, report.merged, report.missed, report.time) == (9, 2, 3, None)


async def test_corrections_have_the_missing_and_the_wrong_rows():
    results = {**message(5)["report"]["content"], "removed": {"bindings": [{"o": {"type": "uri", "value": "urn:w"}}]}}
    graph = "<urn:a> <urn:p> <urn:b> .\n<urn:a> <urn:p> <urn:c> <urn:edge:removed> .\n"
    corrections = message(5, correction=True, content=results), message(6, correction=True, content=graph)
    async with (
        answering(HEAD, *corrections) as (endpoints, _),
        Client(endpoints, options=QUICK) as client,
        client.reports("q") as feed,
    ):
        rows, triples = [await following(feed) for _ in range(2)]
    assert rows.correction
    assert triples.correction
    assert [row.plain() for row in rows.removed] == [{"o": "urn:w"}]
    assert [str(each.object) for each in triples.result] == ["<urn:b>"]
    assert [str(each.object) for each in triples.removed] == ["<urn:c>"]


async def test_a_rejected_token_is_renewed_once():
    refusal = {"error": "invalid_grant", "error_description": "The token has expired", "status_code": 401}
    tokens = []
    async with answering(refusal) as (endpoints, paths):
        options = replace(QUICK, token=lambda: tokens.append("x") or f"t{len(tokens)}")
        async with Client(endpoints, options=options) as client:
            with pytest.raises(Refused):
                await following(client.reports("q"))
    assert [token for _, token in paths] == ["Bearer t1", "Bearer t2"]


async def test_another_broker_is_not_supported():
    async with (
        answering(process_request=lambda socket, _: socket.respond(404, "")) as (endpoints, _),
        Client(endpoints, options=QUICK) as client,
    ):
        with pytest.raises(Unsupported):
            await following(client.reports("q"))


@asynccontextmanager
async def replaying(last, most):
    """A gateway that keeps the reports 5 to `last`, and whose connections break after `most` of them."""
    paths = []

    async def answer(socket):
        paths.append(path := socket.request.path)
        begin = int(path.partition("after=")[2].partition("&")[0] or 4)
        await socket.send(json.dumps({"following": {"query": "q", "number": begin, "of": "a b"}}))
        for number in range(begin + 1, min(begin + most, last) + 1):
            await socket.send(json.dumps(message(number)))
        if begin + most <= last:
            socket.transport.abort()
        await socket.wait_closed()

    async with serve(answer, "127.0.0.1", 0) as server:
        yield Endpoints.at("127.0.0.1", ws_port=server.sockets[0].getsockname()[1]), paths


@pytest.mark.parametrize("waiting", [1, 100])
async def test_a_resumed_feed_loses_none_of_many_reports(waiting):
    async with (
        replaying(1_000, 1_000) as (endpoints, _),
        Client(endpoints, options=replace(QUICK, waiting=waiting)) as client,
        client.reports("q", after=4) as feed,
    ):
        reports = [await following(feed) for _ in range(5, 1_001)]
    assert [each.number for each in reports] == list(range(5, 1_001))
    assert not any(each.missed for each in reports)


def test_a_resumed_feed_without_asyncio_loses_none_of_many_reports(shared_gateway, streams):
    with SyncClient(shared_gateway.endpoints, options=QUICK) as client:
        with client.reports(NAME, timeout=PATIENCE):
            streams.put(*range(1, 251))
        with client.reports(NAME, after=0, timeout=PATIENCE) as feed:
            reports = [feed.next(timeout=PATIENCE) for _ in range(250)]
    assert [(each.number, each.missed) for each in reports] == [(number, 0) for number in range(1, 251)]


async def test_connections_that_break_while_reports_wait_lose_none():
    async with (
        replaying(300, 60) as (endpoints, paths),
        Client(endpoints, options=replace(QUICK, waiting=3)) as client,
        client.reports("q", after=4, of="a b") as feed,
    ):
        reports = [await following(feed) for _ in range(5, 301)]
    assert [each.number for each in reports] == list(range(5, 301))
    assert not any(each.missed for each in reports)
    assert len(paths) > 1
    assert all(path.endswith("&of=a%20b") for path in paths)


async def test_a_full_feed_does_not_reconnect_before_the_application_reads():
    states = []
    async with (
        replaying(300, 60) as (endpoints, paths),
        Client(
            endpoints,
            options=replace(QUICK, waiting=3, ping=0.1, on_connection=lambda _, is_open: states.append(is_open)),
        ) as client,
        client.reports("q", after=4) as feed,
    ):
        await eventually(lambda: False in states, "the end of the connection")
        assert len(paths) == 1
        assert (await following(feed)).number == 5
        while len(paths) == 1:
            await following(feed)
