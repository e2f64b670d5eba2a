"""Reports of a registered query over CoAP: an observer of `/queries/NAME` gets each report as a notification."""

from __future__ import annotations

import asyncio
from unittest.mock import ANY

import pytest
from aiocoap import CON, DELETE, GET, Code, Message
from aiocoap.numbers.optionnumbers import OptionNumber
from coap_client import CoapClient, Datagrams, body
from test_coap_gateway import settings

from edge.cli.oscore import as_aiocoap
from edge.gateway import Gateway
from edge.security.clients import Rights
from tests.security.secured import Harness
from tests.support.stream_client import FORM, StreamGateway
from tests.support.waiting import eventually

SELECT = """REGISTER RSTREAM <urn:q> AS SELECT ?o FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [ELEMENTS 1]
WHERE { WINDOW <urn:w> { ?s ?p ?o } }"""
PATH = "/queries/urn%3Aq"


class CoapGateway(StreamGateway):
    """A gateway with CoAP."""

    def __init__(self, directory, **settings):
        super().__init__(directory, EDGE__COAP__ENABLED="true", EDGE__COAP__PORT="0", **settings)

    def put(self, value):
        self.add("s", f'<urn:a> <urn:p> "{value}"')

    def metric(self, name):
        lines = self.http.get("/metrics").text.splitlines()
        return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0.0)

    @property
    def followers(self):
        return self.metric('edge_subscriptions{gate="coap"}')

    @property
    def port(self):
        return int(self.endpoints["coap"].rpartition(":")[2])


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    gateway = CoapGateway(tmp_path_factory.mktemp("coap"), EDGE__COAP__MAX_RESULT="40000")
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    running.stream("s")
    yield running
    running.end_all()


@pytest.fixture
async def client(gateway):
    async with CoapClient(gateway.endpoints["coap"]) as client:
        yield client


def values(report):
    return report["number"], [row["o"]["value"] for row in report["content"]["results"]["bindings"]]


async def test_an_observer_gets_each_report_with_its_number(gateway, client):
    gateway.query("urn:q", SELECT)
    gateway.put(1)
    observation = await client.observe(PATH)
    assert await observation.notification() == {"query": "urn:q", "number": 1, "of": ANY}
    async with CoapClient(gateway.endpoints["coap"]) as another:
        gateway.put(2)
        late = await another.observe(PATH)
        assert await late.notification() == {"query": "urn:q", "number": 2, "of": ANY}
        gateway.put(3)
        assert values(await late.notification()) == (3, ["3"])
    reports = [await observation.notification() for _ in range(2)]
    assert [values(report) for report in reports] == [(2, ["2"]), (3, ["3"])]
    assert {key: reports[0][key] for key in ("query", "merged", "content_type")} == {
        "query": "urn:q",
        "merged": 1,
        "content_type": "application/sparql-results+json",
    }


async def test_an_observer_that_comes_back_gets_the_reports_after_its_number(gateway, client):
    gateway.query("urn:q", SELECT)
    async with CoapClient(gateway.endpoints["coap"]) as another:
        observation = await another.observe(PATH)
        assert (await observation.notification())["number"] == 0
        gateway.put(1)
        assert values(await observation.notification()) == (1, ["1"])
        gateway.put(2)
    gateway.put(3)
    observation = await client.observe(f"{PATH}?after=1")
    # The client library may pass a notification on before the first response.
    head, *reports = sorted([await observation.notification() for _ in range(3)], key=lambda each: each["number"])
    assert head == {"query": "urn:q", "number": 1, "of": ANY}
    assert [values(report) for report in reports] == [(2, ["2"]), (3, ["3"])]


async def test_a_number_that_is_not_that_of_a_report_is_refused(gateway, client):
    gateway.query("urn:q", SELECT)
    assert (await client.ask(GET, f"{PATH}?after=x", observe=0)).code == Code.BAD_REQUEST


async def test_notifications_are_ordered_and_do_not_become_stale(gateway, client):
    gateway.query("urn:q", SELECT)
    observation = await client.observe(PATH)
    gateway.put(1)
    first, second = [await observation.message() for _ in range(2)]
    assert first.opt.observe < second.opt.observe
    assert second.opt.max_age == 86_400


