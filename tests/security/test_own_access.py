"""`/api/access`: a client asks for its own permissions."""

from __future__ import annotations

from edge.security.clients import Rights


async def ask(harness, token=None):
    async with harness.http() as http:
        return await http.get("/api/access", headers={} if token is None else {"Authorization": f"Bearer {token}"})


async def test_a_client_sees_its_own_permissions_and_their_end(secured):
    async with secured() as harness:
        rights = Rights(frozenset({"query", "subscribe"}), read=frozenset({"urn:g", ""}), write=frozenset())
        answer = await ask(harness, await harness.member("viewer", rights))
        found = answer.json()
        assert (found["client"], found["actions"], found["read"]) == ("viewer", ["query", "subscribe"], ["", "urn:g"])
        assert (found["write"], found["publish"], found["priority"]) == ([], [], "normal")
        assert found["expires"].endswith("+00:00")


async def test_without_a_valid_token_nothing_is_disclosed(secured):
    async with secured() as harness:
        assert (await ask(harness)).status_code == 401
        token = await harness.member("viewer")
        harness.clients.revoke("viewer")
        assert (await ask(harness, token)).status_code == 401
