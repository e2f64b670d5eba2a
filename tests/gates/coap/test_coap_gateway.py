"""CoAP in a whole gateway: readings with mappings, security, settings."""

import subprocess
import sys

import aiocoap
import cbor2
import httpx
import pytest
from aiocoap import FETCH, POST, Code
from aiocoap.numbers.optionnumbers import OptionNumber
from coap_client import ALL, CoapClient, body, values

from edge.config import Settings
from edge.gateway import Gateway
from edge.gateway.errors import StartError
from edge.security.clients import Rights
from tests.security.secured import Harness

TEXT, JSON, CBOR, SENML_JSON, SENML_CBOR = 0, 50, 60, 110, 112
VALUES = """
PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?o { ?s sosa:hasResult/qudt:numericValue ?o }"""


def settings(data_dir, **sections):
    anywhere = {"port": 0}
    return Settings.model_validate(
        {
            "data_dir": data_dir,
            "http": anywhere,
            "ws": anywhere,
            "mqtt": anywhere,
            "coap": {"enabled": True, **anywhere},
            "host": {"enabled": False},
            **sections,
        }
    )


@pytest.fixture
async def harness(tmp_path):

    async with Gateway(settings(tmp_path)) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("content_format", "payload"),
    [
        (SENML_JSON, b'[{"bn": "", "n": "t", "u": "Cel", "v": 21.5}]'),
        (JSON, b'[{"n": "t", "u": "Cel", "v": 21.5}]'),
        (None, b'[{"n": "t", "u": "Cel", "v": 21.5}]'),
        (SENML_CBOR, cbor2.dumps([{-2: "", 0: "t", 1: "Cel", 2: 21.5}])),
        (SENML_CBOR, cbor2.dumps([{"n": "t", "u": "Cel", "v": 21.5}])),
        (CBOR, cbor2.dumps([{"n": "t", "u": "Cel", "v": 21.5}])),
    ],
)
async def test_readings_in_senml_are_mapped_as_over_mqtt(harness, content_format, payload):
    async with CoapClient(harness.endpoints["coap"]) as client:
        answer = await client.ask(POST, "/reading/senml/garden", payload, content_format=content_format)
        assert (answer.code, body(answer)) == (Code.CHANGED, {"readings": 1})
        assert values(body(await client.ask(FETCH, "/query", VALUES.encode()))) == ["21.5"]


async def test_a_plain_value_for_an_observation_that_a_client_tied_to_a_topic(harness):
    async with CoapClient(harness.endpoints["coap"]) as client:
        await client.update(
            "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX monitor: <http://mml.arces.unibo.it/monitor#> "
            'INSERT DATA { <urn:cellar> a sosa:Observation ; monitor:hasMqttTopic "cellar/temperature" }'
        )
        answer = await client.ask(POST, "/reading/cellar/temperature", b"12.5")
        assert body(answer) == {"readings": 1}
        assert values(body(await client.ask(FETCH, "/query", VALUES.encode()))) == ["12.5"]


@pytest.mark.parametrize(
    ("path", "content_format", "payload", "code"),
    [
        ("/reading/nobody/knows", None, b"1", Code.BAD_REQUEST),
        ("/reading/senml/garden", SENML_JSON, b"[", Code.BAD_REQUEST),
        ("/reading/senml/garden", SENML_CBOR, b"\xff", Code.BAD_REQUEST),
        ("/reading/senml/garden", SENML_CBOR, cbor2.dumps({"n": 1}), Code.BAD_REQUEST),
        ("/reading/senml/%23", SENML_JSON, b"[]", Code.BAD_REQUEST),
        ("/reading/senml/garden", 41, b"<x/>", Code.UNSUPPORTED_CONTENT_FORMAT),
        ("/reading", None, b"1", Code.NOT_FOUND),
    ],
)
async def test_readings_that_cannot_be_used_are_refused(harness, path, content_format, payload, code):
    async with CoapClient(harness.endpoints["coap"]) as client:
        answer = await client.ask(POST, path, payload, content_format=content_format)
        assert answer.code == code
        assert set(body(answer)) == {"error", "error_description", "status_code"}


async def test_unusable_readings_are_listed_as_over_mqtt(harness):
    async with CoapClient(harness.endpoints["coap"]) as client:
        await client.ask(POST, "/reading/nobody/knows", b"1")
    async with httpx.AsyncClient(base_url=harness.endpoints["http"]) as http:
        assert [entry["topic"] for entry in (await http.get("/api/unmapped")).json()] == ["nobody/knows"]