@pytest.mark.parametrize("path", ["/queries/http%3A%2F%2Fexample.org%2Fq", "/queries/http:/%2Fexample.org/q"])
async def test_a_name_may_have_encoded_slashes_or_plain_ones(gateway, client, path):
    gateway.query("http://example.org/q", SELECT.replace("urn:q", "http://example.org/q"))
    if "%2F%2F" not in path:
        path = "/queries/http:/" + "/example.org/q"
    observation = await client.observe(path)
    assert (await observation.notification())["query"] == "http://example.org/q"


async def test_a_get_without_observe_describes_the_query(gateway, client):
    gateway.query("urn:q", SELECT)
    gateway.put(1)
    described = body(await client.ask(GET, PATH))
    assert described == gateway.ok("GET", PATH)
    assert (described["state"], described["reports"]) == ("running", 1)


async def test_reports_in_cbor_have_graphs_as_text(gateway, client):
    gateway.query("urn:q", SELECT.replace("SELECT ?o", "CONSTRUCT { ?o ?p ?s }"))
    observation = await client.observe(PATH, accept=60)
    gateway.add("s", '<urn:a> <urn:p> "é\\n"')
    gateway.add("s", "<urn:a> <urn:p> <urn:b>")
    messages = [await observation.message() for _ in range(3)]
    assert {message.opt.content_format for message in messages} == {60}
    # A literal cannot be the subject of a triple.
    assert [body(message)["content"] for message in messages[1:]] == ["", "<urn:b> <urn:p> <urn:a> .\n"]


@pytest.mark.parametrize("name", ["urn:other", "x%00", "..", "é"])
async def test_an_unknown_query_cannot_be_observed(gateway, client, name):
    for options in ({"observe": 0}, {}):
        answer = await client.ask(GET, f"/queries/{name}", **options)
        assert (answer.code, body(answer)["status_code"]) == (Code.NOT_FOUND, 404)


async def test_other_methods_are_refused(gateway, client):
    assert (await client.ask(DELETE, PATH)).code == Code.METHOD_NOT_ALLOWED
    assert (await client.ask(GET, PATH, observe=0, accept=0)).code == Code.NOT_ACCEPTABLE
    assert (await client.ask(GET, "/queries")).code == Code.NOT_FOUND


async def test_a_query_that_ends_ends_its_observers_after_the_waiting_reports(gateway, client):
    gateway.query("urn:q", SELECT)
    observation = await client.observe(PATH)
    gateway.put(1)
    gateway.ok("DELETE", PATH)
    assert (await observation.notification())["number"] == 0
    assert values(await observation.notification()) == (1, ["1"])
    last = await observation.message()
    assert (last.code, body(last)["error_description"]) == (Code.NOT_FOUND, 'The query "urn:q" has been ended')
    await eventually(lambda: not gateway.followers, "no follower")


async def test_a_paused_query_goes_on_for_its_observers(gateway, client):
    gateway.query("urn:q", SELECT)
    observation = await client.observe(PATH)
    await observation.notification()
    gateway.ok("POST", PATH, "action=pause", FORM)
    gateway.put(1)
    gateway.ok("POST", PATH, "action=restart", FORM)
    gateway.put(2)
    assert values(await observation.notification()) == (1, ["2"])


async def test_a_long_report_goes_in_blocks(gateway, client):
    gateway.query("urn:q", SELECT)
    observation = await client.observe(PATH, block2=(0, False, 4))
    await observation.notification()
    for number in range(1, 6):
        gateway.put(f"{number}-" + "é" * 5_000)
    last, covered = 0, []
    while last < 5:
        report = await observation.notification()
        last, (value,) = values(report)
        assert value == f"{last}-" + "é" * 5_000
        covered += range(last - report["merged"] + 1, last + 1)
    assert covered == [1, 2, 3, 4, 5]


async def test_a_report_beyond_the_largest_result_ends_the_observation(gateway, client):
    gateway.query("urn:q", SELECT)
    observation = await client.observe(PATH)
    await observation.notification()
    gateway.put("x" * 50_000)
    last = await observation.message()
    assert last.code == Code.REQUEST_ENTITY_TOO_LARGE
    assert "40000 bytes (coap.max_result)" in body(last)["error_description"]
    await eventually(lambda: not gateway.followers, "no follower")


