"""Tokens of another authorization server: a real HTTP server with keys, and a gateway that trusts it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from issuer_server import NAME, Server, as_jwk, pem
from secured import Harness, settings

from edge.gateway import Gateway
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, InvalidClient
from edge.security import certificates, issuer_keys
from edge.security.clients import Rights, foreign
from edge.security.settings import IssuerSettings

QUERY = "SELECT * { ?s ?p ?o }"
INSERT = "INSERT DATA { <urn:t:lamp> <urn:t:is> 'on' }"
OTHERS = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture
def trusting(tmp_path, server, monkeypatch):
    """`async with trusting(leeway=0) as harness`."""
    monkeypatch.setattr(issuer_keys, "_LOOK", 0.05)

    @asynccontextmanager
    async def start(*, wait=True, again=0.05, **chosen):
        monkeypatch.setattr(issuer_keys, "_AGAIN", again)
        keys = {"url": NAME, "jwks_url": server.url, **chosen}
        own = settings(tmp_path / "data").model_copy(update={"issuer": IssuerSettings.model_validate(keys)})
        async with Gateway(own) as gateway:
            harness = Harness(gateway)
            harness.keys = gateway._security.issuers[NAME].keys
            if wait:
                await harness.until(lambda: harness.keys.known)
            yield harness

    return start


@pytest.fixture
async def harness(trusting):
    async with trusting() as harness:
        harness.clients.trust(NAME, "lamp", Rights())
        yield harness


async def received(harness, token):
    answer = await harness.query(token)
    return answer.status_code, answer.json().get("error")


async def test_an_allowed_client_uses_all_services_with_its_token(harness, server):
    token = server.token()
    assert (await harness.update(token, INSERT)).json()["added"] == 1
    async with harness.socket() as socket:
        assert (await socket.ask("subscribe", token, sparql=QUERY))["notification"]["sequence"] == 0
        assert "result" in await socket.ask("query", token, sparql=QUERY)


async def test_clients_that_are_not_allowed_are_refused(harness, server):
    assert await received(harness, server.token(sub="door")) == (401, "invalid_client")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "PS384", "ES384"])
async def test_only_configured_signature_algorithms_are_accepted(trusting, server, algorithm):
    curve = ec.SECP384R1() if algorithm == "ES384" else ec.SECP256R1()
    key = server.add("k", ec.generate_private_key(curve) if algorithm[0] == "E" else OTHERS)
    async with trusting(algorithms=(algorithm,), actions=("query",)) as harness:
        assert await received(harness, server.token("k", key=key, algorithm=algorithm)) == (200, None)
        other = "RS512" if algorithm[0] != "E" else "RS256"
        assert await received(harness, server.token("first", algorithm=other)) == (401, "invalid_grant")


@pytest.mark.parametrize("header", [{"typ": "at+jwt"}, {"typ": "application/AT+JWT"}, {"typ": "JWT"}])
async def test_access_tokens_are_accepted_with_every_type_header(harness, server, header):
    assert await received(harness, server.token(header=header, typ="Bearer")) == (200, None)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def by_hand(server: Server, header: dict[str, object], secret: bytes) -> str:
    claims = jwt.decode(server.token(), options={"verify_signature": False})
    text = ".".join(encoded(json.dumps(part).encode()) for part in ({"typ": "JWT", **header}, claims))
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), hashlib.sha256)) if secret else ''}"


def elliptic(server: Server) -> str:
    """Sign as ES256 with a key that claims to be the RSA key."""
    return server.token(key=ec.generate_private_key(ec.SECP256R1()))


NOW = int(time.time())
FORGERIES = {
    "another key with its kid": lambda s: s.token(key=OTHERS),
    "another key, unknown kid": lambda s: s.token(key=OTHERS, header={"kid": "mine"}),
    "kid is a path": lambda s: s.token(key=OTHERS, header={"kid": "../../../../dev/null"}),
    "kid is a URL": lambda s: s.token(key=OTHERS, header={"kid": "http://127.0.0.1:9/certs"}),
    "no kid, two keys": lambda s: jwt.encode({**claims(s), "jti": "1"}, s.keys["first"], "RS256"),
    "the key comes along (jwk)": lambda s: s.token(key=OTHERS, header={"jwk": as_jwk(OTHERS, "first")}),
    "the key is elsewhere (jku)": lambda s: s.token(key=OTHERS, header={"jku": s.url, "x5u": s.url}),
    "x5c": lambda s: s.token(key=OTHERS, header={"x5c": ["MIIB"]}),
    "critical extension": lambda s: s.token(header={"crit": ["urn:x"], "urn:x": True}),
    "alg none": lambda s: by_hand(s, {"alg": "none", "kid": "first"}, b""),
    "HS256 with the public key": lambda s: by_hand(s, {"alg": "HS256", "kid": "first"}, pem(s.keys["first"])),
    "HS256 with the JWK": lambda s: by_hand(s, {"alg": "HS256", "kid": "first"}, json.dumps(s.jwks()[0]).encode()),
    "HS256 with the symmetric key of the set": lambda s: by_hand(s, {"alg": "HS256", "kid": "oct"}, b"k" * 32),
    "ES256 under the kid of an RSA key": elliptic,
    "RS512": lambda s: s.token(algorithm="RS512"),
    "alg is a list": lambda s: by_hand(s, {"alg": ["RS256"], "kid": "first"}, b"x"),
    "kid is a number": lambda s: by_hand(s, {"alg": "RS256", "kid": 7}, b"x"),
    "another issuer": lambda s: s.token(iss="https://issuer.example/realms/other"),
    "issuer with a slash more": lambda s: s.token(iss=NAME + "/"),
    "no issuer": lambda s: s.token(iss=None),
    "issuer is a list": lambda s: s.token(iss=[NAME]),
    "another audience": lambda s: s.token(aud="account"),
    "no audience": lambda s: s.token(aud=None),
    "no end": lambda s: s.token(exp=None),
    "an end that is no number": lambda s: s.token(exp="tomorrow"),
    "an end that never comes": lambda s: s.token(exp=float("inf")),
    "an end in a thousand years": lambda s: s.token(exp=NOW + 31_536_000_000),
    "an end that is no date": lambda s: s.token(exp=1e300),
    "an end that is a text": lambda s: s.token(exp=str(NOW + 600)),
    "an end that is a truth": lambda s: s.token(exp=True),
    "an ID token": lambda s: s.token(at_hash="x"),
    "an ID token of Keycloak": lambda s: s.token(typ="ID"),
    "a refresh token of Keycloak": lambda s: s.token(typ="Refresh"),
    "a token of another type": lambda s: s.token(header={"typ": "logout+jwt"}),
    "expired": lambda s: s.token(exp=NOW - 60),
    "not yet": lambda s: s.token(nbf=NOW + 86_400),
    "from the future": lambda s: s.token(iat=NOW + 86_400),
    "no subject": lambda s: s.token(sub=None),
    "subject is a number": lambda s: s.token(sub=7),
    "empty subject": lambda s: s.token(sub=""),
    "long subject": lambda s: s.token(sub="x" * 201),
    "subject with a line": lambda s: s.token(sub="lamp\n"),
}


def claims(server):
    return jwt.decode(server.token(), options={"verify_signature": False})


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
async def test_a_forged_token_is_refused(trusting, server):
    server.add("second")
    server.publish({"keys": [*server.jwks(), {"kty": "oct", "kid": "oct", "k": encoded(b"k" * 32)}]})
    async with trusting(actions=("query",)) as harness:
        assert await received(harness, server.token()) == (200, None)
        found = {name: await received(harness, forge(server)) for name, forge in FORGERIES.items()}
    assert found == dict.fromkeys(FORGERIES, (401, "invalid_grant"))


async def test_clocks_may_differ_by_the_configured_leeway(trusting, server):
    now = int(time.time())
    late = {"exp": now - 20}, {"nbf": now + 20}, {"iat": now + 20}
    for leeway, status in ((60, 200), (5, 401)):
        async with trusting(leeway=leeway, actions=("query",)) as harness:
            assert [(await received(harness, server.token(**said)))[0] for said in late] == [status] * 3


async def test_a_local_client_of_the_same_name_is_another_one(trusting, server):
    async with trusting() as harness:
        local = await harness.member("lamp", Rights(frozenset({"update"})))
        assert await received(harness, server.token()) == (401, "invalid_client")
        harness.clients.trust(NAME, "lamp", Rights(frozenset({"query"})))
        assert (await harness.update(server.token(), INSERT)).status_code == 403
        assert (await harness.query(local)).status_code == 403
        harness.clients.revoke("lamp")
        assert (await received(harness, server.token()))[0] == 200
        assert (await harness.update(local, INSERT)).status_code == 401


async def test_its_client_id_as_a_name_does_not_make_it_a_local_client(trusting, server):
    async with trusting(actions=("query",)) as harness:
        harness.clients.allow("lamp", Rights())
        client_id, _ = await harness.register("lamp")
        assert (await received(harness, server.token(sub=client_id)))[0] == 200
        assert (await harness.update(server.token(sub=client_id), INSERT)).status_code == 403


async def test_no_client_registers_with_the_name_of_a_foreign_client(harness, server):
    harness.clients.open(Rights(), 60)
    async with harness.http() as http:
        for name in (foreign(NAME, "lamp"), foreign(NAME, "new")):
            answer = await http.post("/oauth/register", json={"register": {"client_identity": name}})
            assert answer.status_code in (400, 401)


async def test_all_clients_of_an_issuer_can_be_allowed_except_revoked_ones(trusting, server):
    async with trusting(actions=("query", "subscribe"), read=("urn:g:a", "default")) as harness:
        assert await received(harness, server.token(sub="anybody at all")) == (200, None)
        assert (await harness.update(server.token(sub="anybody at all"), INSERT)).status_code == 403
        async with harness.socket() as socket:
            await socket.ask("subscribe", server.token(sub="door"), sparql=QUERY)
            await socket.ask("subscribe", server.token(sub="lamp"), sparql=QUERY)
            harness.clients.revoke(foreign(NAME, "lamp"))
            assert (await socket.receive())["error"] == "invalid_client"
            assert await received(harness, server.token()) == (401, "invalid_client")
            assert await received(harness, server.token(sub="door")) == (200, None)
            assert harness.subscriptions == 1


async def test_changed_permissions_apply_at_once_and_end_subscriptions(harness, server):
    async with harness.socket() as socket:
        await socket.ask("subscribe", server.token(), sparql=QUERY)
        harness.clients.trust(NAME, "lamp", Rights(frozenset({"query"})))
        assert (await socket.receive())["status_code"] == 401
        assert (await socket.ask("subscribe", server.token(), sparql=QUERY))["error"] == "forbidden"


async def test_a_subscription_ends_with_its_token(trusting, server):
    async with trusting(actions=("subscribe",), leeway=0) as harness, harness.socket() as socket:
        await socket.ask("subscribe", server.token(exp=int(time.time()) + 5), sparql=QUERY)
        assert (await socket.receive())["error"] == "invalid_grant"


async def test_another_claim_can_name_the_client(trusting, server):
    async with trusting(claim="azp") as harness:
        harness.clients.trust(NAME, "kitchen", Rights())
        assert await received(harness, server.token(azp="kitchen", sub="f:1")) == (200, None)
        assert await received(harness, server.token(sub="kitchen")) == (401, "invalid_grant")


# Key rotation


async def test_a_new_key_is_fetched_when_a_token_comes_with_it(harness, server):
    token = server.token()
    server.add("second")
    del server.keys["first"]
    renewed = server.token("second")
    assert await received(harness, token) == (200, None)  # nothing has reported yet that its key is gone

    async def counts():
        return (await received(harness, renewed))[0] == 200

    while not await counts():
        pass
    assert await received(harness, token) == (401, "invalid_grant")  # verified before, with a key that is gone


async def test_a_key_that_changed_under_its_id_is_fetched_too(harness, server):
    server.add("first")
    while (await received(harness, server.token()))[0] != 200:
        pass


async def test_a_storm_of_unknown_keys_makes_few_fetches(trusting, server):
    async with trusting(again=1000, actions=("query",)) as harness:
        for number in range(30):
            assert (await received(harness, server.token(key=OTHERS, header={"kid": str(number)})))[0] == 401
        assert server.fetched == 1
        assert await received(harness, server.token()) == (200, None)
    server.fetched = 0
    async with trusting(again=0.2, actions=("query",)) as harness:
        began = time.monotonic()
        while server.fetched < 4:
            assert (await received(harness, server.token(key=OTHERS)))[0] == 401
        assert server.fetched <= 2 + (time.monotonic() - began) / 0.2


async def test_cached_keys_stay_valid_while_the_server_is_down(trusting, server):
    async with trusting(actions=("query",)) as harness:
        token = server.token()
        assert await received(harness, token) == (200, None)
        await harness.until(lambda: harness.keys._cache.exists())
    server.close()
    async with trusting(actions=("query",), wait=False) as harness:
        assert await received(harness, token) == (200, None)
        await harness.until(lambda: "refused" in harness.keys.fault or "Connect" in harness.keys.fault)
        assert await received(harness, token) == (200, None)


async def test_keys_that_are_too_old_are_used_no_more(trusting, server, monkeypatch):
    async with trusting(actions=("query",), keys_for=60) as harness:
        token = server.token()
        assert await received(harness, token) == (200, None)
        server.publish({"keys": []})
        harness.keys.ask()
        await harness.until(lambda: harness.keys.fault)
        monkeypatch.setattr(harness.keys, "_since", time.monotonic() - 61)
        assert await received(harness, server.token(jti="another")) == (503, "not_ready")
        assert (await received(harness, token))[0] == 503


async def test_a_cache_is_written_only_when_keys_change(harness, server):
    await harness.until(lambda: harness.keys._cache.exists())
    before, count = harness.keys._cache.stat(), server.fetched
    harness.keys.ask()
    await harness.until(lambda: server.fetched > count + 1 or harness.keys.ask())
    assert harness.keys._cache.stat().st_mtime_ns == before.st_mtime_ns
    server.add("second")
    harness.keys.ask()
    await harness.until(lambda: "second" in harness.keys._cache.read_text())
    assert '"d"' not in harness.keys._cache.read_text()


def slow(server):
    def reply():
        server.go_on.wait(30)
        return server._keys()

    return reply


BAD = {
    "not JSON": lambda s: (200, {}, b"<html>"),
    "no keys": lambda s: (200, {}, b'{"keys": []}'),
    "deep": lambda s: (200, {}, b"[" * 100_000),
    "not an object": lambda s: (200, {}, b"[1, 2]"),
    "keys that are none": lambda s: (200, {}, json.dumps({"keys": [1, {"kty": 7}, {"kty": "RSA", "n": "!"}]}).encode()),
    "huge": lambda s: (200, {}, json.dumps({"keys": s.jwks(), "x": "x" * 300_000}).encode()),
    "an error": lambda s: (500, {}, b""),
    "another place": lambda s: (302, {"Location": "http://127.0.0.2:9/certs"}, b""),
    "compressed": lambda s: (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b" + bytes(100)),
    "cut": lambda s: (200, {"Content-Length": "100000"}, b'{"keys"'),
}


async def test_an_invalid_key_set_changes_nothing(harness, server):
    for number, (name, bad) in enumerate(BAD.items()):
        server.reply = partial(bad, server)
        harness.keys.ask()
        await harness.until(lambda: harness.keys.fault)
        assert await received(harness, server.token(jti=str(number))) == (200, None), name
        server.reply = None
        await harness.until(lambda: not harness.keys.fault)


async def test_an_unresponsive_server_delays_no_client(harness, server, monkeypatch):
    monkeypatch.setattr(issuer_keys, "_LONGEST", 0.3)
    server.reply = slow(server)
    harness.keys.ask()
    await harness.until(lambda: "did not answer" in harness.keys.fault)
    assert await received(harness, server.token(jti="2")) == (200, None)
    server.go_on.set()
    server.reply = None
    await harness.until(lambda: not harness.keys.fault)


async def test_missing_keys_are_reported(trusting, server):
    server.publish(b"nothing")
    async with trusting(wait=False, actions=("query",)) as harness:
        await harness.until(lambda: "not JSON" in harness.keys.fault)
        answer = await harness.query(server.token())
        assert answer.status_code == 503
        assert "not JSON" in answer.json()["error_description"]


async def test_two_keys_with_one_id_are_both_tried(trusting, server):
    jwks = [
        as_jwk(server.keys["first"], "k"),
        as_jwk(OTHERS, "k"),
        as_jwk(ec.generate_private_key(ec.SECP256R1()), "k"),
    ]
    server.publish({"keys": jwks})
    async with trusting(actions=("query",)) as harness:
        for key in (server.keys["first"], OTHERS):
            assert await received(harness, server.token(key=key, header={"kid": "k"})) == (200, None)


async def test_a_token_without_key_id_is_taken_where_there_is_one_key(trusting, server):
    async with trusting(actions=("query",)) as harness:
        token = jwt.encode(claims(server), server.keys["first"], "RS256")
        assert await received(harness, token) == (200, None)


async def test_keys_can_come_from_a_file_that_changes(trusting, server, tmp_path):
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": server.jwks()}))
    async with trusting(jwks_url="", jwks_file=file, actions=("query",)) as harness:
        assert await received(harness, server.token()) == (200, None)
        server.add("second")
        file.write_text(json.dumps({"keys": server.jwks()}))
        while (await received(harness, server.token("second")))[0] != 200:
            pass
        assert server.fetched == 0


async def test_the_certificate_of_the_issuer_is_checked(trusting, tmp_path):
    files, others = certificates.make(tmp_path / "tls"), certificates.make(tmp_path / "others")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server, files.server_key)
    server = Server(context)
    try:
        for authority in (None, others.authority):
            # Tried once: aborted connections are not part of this test.
            chosen = {"jwks_url": server.url, "ca_file": authority, "actions": ("query",), "wait": False, "again": 60}
            async with trusting(**chosen) as harness:
                await harness.until(lambda: "CERTIFICATE_VERIFY_FAILED" in harness.keys.fault)
                assert (await received(harness, server.token()))[0] == 503
        async with trusting(jwks_url=server.url, ca_file=files.authority, actions=("query",)) as harness:
            assert await received(harness, server.token()) == (200, None)
        assert server.fetched == 1
    finally:
        server.close()


# Delayed updates of its clients


async def test_delayed_updates_of_its_clients_end_with_the_client(harness, server):
    guard, lamp = harness.security.guard, foreign(NAME, "lamp")
    given = guard.access(server.token())
    assert guard.rights(given).client == lamp
    harness.clients.revoke(lamp)
    with pytest.raises(InvalidClient):
        guard.rights(given)
    harness.clients.trust(NAME, "lamp", Rights())  # re-registered, it is not the owner of the update
    with pytest.raises(InvalidClient):
        guard.rights(given)
    assert guard.rights(guard.access(server.token())).client == lamp


async def test_a_client_allowed_later_keeps_its_delayed_updates(trusting, server):
    async with trusting(actions=("update",)) as harness:
        guard = harness.security.guard
        given = guard.access(server.token())
        harness.clients.trust(NAME, "lamp", Rights(write=frozenset({"urn:g"})))
        assert guard.rights(given).write == frozenset({"urn:g"})
        with pytest.raises(InvalidClient):
            guard.rights(replace(given, client="https://another.example lamp"))
        with pytest.raises(EdgeError):
            guard.rights(Access("lamp", registration="lamp"))
