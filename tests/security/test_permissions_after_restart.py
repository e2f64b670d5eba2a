"""Subscriptions that survive a restart of the gateway belong to their clients, with unchanged permissions."""

from __future__ import annotations

import ssl

from secured import Socket
from websockets.asyncio.client import connect

from edge.security.clients import Rights

QUERY = "SELECT ?o { GRAPH ?g { ?s ?p ?o } }"
FIRST = "INSERT DATA { GRAPH <urn:g> { <urn:t:lamp> <urn:t:is> 'on' } GRAPH <urn:h> { <urn:t:lamp> <urn:t:is> 'red' } }"
SECOND = (
    "INSERT DATA { GRAPH <urn:g> { <urn:t:lamp> <urn:t:was> 'off' } GRAPH <urn:h> { <urn:t:lamp> <urn:t:was> 'blue' } }"
)
NARROW = Rights(read=frozenset({"urn:g"}))


def values(answer: dict) -> list[str]:
    return sorted(row["o"]["value"] for row in answer["notification"]["addedResults"]["results"]["bindings"])


async def begun(secured, rights: Rights | None = None) -> tuple[str, str]:
    """Return token and spuid of a client that subscribed before the gateway was stopped."""
    async with secured() as harness, harness.socket() as socket:
        token = await harness.member("lamp", rights)
        first = await socket.ask("subscribe", token, sparql=QUERY, resume=True)
        socket.socket.transport.abort()  # like a network failure: no connection is closed properly
    return token, first["notification"]["spuid"]


async def test_a_subscription_continues_for_its_client_on_another_port(secured):
    token, spuid = await begun(secured, NARROW)
    async with secured() as harness:
        operator = await harness.member("operator")
        assert (await harness.update(operator, FIRST)).status_code == 200
        authority = ssl.create_default_context(cafile=harness.gateway.settings.tls_dir / "ca.pem")
        async with connect(harness.gateway.endpoints["wss"], ssl=authority) as secure:
            again = await Socket(secure).ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0)
            assert again["notification"]["spuid"] == spuid
            if not values(again):  # the query was not evaluated again since the update
                again = await Socket(secure).receive()
            assert values(again) == ["on"]
            last = again["notification"]["sequence"]
            assert (await harness.update(operator, SECOND)).status_code == 200
            assert values(await Socket(secure).receive()) == ["off"]
            secure.transport.abort()
        async with harness.socket() as socket:
            again = await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=last)
            assert (again["notification"]["spuid"], values(again)) == (spuid, ["off"])


async def test_no_other_client_can_resume_a_subscription(secured):
    token, spuid = await begun(secured)
    async with secured() as harness, harness.socket() as socket:
        other = await harness.member("thief")
        assert (await harness.update(other, FIRST)).status_code == 200
        received = await socket.ask("subscribe", other, sparql=QUERY, spuid=spuid, sequence=0)
        assert received["notification"]["spuid"] != spuid
        assert (await socket.ask("subscribe", None, sparql=QUERY, spuid=spuid, sequence=0))["status_code"] == 401
        received = await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0)
        assert received["notification"]["spuid"] == spuid


async def test_a_revoked_client_and_its_successor_cannot_resume(secured):
    token, spuid = await begun(secured)
    async with secured() as harness, harness.socket() as socket:
        harness.clients.revoke("lamp")
        assert (await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0))[
            "error"
        ] == "invalid_client"


async def test_a_client_with_changed_permissions_receives_the_permitted_result_again(secured):
    token, spuid = await begun(secured)
    async with secured() as harness, harness.socket() as socket:
        operator = await harness.member("operator")
        assert (await harness.update(operator, FIRST)).status_code == 200
        harness.clients.allow("lamp", NARROW)
        response = await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0)
        assert (response["notification"]["spuid"] != spuid, values(response)) == (True, ["on"])