async def test_an_observer_that_does_not_confirm_delays_nobody_and_is_ended_by_a_reset(gateway, client):
    gateway.query("urn:q", SELECT)
    silent = Datagrams(gateway.port)
    silent.send(GET, PATH.replace("%3A", ":"), observe=0)
    first = await silent.receive()
    assert body(first)["query"] == "urn:q"
    quick = await client.observe(PATH)
    await quick.notification()
    for number in range(1, 30):
        gateway.put(number)
        assert values(await quick.notification()) == (number, [str(number)])
    assert gateway.followers == 2
    notification = await silent.receive()
    assert notification.mtype == CON
    silent.reset(notification)
    await eventually(lambda: gateway.followers == 1, "one follower")


async def test_a_deregistration_ends_the_observation(gateway):
    gateway.query("urn:q", SELECT)
    device = Datagrams(gateway.port)
    assert (await device.ask(GET, PATH.replace("%3A", ":"), observe=0)).opt.observe is not None
    assert gateway.followers == 1
    answer = await device.ask(GET, PATH.replace("%3A", ":"), observe=1)
    assert (answer.opt.observe, body(answer)["state"]) == (None, "running")
    await eventually(lambda: not gateway.followers, "no follower")


async def test_a_device_that_observes_again_has_one_observation(gateway):
    gateway.query("urn:q", SELECT)
    device = Datagrams(gateway.port)
    for _ in range(5):
        assert (await device.ask(GET, PATH.replace("%3A", ":"), observe=0)).code == Code.CONTENT
    await eventually(lambda: gateway.followers == 1, "one follower")
    gateway.put(1)
    message = await device.receive()
    device.acknowledge(message)
    assert body(message)["number"] == 1


async def test_an_observer_gets_the_reason_when_the_gateway_stops_and_the_numbers_go_on(gateway):
    gateway.query("urn:q", SELECT)
    async with CoapClient(gateway.endpoints["coap"]) as client:
        observation = await client.observe(PATH)
        gateway.put(1)
        await observation.notification()
        assert (await observation.notification())["number"] == 1
        await asyncio.to_thread(gateway.process.stop)
        last = await observation.message()
        assert last.code == Code.SERVICE_UNAVAILABLE
    gateway.http.close()
    gateway.start()
    async with CoapClient(gateway.endpoints["coap"]) as client:
        observation = await client.observe(PATH)
        assert (await observation.notification())["number"] == 1


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    """A gateway that keeps the blocks of one long report, for two observers."""
    limits = {"EDGE__COAP__MAX_SUBSCRIPTIONS": "2", "EDGE__COAP__MAX_BLOCKS": str(1 << 20)}
    gateway = CoapGateway(tmp_path_factory.mktemp("tight"), EDGE__COAP__MAX_RESULT="900000", **limits)
    gateway.stream("s")
    gateway.query("urn:q", SELECT)
    yield gateway
    gateway.close()


async def observers(gateway, number):
    """Return devices that observe the query, and the codes of their answers."""
    devices = [Datagrams(gateway.port) for _ in range(number)]
    codes = [(await device.ask(GET, PATH.replace("%3A", ":"), observe=0)).code for device in devices]
    return devices, codes


async def left(gateway, devices):
    """Wait until these devices do not observe any more."""
    gateway.put("last")
    for device in devices:
        device.reset(await device.receive())
    await eventually(lambda: not gateway.followers, "no follower")


async def test_observers_share_the_limit_of_subscriptions(tight):
    devices, codes = await observers(tight, 3)
    assert codes == [Code.CONTENT, Code.CONTENT, Code.TOO_MANY_REQUESTS]
    assert tight.followers == 2
    await left(tight, devices[:2])


async def test_a_report_whose_blocks_are_dropped_is_lost_and_the_number_of_the_next_one_shows_it(tight):
    (one, other), _ = await observers(tight, 2)
    tight.put("x" * 700_000)
    for device in (one, other):
        message = await device.receive()
        assert message.opt.block2.more
        device.acknowledge(message)
    tight.put("next")
    waiting = {asyncio.create_task(device.receive()): device for device in (one, other)}
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    (received,) = done
    for task in pending:
        task.cancel()
    report = body(received.result())
    assert report["content"]["results"]["bindings"][0]["o"]["value"] == "next"
    assert report["merged"] == 1
    waiting[received].reset(received.result())
    await eventually(lambda: tight.followers == 1, "one follower")