async def test_readings_need_no_mqtt(tmp_path):
    async with (
        Gateway(settings(tmp_path, mqtt={"enabled": False})) as gateway,
        CoapClient(gateway.endpoints["coap"]) as client,
    ):
        answer = await client.ask(
            POST, "/reading/senml/garden", b'[{"n":"temperature","u":"Cel","v":21.5}]', content_format=SENML_JSON
        )
        assert (answer.code, body(answer)) == (Code.CHANGED, {"readings": 1})


async def ask(client, code, path, payload, token=None):
    message = aiocoap.Message(code=code, uri=client.base + path, payload=payload)
    if token is not None:
        message.opt.add_option(OptionNumber(65000).create_option(value=token.encode()))
    return await client.send(message)


async def test_with_security_every_request_needs_a_token(tmp_path):
    secured = settings(tmp_path, security={"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0})
    async with Gateway(secured) as gateway, CoapClient(gateway.endpoints["coap"]) as client:
        harness = Harness(gateway)
        full = await harness.member("full")
        reader = await harness.member("reader", Rights(actions=frozenset({"query"})))
        graphs = await harness.member("graphs", Rights(write=frozenset({"urn:g"})))
        sensor = await harness.member("sensor", Rights(actions=frozenset(), publish=frozenset({"senml/a/+"})))
        data, reading = b'INSERT DATA { <urn:a> <urn:b> "x" }', b'[{"n":"t","v":1}]'
        for path, payload in (("/query", ALL), ("/update", data), ("/subscribe", ALL), ("/reading/senml/a", reading)):
            for bad in (None, "", "nonsense", full[:-2]):
                assert (await ask(client, POST, path, payload, bad)).code == Code.UNAUTHORIZED, (path, bad)
            wanted = Code.CREATED if path == "/subscribe" else Code.CHANGED
            assert (await ask(client, POST, path, payload, full)).code == wanted, path
        assert (await ask(client, FETCH, "/query", ALL, reader)).code == Code.CONTENT
        for path, payload in (("/update", data), ("/subscribe", ALL), ("/reading/senml/a", reading)):
            assert (await ask(client, POST, path, payload, reader)).code == Code.FORBIDDEN, path
        for path, payload in (("/update", data.replace(b"x", b"y")), ("/reading/senml/a", reading)):
            assert (await ask(client, POST, path, payload, graphs)).code == Code.FORBIDDEN, path
        for topic, wanted in (("senml/a/1", Code.CHANGED), ("senml/a", Code.FORBIDDEN), ("senml/b/1", Code.FORBIDDEN)):
            assert (await ask(client, POST, f"/reading/{topic}", reading, sensor)).code == wanted, topic


async def test_a_subscription_is_its_clients_own_and_ends_with_its_rights(tmp_path):
    secured = settings(tmp_path, security={"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0})
    async with Gateway(secured) as gateway, CoapClient(gateway.endpoints["coap"]) as client:
        harness = Harness(gateway)
        mine, other = await harness.member("mine"), await harness.member("other")
        created = await ask(client, POST, "/subscribe", ALL, mine)
        path = "/" + "/".join(created.opt.location_path)
        for code in (aiocoap.GET, aiocoap.DELETE):
            assert (await ask(client, code, path, b"", other)).code == Code.NOT_FOUND
            assert (await ask(client, code, path, b"")).code == Code.UNAUTHORIZED
        token = OptionNumber(65000).create_option(value=mine.encode())
        observation = await client.observe(path, extra=[token])
        assert (await observation.notification())["sequence"] == 0
        harness.clients.revoke("mine")
        last = await observation.message()
        assert last.code == Code.UNAUTHORIZED
        await harness.until(lambda: harness.subscriptions == 0)


async def test_without_security_only_loopback_addresses_are_listened_on(tmp_path):
    with pytest.raises(StartError, match=r"coap\.host"):
        await Gateway(settings(tmp_path, coap={"enabled": True, "host": "0.0.0.0", "port": 0})).start()


def test_oscore_is_not_loaded_without_keys(tmp_path):
    code = f"""
import asyncio, sys
from edge.config import Settings
from edge.gateway import Gateway
async def main():
    settings = Settings.model_validate({{
        "data_dir": {str(tmp_path)!r}, "http": {{"port": 0}}, "ws": {{"port": 0}}, "mqtt": {{"enabled": False}},
        "host": {{"enabled": False}}, "coap": {{"enabled": True, "port": 0}},
        "security": {{"enabled": True, "https_port": 0, "wss_port": 0}},
    }})
    async with Gateway(settings):
        print("aiocoap.oscore" in sys.modules)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_no_port_is_open_if_coap_is_disabled(tmp_path):
    async with Gateway(settings(tmp_path, coap={"enabled": False})) as gateway:
        assert "coap" not in gateway.endpoints
