"""Clients as administrators manage them over the HTTP interface."""

from __future__ import annotations

import asyncio
import time

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.access import ACTIONS, PRIORITIES
from edge.protocol.errors import InvalidRequest
from edge.security.clients import Rights
from edge.security.rights_json import exceeding, from_json, to_json

DAY = 86_400
VIEWER = {"actions": ["query", "subscribe"], "read": ["", "urn:g"], "write": [], "publish": None, "receive": []}


class Administrator:
    """An administrator with all permissions, or with some."""

    def __init__(self, harness, token: str) -> None:
        self.harness = harness
        self.token = token

    async def ask(self, method: str, path: str, **options):
        async with self.harness.http() as http:
            return await http.request(method, path, headers={"Authorization": f"Bearer {self.token}"}, **options)

    async def clients(self):
        found = (await self.ask("GET", "/api/clients")).json()["clients"]
        return {client["identity"]: client for client in found}

    async def invite(self, identity: str, rights=None, seconds: int = DAY):
        body = {"identity": identity, "rights": VIEWER if rights is None else rights, "seconds": seconds}
        return await self.ask("POST", "/api/invitations", json=body)


@pytest.fixture
async def admin(harness):
    return Administrator(harness, await harness.member("operator", Rights(ACTIONS)))


async def test_an_invited_client_registers_and_has_its_rights(harness, admin):
    answer = await admin.invite("hall/display")
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    code = answer.json()["invitation"]["code"]
    listed = (await admin.clients())["hall/display"]
    assert (listed["state"], listed["oscore"], listed["rights"]) == ("invited", False, {**VIEWER, "priority": "normal"})
    assert listed["until"] == pytest.approx((time.time() + DAY) * 1e6, abs=60e6)
    token = await harness.token(await harness.register(code))
    assert (await harness.query(token, "SELECT * { GRAPH <urn:g> { ?s ?p ?o } }")).status_code == 200
    assert (await harness.update(token, "INSERT DATA { <urn:a> <urn:b> 1 }")).status_code == 403
    assert (await admin.clients())["hall/display"]["state"] == "registered"


async def test_rights_of_a_client_change_while_it_is_connected(harness, admin):
    token = await harness.member("lamp", Rights(frozenset({"query"})))
    assert (await harness.update(token, "INSERT DATA { <urn:a> <urn:b> 1 }")).status_code == 403
    answer = await admin.ask("PUT", "/api/clients/lamp", json={"rights": {"actions": ["query", "update"]}})
    assert answer.json() == {"allowed": {"identity": "lamp"}}
    assert (await harness.update(token, "INSERT DATA { <urn:a> <urn:b> 1 }")).status_code == 200


async def test_a_revoked_client_loses_its_subscription(harness, admin):
    token = await harness.member("lamp")
    async with harness.socket() as socket:
        await socket.ask("subscribe", token, sparql="SELECT * { ?s ?p ?o }")
        assert (await admin.ask("DELETE", "/api/clients/lamp")).json() == {"revoked": {"identity": "lamp"}}
        assert (await socket.receive())["error"] == "invalid_client"
    assert (await harness.query(token)).status_code == 401
    assert (await admin.clients())["lamp"]["state"] == "revoked"


async def test_a_token_is_printed_for_a_client_that_cannot_ask_for_one(harness, admin):
    await admin.ask("PUT", "/api/clients/meter", json={"rights": {"actions": ["query"]}})
    answer = await admin.ask("POST", "/api/tokens", json={"identity": "meter", "seconds": 30 * DAY})
    assert answer.status_code == 201
    assert (await harness.query(answer.json()["token"]["access_token"])).status_code == 200


async def test_registration_is_opened_for_a_limited_time(harness, admin):
    assert (await admin.ask("GET", "/api/clients")).json()["opening"] is None
    await admin.ask("PUT", "/api/opening", json={"rights": {"actions": ["query"]}, "seconds": 600})
    opening = (await admin.ask("GET", "/api/clients")).json()["opening"]
    assert opening["rights"]["actions"] == ["query"]
    assert opening["until"] == pytest.approx((time.time() + 600) * 1e6, abs=60e6)
    assert (await harness.query(await harness.token(await harness.register("anyone")))).status_code == 200
    await admin.ask("PUT", "/api/opening", json={"rights": {"actions": []}, "seconds": 0})
    assert (await admin.ask("GET", "/api/clients")).json()["opening"] is None