async def test_with_security_only_the_client_of_a_query_observes_it_until_its_rights_change(tmp_path):
    secured = {"enabled": True, "https_port": 0, "wss_port": 0}
    async with Gateway(settings(tmp_path, mqtt={"enabled": False}, security=secured)) as gateway:
        harness = Harness(gateway)
        rights = Rights(frozenset({"query"}), read=frozenset({"urn:edge:stream:s"}))
        operator, mine, other = [
            OptionNumber(65000).create_option(value=token.encode())
            for token in (
                await harness.member("operator", Rights(frozenset({"query", "update", "administer"}))),
                await harness.member("mine", rights),
                await harness.member("other", rights),
            )
        ]
        async with harness.http() as http:

            async def put(path, content, client):
                headers = {"Authorization": f"Bearer {client.value.decode()}"}
                assert (await http.put(path, content=content, headers=headers)).status_code == 200

            await put("/streams/s", b"", operator)
            await put(PATH, SELECT.encode(), mine)
        async with CoapClient(gateway.endpoints["coap"]) as client:
            for options, code in (([], Code.UNAUTHORIZED), ([other], Code.FORBIDDEN)):
                message = Message(code=GET, uri=client.base + PATH, observe=0)
                for option in options:
                    message.opt.add_option(option)
                answer = await client.send(message)
                assert answer.code == code, answer.payload
            own = await client.observe(PATH, extra=[mine])
            assert (await own.notification())["number"] == 0
            administrators = await client.observe(PATH, extra=[operator])
            assert (await administrators.notification())["number"] == 0
            harness.clients.allow("mine", Rights(frozenset({"query"}), read=frozenset()))
            last = await own.message()
            assert (last.code, "have changed" in body(last)["error_description"]) == (Code.UNAUTHORIZED, True)
            harness.clients.revoke("operator")
            assert (await administrators.message()).code == Code.UNAUTHORIZED


async def test_an_oscore_client_continues_after_its_last_report(tmp_path):
    """The observation, the reports and the parameters are encrypted; a token is not needed."""
    pytest.importorskip("lakers", reason="aiocoap's OSCORE client needs it")
    secured = {"enabled": True, "https_port": 0, "wss_port": 0}
    async with Gateway(settings(tmp_path / "data", mqtt={"enabled": False}, security=secured)) as gateway:
        harness = Harness(gateway)
        token = await harness.member("device", Rights(frozenset({"query", "update"})))
        (tmp_path / "keys").mkdir()
        (tmp_path / "keys" / "secret.json").write_text(as_aiocoap(harness.security.share("device")))
        base = gateway.endpoints["coap"]
        async with (
            harness.http(headers={"Authorization": f"Bearer {token}"}) as http,
            CoapClient(base, "oscore") as client,
        ):
            credentials = {f"{base}/*": {"oscore": {"basedir": str(tmp_path / "keys")}}}
            client.context.client_credentials.load_from_dict(credentials)

            async def put(value):
                content = f'<urn:a> <urn:p> "{value}" .'
                answer = await http.post("/streams/s", content=content, headers={"Content-Type": "text/turtle"})
                assert answer.status_code == 200, answer.text

            assert (await http.put("/streams/s")).status_code == 200
            assert (await http.put(PATH, content=SELECT)).status_code == 200
            observation = await client.observe(PATH)
            of = (await observation.notification())["of"]
            await put(1)
            assert values(await observation.notification()) == (1, ["1"])
            observation.request.observation.cancel()
            await put(2)
            again = await client.observe(f"{PATH}?after=1&of={of}")
            head, report = sorted([await again.notification() for _ in range(2)], key=lambda each: each["number"])
            assert head == {"query": "urn:q", "number": 1, "of": of}
            assert values(report) == (2, ["2"])
        async with CoapClient(base) as plain:
            assert (await plain.ask(GET, PATH, observe=0)).code == Code.UNAUTHORIZED
