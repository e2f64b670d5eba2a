"""Open sockets when a token expires or a client is revoked."""

from __future__ import annotations

import asyncio

from edge.protocol.errors import StorageFailed
from edge.security.clients import Rights

QUERY = "SELECT ?o { ?s ?p ?o }"
INSERT = "INSERT DATA { <urn:t:lamp> <urn:t:is> 'on' }"


async def test_subscriptions_end_with_an_error_when_the_token_expires(secured):
    async with secured(token_lifetime=2) as harness, harness.socket() as socket:
        token = await harness.member()
        first = await socket.ask("subscribe", token, sparql=QUERY, alias="mine")
        received = await socket.receive()
        assert (received["error"], received["status_code"]) == ("invalid_grant", 401)
        assert (received["alias"], received["spuid"]) == ("mine", first["notification"]["spuid"])
        await harness.until(lambda: harness.subscriptions == 0)
        assert (await socket.ask("query", token, sparql=QUERY))["error"] == "invalid_grant"
        assert (await harness.query(token)).json()["error"] == "invalid_grant"


async def test_a_revoked_client_hears_nothing_more_on_an_open_socket(harness):
    token, other = await harness.member("lamp"), await harness.member("other")
    async with harness.socket() as socket, harness.socket() as another:
        first = await socket.ask("subscribe", token, sparql=QUERY, alias="mine")
        await another.ask("subscribe", other, sparql=QUERY)
        harness.clients.revoke("lamp")
        assert (await harness.query(token)).json()["error"] == "invalid_client"
        received = await socket.receive()
        assert (received["error"], received["spuid"]) == ("invalid_client", first["notification"]["spuid"])
        assert (await socket.ask("query", token, sparql=QUERY))["error"] == "invalid_client"
        assert (await harness.update(other, INSERT)).status_code == 200
        assert (await another.receive())["notification"]["sequence"] == 1
        assert (await socket.ask("subscribe", token, sparql=QUERY))["error"] == "invalid_client"


async def test_a_revoked_client_gets_no_token_and_registers_only_if_allowed_again(harness):
    harness.clients.allow("lamp", Rights())
    credentials = await harness.register("lamp")
    old = await harness.token(credentials)
    harness.clients.revoke("lamp")
    body = {"register": {"client_identity": "lamp"}}
    async with harness.http() as http:
        assert (await http.post("/oauth/token", auth=credentials)).json()["error"] == "invalid_client"
        assert (await http.post("/oauth/register", json=body)).json()["error"] == "unauthorized_client"
        harness.clients.allow("lamp", Rights())
        assert (await http.post("/oauth/register", json=body)).status_code == 201
    assert (await harness.query(old)).json()["error"] == "invalid_client"


async def test_rights_that_change_end_subscriptions_and_count_at_once(harness):
    token = await harness.member()
    async with harness.socket() as socket:
        await socket.ask("subscribe", token, sparql=QUERY)
        harness.clients.allow("lamp", Rights(actions=frozenset({"query"})))
        assert (await socket.receive())["status_code"] == 401
        assert (await socket.ask("subscribe", token, sparql=QUERY))["error"] == "forbidden"
        assert "result" in await socket.ask("query", token, sparql=QUERY)


async def test_no_client_ends_or_resumes_the_subscription_of_another(harness):
    mine, other = await harness.member("mine"), await harness.member("other")
    async with harness.socket() as socket:
        first = await socket.ask("subscribe", mine, sparql=QUERY, resume=True)
        spuid = first["notification"]["spuid"]
        assert (await socket.ask("unsubscribe", other, spuid=spuid))["error"] == "not_found"
        async with harness.socket() as thief:
            received = await thief.ask("subscribe", other, sparql=QUERY, spuid=spuid, sequence=0)
            assert received["notification"]["spuid"] != spuid
        assert (await socket.ask("unsubscribe", mine, spuid=spuid))["unsubscribed"]["spuid"] == spuid


async def test_a_subscription_is_resumed_with_another_token_of_the_same_client(harness):
    token = await harness.member()
    async with harness.socket() as socket:
        first = await socket.ask("subscribe", token, sparql=QUERY, resume=True)
        socket.socket.transport.abort()
    spuid = first["notification"]["spuid"]
    harness.security.tokens._last.clear()
    renewed = harness.security.tokens.issue(next(iter(harness.security.clients.registered()))).token
    assert renewed != token
    async with harness.socket() as socket:
        again = await socket.ask("subscribe", renewed, sparql=QUERY, spuid=spuid, sequence=0)
        assert again["notification"]["spuid"] == spuid


async def test_a_suspended_subscription_of_a_revoked_client_ends(harness):
    token = await harness.member()
    async with harness.socket() as socket:
        await socket.ask("subscribe", token, sparql=QUERY, resume=True)
        socket.socket.transport.abort()
    assert harness.subscriptions == 1
    harness.clients.revoke("lamp")
    await harness.until(lambda: harness.subscriptions == 0)


async def test_clients_are_refused_while_the_client_store_is_unreadable(harness, monkeypatch):
    token = await harness.member()
    store, real = harness.security._store, harness.security._store.rows

    failures = []

    def broken(sql, *values):
        failures.append(sql)
        raise StorageFailed("the disk is gone")

    async with harness.socket() as socket:
        await socket.ask("subscribe", token, sparql=QUERY)
        monkeypatch.setattr(store, "rows", broken)
        assert (await harness.query(token)).status_code == 507
        failures.clear()
        await harness.until(lambda: len(failures) > 1)  # the watch looks again
        monkeypatch.setattr(store, "rows", real)
        assert (await harness.query(token)).status_code == 200
        harness.clients.revoke("lamp")
        assert (await socket.receive())["error"] == "invalid_client"


async def test_a_socket_without_a_valid_token_is_closed_after_a_while_and_no_other(secured):
    async with secured(ws={"authorize_within": 0.5}) as harness:
        token = await harness.member()
        async with harness.socket() as silent, harness.socket() as unauthenticated, harness.socket() as mine:
            await mine.ask("query", token, sparql="ASK {}")
            assert (await unauthenticated.ask("query", "nonsense", sparql="ASK {}"))["status_code"] == 401
            for socket in (silent, unauthenticated):
                async with asyncio.timeout(20):
                    await socket.socket.wait_closed()
                assert socket.socket.close_code == 1008
                assert "ws.authorize_within" in socket.socket.close_reason
            assert "result" in await mine.ask("query", token, sparql="ASK {}")