async def test_an_administrator_cannot_shut_itself_out(admin):
    answers = [
        await admin.ask("DELETE", "/api/clients/operator"),
        await admin.ask("PUT", "/api/clients/operator", json={"rights": {"actions": ["query"]}}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
        assert "edge clients revoke" in answer.json()["error_description"] or "yourself" in answer.text


async def test_an_administrator_grants_no_more_than_it_has(harness, admin):
    rights = Rights(frozenset({"administer", "query"}), read=frozenset({"urn:g"}))
    limited = Administrator(harness, await harness.member("limited", rights))
    allowed = {"actions": ["query"], "read": ["urn:g"], "write": [], "publish": [], "receive": []}
    assert (await limited.invite("a", allowed)).status_code == 201
    for beyond, what in (
        ({"actions": ["update"]}, '"update"'),
        ({"read": None}, 'read the graph "all"'),
        ({"read": ["urn:g", ""]}, 'read the graph "default"'),
        ({"publish": ["#"]}, 'publish on the topic "#"'),
    ):
        answer = await limited.invite("b", {**allowed, **beyond})
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
        assert what in answer.json()["error_description"]
    # Nor does it get at the rights of a client that may do more.
    for method, path, body in (
        ("DELETE", "/api/clients/operator", None),
        ("PUT", "/api/clients/operator", {"rights": allowed}),
        ("POST", "/api/tokens", {"identity": "operator", "seconds": 60}),
        ("PUT", "/api/opening", {"rights": {"actions": ["query"]}, "seconds": 60}),
    ):
        answer = await limited.ask(method, path, json=body)
        assert answer.status_code == 403, path
    assert "b" not in await admin.clients()


async def test_clients_without_the_right_to_administer_see_nothing(harness, admin):
    other = Administrator(harness, await harness.member("other", Rights(ACTIONS - {"administer"})))
    for method, path in (("GET", "/api/clients"), ("GET", "/api/certificate"), ("DELETE", "/api/clients/operator")):
        assert (await other.ask(method, path)).status_code == 403
    assert (await other.invite("friend")).status_code == 403


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/api/invitations", {"identity": "a", "seconds": 60}, "members"),
        ("/api/invitations", {"identity": "a", "rights": VIEWER, "seconds": 0}, '"seconds"'),
        ("/api/invitations", {"identity": "a", "rights": VIEWER, "seconds": True}, '"seconds"'),
        ("/api/invitations", {"identity": "a", "rights": VIEWER, "seconds": 10**12}, '"seconds"'),
        ("/api/invitations", {"identity": ["a"], "rights": VIEWER, "seconds": 60}, '"identity"'),
        ("/api/invitations", {"identity": "a b", "rights": VIEWER, "seconds": 60}, "identity"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": ["fly"]}, "seconds": 60}, "fly"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": None}, "seconds": 60}, '"actions"'),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "fly": 1}, "seconds": 60}, '"fly"'),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "read": ["no iri"]}, "seconds": 60}, "no iri"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "publish": ["a#"]}, "seconds": 60}, "a#"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "priority": "top"}, "seconds": 60}, "high"),
        ("/api/invitations", {"identity": "a", "rights": [], "seconds": 60}, '"rights"'),
        ("/api/tokens", {"identity": "a"}, "members"),
        ("/api/tokens", [], "members"),
    ],
)
async def test_a_wrong_request_is_refused_with_what_is_wrong(admin, path, body, text):
    answer = await admin.ask("POST", path, json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert text in answer.json()["error_description"]


async def test_unknown_clients_and_other_media_types_are_refused(admin):
    assert (await admin.ask("DELETE", "/api/clients/nobody")).status_code == 404
    assert (await admin.ask("POST", "/api/tokens", json={"identity": "nobody", "seconds": 9})).status_code == 404
    assert (await admin.ask("PUT", "/api/clients/a", content="rights")).status_code == 415
    assert (await admin.ask("PUT", "/api/clients/a%20b", json={"rights": VIEWER})).status_code == 400


async def test_simultaneous_changes_all_happen(admin):
    answers = await asyncio.gather(*(admin.invite(f"sensor-{number}") for number in range(20)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["invitation"]["code"] for answer in answers}) == 20
    assert len(await admin.clients()) == 21


async def test_the_certificate_is_described_and_its_authority_can_be_downloaded(admin):
    found = (await admin.ask("GET", "/api/certificate")).json()
    assert "localhost" in found["names"]
    assert found["not_before"] < found["not_after"]
    assert len(found["sha256"]) == 95
    authority = x509.load_pem_x509_certificate(found["authority"].encode())
    assert authority.subject.rfc4514_string() == found["issuer"]


def rights():
    names = st.sampled_from(["", "urn:a", "urn:b"])
    topics = st.sampled_from(["a/#", "b/+", "c"])

    def limit(each):
        return st.none() | st.frozensets(each, max_size=3)

    return st.builds(
        Rights,
        st.frozensets(st.sampled_from(sorted(ACTIONS))),
        limit(names),
        limit(names),
        limit(topics),
        limit(topics),
        st.sampled_from(PRIORITIES),
    )


@given(rights())
def test_rights_are_read_as_they_are_written(given):
    assert from_json(to_json(given)) == given


@given(rights(), rights())
def test_granted_rights_are_a_part_of_the_granters(wanted, own):
    """Nothing that a client with the granted rights may do is forbidden to the one that granted them."""
    access = _access(own)
    if exceeding(wanted, access):
        return
    granted = _access(wanted)
    assert granted.actions <= access.actions
    for name in ("read", "write", "publish", "receive"):
        limit, of_granter = getattr(granted, name), getattr(access, name)
        assert of_granter is None or (limit is not None and limit <= of_granter)
    assert not exceeding(own, access), "each may grant what it has itself"


def _access(rights: Rights):
    from edge.security.clients import RegisteredClient

    return RegisteredClient("a", "registered", rights, "a", 0).access(None)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each)))
def test_anything_else_is_refused_as_rights(found):
    with pytest.raises(InvalidRequest):
        from_json(found)
    with pytest.raises(InvalidRequest):
        from_json({"actions": [], "read": found if found is not None and found != [] else 1})
