"""Clients as administrators manage them over the HTTP interface."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from edge.gateway.client_management import ClientManagement
from edge.protocol.access import ACTIONS, PRIORITIES
from edge.protocol.errors import Forbidden, InvalidRequest
from edge.protocol.topics import covers
from edge.security.clients import Rights
from edge.security.rights_json import exceeding, from_json, to_json
from edge.security.security import Security
from edge.security.settings import IssuerSettings, SecuritySettings

DAY = 86_400
ROOT = "sepa/gateway"
VIEWER = {"actions": ["query", "subscribe"], "read": ["", "urn:g"], "write": [], "publish": None, "receive": []}


class Administrator:
    """An administrator with all permissions, or with some."""

    def __init__(self, harness, token: str) -> None:
        self.harness = harness
        self.token = token

    async def ask(self, method: str, path: str, headers=None, **options):
        async with self.harness.http() as http:
            headers = {"Authorization": f"Bearer {self.token}", **(headers or {})}
            return await http.request(method, path, headers=headers, **options)

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
    await admin.ask("PUT", "/api/opening", json={"seconds": 0})
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
    # It cannot use the rights of a client that may do more, either.
    for method, path, body in (
        ("DELETE", "/api/clients/operator", None),
        ("PUT", "/api/clients/operator", {"rights": allowed}),
        ("POST", "/api/tokens", {"identity": "operator", "seconds": 60}),
        ("PUT", "/api/opening", {"rights": {"actions": ["query"]}, "seconds": 60}),
        ("PUT", "/api/mappings/m", None),
        ("DELETE", "/api/mappings/m", None),
        ("GET", "/api/newest-message?topic=%23", None),
        ("PUT", "/api/queries/q", None),
        ("DELETE", "/api/queries/q", None),
        ("PUT", "/api/rules/r", None),
        ("DELETE", "/api/rules/r", None),
        ("POST", "/api/rule-test", {"text": "above = 1"}),
        ("GET", "/api/backup", None),
        ("POST", "/api/system-update", None),
        ("POST", "/api/system-update/restart", {"restart": True}),
    ):
        types = {"queries": "application/sparql-query", "update": "application/octet-stream"}
        headers = {"Content-Type": "".join(kind for word, kind in types.items() if word in path)}
        answer = await limited.ask(method, path, **({"json": body} if body else {"headers": headers}))
        assert (answer.status_code, answer.json()["error"]) in [(403, "forbidden"), (404, "not_found")], path
        assert answer.status_code == 403 or "mappings" in path or "queries" in path, path
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
        ("/api/invitations", {"identity": "a b", "rights": VIEWER, "seconds": 60}, "issuer.url"),
        ("/api/invitations", {"identity": "a;b", "rights": VIEWER, "seconds": 60}, "identity"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": ["fly"]}, "seconds": 60}, "fly"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": None}, "seconds": 60}, '"actions"'),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "fly": 1}, "seconds": 60}, '"fly"'),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "read": ["no iri"]}, "seconds": 60}, "no iri"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "publish": ["a#"]}, "seconds": 60}, "a#"),
        ("/api/invitations", {"identity": "a", "rights": {"actions": [], "priority": "top"}, "seconds": 60}, "high"),
        ("/api/invitations", {"identity": "a", "rights": [], "seconds": 60}, '"rights"'),
        (
            "/api/invitations",
            {"identity": "a", "rights": {"actions": [], "publish": ["\ud800"]}, "seconds": 60},
            "publish",
        ),
        ("/api/tokens", {"identity": "a"}, "members"),
        ("/api/tokens", [], "members"),
    ],
)
async def test_a_wrong_request_is_refused_with_the_reason(admin, path, body, text):
    headers = {"Content-Type": "application/json"}
    method = "PUT" if path == "/api/opening" else "POST"
    answer = await admin.ask(method, path, content=json.dumps(body), headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert text in answer.json()["error_description"]


async def test_unknown_clients_and_other_media_types_are_refused(admin):
    answers = [
        await admin.ask("DELETE", "/api/clients/nobody"),
        await admin.ask("POST", "/api/tokens", json={"identity": "nobody", "seconds": 9}),
    ]
    assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(404, "not_found")] * 2
    assert (await admin.ask("PUT", "/api/clients/a", content="rights")).status_code == 415
    assert (await admin.ask("PUT", "/api/clients/a%20b", json={"rights": VIEWER})).status_code == 400


async def test_the_private_topics_of_the_gate_are_not_granted_with_all_topics(harness, admin):
    """Responses to other clients and results over all graphs are there."""
    rights = Rights(frozenset({"administer", "query", "subscribe"}), read=frozenset({""}), write=frozenset())
    limited = Administrator(harness, await harness.member("limited", rights))
    allowed = {"actions": ["query"], "read": [""], "write": [], "publish": [], "receive": ["#", "kitchen/+"]}
    assert (await limited.invite("a", allowed)).status_code == 201
    for private in ("sepa/gateway/#", "sepa/gateway", "sepa/gateway/query/+", "$SYS/#"):
        answer = await limited.invite("b", {**allowed, "receive": [private]})
        assert (answer.status_code, private in answer.json()["error_description"]) == (403, True)
    assert (await admin.invite("b", {**allowed, "receive": ["sepa/gateway/query/+"]})).status_code == 201


async def test_a_low_priority_grants_no_higher_one(harness):
    rights = Rights(frozenset({"administer", "query"}), priority="low")
    limited = Administrator(harness, await harness.member("limited", rights))
    granted = {"actions": ["query"], "publish": [], "receive": [], "priority": "low"}
    assert (await limited.invite("a", granted)).status_code == 201
    answer = await limited.ask(
        "PUT", "/api/clients/limited", json={"rights": {"actions": ["administer"], "publish": []}}
    )
    assert (answer.status_code, "priority" in answer.json()["error_description"]) == (403, True)


async def test_a_token_for_oneself_and_other_states_are_refused_without_a_new_login(harness, admin):
    """401 would tell a program that its token has expired."""
    answers = [await admin.ask("POST", "/api/tokens", json={"identity": "operator", "seconds": 9})]
    await harness.member("lamp")
    answers.append(await admin.invite("lamp"))
    await admin.invite("display")
    answers.append(await admin.ask("POST", "/api/tokens", json={"identity": "display", "seconds": 9}))
    assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [(400, "invalid_request")] * 3


async def test_names_of_unknown_issuers_are_refused(admin):
    for name in ("http:%2F%2Fx%20b", "hall%20display", "x" * 300 + "%20" + "y" * 5000):
        assert (await admin.ask("DELETE", f"/api/clients/{name}")).status_code == 400
    assert list(await admin.clients()) == ["operator"]


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


async def test_clients_of_another_issuer_with_more_rights_are_not_touched(tmp_path):
    """Without an entry of its own, such a client has the permissions of all clients of its issuer."""
    url = "https://auth.example.org"
    issuer = IssuerSettings(url=url, jwks_file=tmp_path / "keys", actions=tuple(sorted(ACTIONS)))
    security = Security(tmp_path, SecuritySettings(), [issuer])
    management = ClientManagement(security, tmp_path, None, ROOT)
    limited = _access(Rights(frozenset({"administer", "query"}), read=frozenset({"urn:g"})))
    for change in (
        lambda: management.revoke(f"{url} chief", limited),
        lambda: management.allow(f"{url} chief", {"actions": ["query"], "read": ["urn:g"]}, limited),
    ):
        with pytest.raises(Forbidden, match="may do more than you"):
            change()
    management.revoke(f"{url} chief", _access(Rights(ACTIONS)))
    assert security.clients.foreign(f"{url} chief").state == "revoked"
    security.close()


def rights():
    names = st.sampled_from(["", "urn:a", "urn:b"])
    topics = st.sampled_from(["#", "+/#", "a/#", "a/1", "b/+", "c", f"{ROOT}/#", f"{ROOT}/query/+", "$SYS/#"])

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
    if exceeding(wanted, access, ROOT):
        return
    granted = _access(wanted)
    assert granted.actions <= access.actions
    limits = [(granted.read, access.read)] if granted.actions else []
    limits += [(granted.write, access.write)] if "update" in granted.actions else []
    assert all(own is None or (limit is not None and limit <= own) for limit, own in limits)
    for name in ("publish", "receive"):
        for topic in TOPICS:
            if _may(getattr(granted, name), topic):
                assert _may(getattr(access, name), topic) or access.everything
    assert not exceeding(own, access, ROOT), "each may grant what it has itself"


TOPICS = ["a", "a/1", "b/2", "c", "d", "sepa/gateway/query/q", "sepa/gateway/response/r", "$SYS/load"]


def _may(filters, topic: str) -> bool:
    """As the broker decides."""
    if filters is None:
        filters = {"#"}
    private = topic.startswith(f"{ROOT}/")
    return any(covers(each, topic) for each in filters if not private or each.startswith(f"{ROOT}/"))


def _access(rights: Rights):
    from edge.security.clients import RegisteredClient

    return RegisteredClient("a", "registered", rights, "a", 0).access(None)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each, min_size=1)))
def test_anything_else_is_refused_as_rights(found):
    for rights in (
        found,
        {"actions": found},
        {"actions": [], "priority": found},
        {"actions": [], "publish": [found, 1]},
    ):
        with pytest.raises(InvalidRequest):
            from_json(rights)
