"""Web pages in a browser on the machine: the origins and host names that the gateway accepts."""

from __future__ import annotations

import pytest
from gate_client import ALL
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from edge.gates.origins import host_allowed, origin_allowed, wrong_hosts
from edge.gates.settings import HttpGateSettings, WsGateSettings

OWN = ["http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:80", "http://app.localhost"]
FOREIGN = [
    "http://evil.example",
    "https://localhost.evil.example",
    "http://127.0.0.1.evil.example",
    "http://128.0.0.1",
    "null",
    "",
    "file://",
    "http://[",
    "localhost",
]


@pytest.mark.parametrize("origin", OWN)
def test_pages_of_this_machine_are_loopback(origin):
    assert origin_allowed(origin, "127.0.0.1:8000", ["loopback"])
    assert not origin_allowed(origin, "gateway.example", ["https://other.example"])


@pytest.mark.parametrize("origin", FOREIGN)
def test_foreign_origins_are_refused(origin):
    for host in ("127.0.0.1:8000", "localhost", "", None):
        assert not origin_allowed(origin, host, ["loopback"])
        assert origin_allowed(origin, host, ["*"])
        assert origin_allowed(origin, host, [origin])


def test_pages_of_the_gateways_own_name_may_come_from_any_port():
    assert origin_allowed("https://gateway.example:3000", "gateway.example:8443", [])
    assert not origin_allowed("https://gateway.example:3000", "other.example", [])


@given(st.text(max_size=30), st.text(max_size=30) | st.none())
def test_any_origin_header_is_handled(origin, host):
    assert origin_allowed(origin, host, ["loopback"]) in (True, False)
    assert host_allowed(host, ["gateway"]) in (True, False)


@pytest.mark.parametrize(
    ("host", "names", "allowed"),
    [
        (None, [], True),
        ("localhost", [], True),
        ("LOCALHOST:8000", [], True),
        ("localhost.:8000", [], True),
        ("127.0.0.1:8000", [], True),
        ("127.1.2.3", [], True),
        ("[::1]:8000", [], True),
        ("gateway.localhost", [], True),
        ("rebind.evil", [], False),
        ("rebind.evil:8000", ["gateway.example"], False),
        ("localhost.evil", [], False),
        ("192.0.2.1:8000", [], False),
        ("", [], False),
        ("[", [], False),
        ("gateway.example:8000", ["gateway.example"], True),
        ("rebind.evil", ["*"], True),
    ],
)
def test_names_without_encryption_are_this_machines_or_known(host, names, allowed):
    assert host_allowed(host, names) is allowed


@pytest.mark.parametrize(
    "host",
    ["a", "A.example:8000", "127.0.0.1", "[::1]:80", "[fe80::1%25eth0]", "a_b.local.", "a:", "xn--4ca", " a ", "a%20b"],
)
def test_a_host_may_be(host):
    assert wrong_hosts([host]) is None


@pytest.mark.parametrize(
    "host",
    [
        *("", " ", ":80", "a b", "a, b", "a@b", "@a", "a:b@c", "a/b", "a?b", "a#b", "a\\b", "a:b", "a:1:2", "a:123456"),
        *("[::1", "::1", "[::1]a", "[a@b]", "a\n", "a\0", "\xe4", "a\u0663:\u0663"),
    ],
)
def test_a_host_may_not_be(host):
    assert wrong_hosts([host]) is not None


def test_only_http_1_0_may_omit_the_host():
    assert wrong_hosts([], needed=False) is None
    assert wrong_hosts([]) is not None
    assert wrong_hosts(["a", "a"], needed=False) is not None


REBOUND = {"Host": "rebind.evil:8000", "Origin": "http://rebind.evil:8000"}


@pytest.mark.parametrize(
    ("headers", "setting"), [({"Origin": FOREIGN[0]}, "http.cors_origins"), (REBOUND, "http.hosts")]
)
async def test_by_default_no_page_of_others_reads_or_changes_anything(gateway, headers, setting):
    """For example a form, for which a browser sends no preflight request."""
    await gateway.update("INSERT DATA { <urn:a> <urn:b> 1 }")
    async with gateway.http() as http:
        for answer in (
            await http.post("/update", data={"update": "DROP ALL"}, headers=headers),
            await http.put("/timers/x?delay=PT1S", data={"update": "DROP ALL"}, headers=headers),
            await http.get("/query", params={"query": ALL}, headers=headers),
            await http.get("/", headers=headers),
            await http.options("/update", headers={**headers, "Access-Control-Request-Method": "POST"}),
        ):
            assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
            assert setting in answer.json()["error_description"]
            assert "access-control-allow-origin" not in answer.headers
        found = await http.get("/query", params={"query": ALL}, headers={"Origin": OWN[1]})
        assert len(found.json()["results"]["bindings"]) == 1
        assert found.headers["access-control-allow-origin"] == OWN[1]


@pytest.mark.parametrize(
    ("name", "origin", "setting"),
    [
        ("localhost", FOREIGN[0], "ws.origins"),
        ("rebind.evil", "http://rebind.evil", "ws.hosts"),
    ],
)
async def test_by_default_no_page_of_others_subscribes(gateway, name, origin, setting):
    url = f"ws://{name}:{gateway.ws_port}/subscribe"
    with pytest.raises(InvalidStatus) as refused:
        await gateway.client(url, origin=origin, host="127.0.0.1", port=gateway.ws_port)
    assert refused.value.response.status_code == 403
    assert setting.encode() in refused.value.response.body
    client = await gateway.client(origin=OWN[1])
    assert (await client.subscribe())["sequence"] == 0


async def test_names_that_are_listed_are_answered(serve):
    http, ws = HttpGateSettings(port=0, hosts=("gateway.example",)), WsGateSettings(port=0, hosts=("gateway.example",))
    async with serve(http=http, ws=ws) as gateway, gateway.http() as client:
        name = {"Host": "gateway.example"}
        assert (await client.get("/health", headers=name)).status_code == 200
        page = await client.post(
            "/update", data={"update": "CLEAR ALL"}, headers={**name, "Origin": "https://gateway.example"}
        )
        assert page.status_code == 200
        subscriber = await gateway.client(
            f"ws://gateway.example:{gateway.ws_port}/subscribe", host="127.0.0.1", port=gateway.ws_port
        )
        assert (await subscriber.subscribe())["sequence"] == 0


@pytest.mark.parametrize(
    ("origins", "received"),
    [(("https://app.example",), "true"), (("*",), None), (("*", "https://app.example"), "true")],
)
async def test_only_pages_that_are_named_come_in_from_another_network(serve, origins, received):
    """Private Network Access: a page of the internet that sends a request to the local network."""
    asked = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Private-Network": "true",
    }
    async with serve(http=HttpGateSettings(port=0, cors_origins=origins)) as gateway, gateway.http() as http:
        answer = await http.options("/update", headers=asked)
    assert answer.status_code == 204
    assert answer.headers.get("access-control-allow-private-network") == received
