"""Updates over the socket of subscriptions."""

from __future__ import annotations

import asyncio

from gate_client import rows

from tests.support.waiting import eventually


async def test_an_update_by_the_socket_is_answered_and_notified(gateway):
    client = await gateway.client()
    await client.subscribe(alias="all")
    await client.send({"update": {"sparql": "INSERT DATA { <urn:a> <urn:b> 1 , 2 }", "alias": "write"}})
    messages = [await client.receive(), await client.receive()]
    assert messages[0] == {"updated": {"alias": "write", "added": 2, "removed": 0}}
    assert rows(messages[1]["notification"]["addedResults"]) == [("urn:a", "urn:b", "1"), ("urn:a", "urn:b", "2")]
    again = await client.ask({"update": {"sparql": "INSERT DATA { <urn:a> <urn:b> 1 , 2 }"}})
    assert again == {"updated": {"added": 0, "removed": 0}}


async def test_an_update_has_the_dataset_of_its_message(gateway):
    client = await gateway.client()
    await gateway.update("INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> 1 } }")
    text = "INSERT { <urn:a> <urn:c> ?o } WHERE { ?s ?p ?o }"
    assert await client.ask({"update": {"sparql": text}}) == {"updated": {"added": 0, "removed": 0}}
    answer = await client.ask({"update": {"sparql": text, "using-graph-uri": "urn:g"}})
    assert answer == {"updated": {"added": 1, "removed": 0}}


async def test_an_invalid_update_gets_an_error_with_its_alias(gateway):
    client = await gateway.client()
    for members, error, status in (
        ({"sparql": "INSERT DATA { oops }"}, "parsing_failed", 400),
        ({"sparql": "SELECT * {}"}, "parsing_failed", 400),
        ({}, "invalid_request", 400),
        ({"sparql": "LOAD <urn:a>"}, "forbidden", 403),
    ):
        answer = await client.ask({"update": {"alias": "write", **members}})
        assert (answer["error"], answer["status_code"], answer["alias"]) == (error, status, "write")
    assert gateway.metric("edge_requests_total", gate="ws", primitive="update", status="400") == 2


async def test_updates_are_answered_in_their_order(gateway):
    client = await gateway.client()
    for number in range(50):
        await client.send({"update": {"sparql": f"INSERT DATA {{ <urn:a> <urn:b> {number} }}", "alias": str(number)}})
    assert [(await client.receive())["updated"]["alias"] for _ in range(50)] == [str(number) for number in range(50)]


async def test_an_update_of_a_disconnected_client_is_executed(gateway, engine):
    client = await gateway.client()
    await client.send({"update": {"sparql": "INSERT DATA { <urn:a> <urn:b> 1 }"}})
    await asyncio.sleep(0)
    await client.socket.close()
    await eventually(lambda: engine.quads == 1, "the update")
