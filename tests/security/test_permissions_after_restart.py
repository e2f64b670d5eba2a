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
    async with secured() as house, house.socket() as socket:
        token = await house.member("lamp", rights)
        first = await socket.ask("subscribe", token, sparql=QUERY, resume=True)
        socket.socket.transport.abort()  # like a network failure: no connection is closed properly
    return token, first["notification"]["spuid"]


async def test_it_goes_on_for_its_client_also_on_another_port(secured):
    token, spuid = await begun(secured, NARROW)
    async with secured() as house:
        operator = await house.member("operator")
        assert (await house.update(operator, FIRST)).status_code == 200
        authority = ssl.create_default_context(cafile=house.gateway.settings.tls_dir / "ca.pem")
        async with connect(house.gateway.endpoints["wss"], ssl=authority) as secure:
            again = await Socket(secure).ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0)
            assert again["notification"]["spuid"] == spuid
            if not values(again):  # the query was not evaluated again since the update
                again = await Socket(secure).receive()
            assert values(again) == ["on"]
            last = again["notification"]["sequence"]
            assert (await house.update(operator, SECOND)).status_code == 200
            assert values(await Socket(secure).receive()) == ["off"]
            secure.transport.abort()
        async with house.socket() as socket:
            again = await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=last)
            assert (again["notification"]["spuid"], values(again)) == (spuid, ["off"])


async def test_nobody_else_gets_it_with_equal_rights_or_without(secured):
    token, spuid = await begun(secured)
    async with secured() as house, house.socket() as socket:
        other = await house.member("thief")
        assert (await house.update(other, FIRST)).status_code == 200
        told = await socket.ask("subscribe", other, sparql=QUERY, spuid=spuid, sequence=0)
        assert told["notification"]["spuid"] != spuid
        assert (await socket.ask("subscribe", None, sparql=QUERY, spuid=spuid, sequence=0))["status_code"] == 401
        told = await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0)
        assert told["notification"]["spuid"] == spuid


async def test_a_client_that_was_revoked_meanwhile_gets_nothing_nor_who_has_its_name_now(secured):
    token, spuid = await begun(secured)
    async with secured() as house, house.socket() as socket:
        house.clients.revoke("lamp")
        assert (await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0))[
            "error"
        ] == "invalid_client"


async def test_a_client_with_other_rights_meanwhile_begins_anew_with_what_it_may_see(secured):
    token, spuid = await begun(secured)
    async with secured() as house, house.socket() as socket:
        operator = await house.member("operator")
        assert (await house.update(operator, FIRST)).status_code == 200
        house.clients.allow("lamp", NARROW)
        anew = await socket.ask("subscribe", token, sparql=QUERY, spuid=spuid, sequence=0)
        assert (anew["notification"]["spuid"] != spuid, values(anew)) == (True, ["on"])
