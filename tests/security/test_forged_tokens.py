"""Forged tokens at both gates, all of which must be refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import HealthCheck, given
from hypothesis import settings as bounded
from hypothesis import strategies as st
from secured import Harness, settings

from edge.gateway import Gateway
from edge.security.clients import Rights
from tests.support.examples import examples

QUERY = "SELECT * { ?s ?p ?o }"
FOREIGN = generate_private_key(public_exponent=65537, key_size=2048)


class Forger:
    """An attacker who knows everything about a valid token except the private key; with `own`, varies one claim."""

    def __init__(self, harness, token: str) -> None:
        self.harness = harness
        self.token = token
        signing = harness.security.keys.signing()
        self.kid, self.own = signing.kid, signing.private
        self.claims = jwt.decode(token, options={"verify_signature": False})

    def signed(self, key=None, algorithm: str = "RS256", header=None, **claims: object) -> str:
        body = {name: value for name, value in {**self.claims, **claims}.items() if value is not None}
        return jwt.encode(body, key or self.own, algorithm, {"kid": self.kid, **(header or {})})

    @property
    def public_pem(self) -> bytes:
        return self.own.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def hs256(self, key: bytes) -> str:
        """Sign by hand: libraries refuse to sign with a public key."""
        header = {"alg": "HS256", "typ": "JWT", "kid": self.kid}
        text = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(self.claims).encode())}"
        return f"{text}.{encoded(hmac.digest(key, text.encode(), hashlib.sha256))}"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def tampered(token: str, **claims: object) -> str:
    head, body, signature = token.split(".")
    changed = {**json.loads(base64.urlsafe_b64decode(body + "==")), **claims}
    return f"{head}.{encoded(json.dumps(changed).encode())}.{signature}"


NOW = int(time.time())

FORGERIES = {
    "another key with our kid": lambda forger: forger.signed(FOREIGN),
    "another key with a kid of its own": lambda forger: forger.signed(FOREIGN, header={"kid": "mine"}),
    "no kid": lambda forger: jwt.encode(forger.claims, forger.own, "RS256"),
    "kid is a path": lambda forger: forger.signed(FOREIGN, header={"kid": "../../../../dev/null"}),
    "kid is SQL": lambda forger: forger.signed(FOREIGN, header={"kid": "x' UNION SELECT private --"}),
    "the key comes along (jwk)": lambda forger: forger.signed(
        FOREIGN, header={"jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(FOREIGN.public_key()))}
    ),
    "the key is elsewhere (jku)": lambda forger: forger.signed(FOREIGN, header={"jku": "http://127.0.0.1:9/jwks"}),
    "alg none": lambda forger: jwt.encode(forger.claims, None, "none", {"kid": forger.kid}),
    "alg none, with the signature": lambda forger: (
        jwt.encode(forger.claims, None, "none", {"kid": forger.kid}) + forger.token.split(".")[2]
    ),
    "HS256 with the public key": lambda forger: forger.hs256(forger.public_pem),
    "HS256 with nothing": lambda forger: forger.hs256(b""),
    "RS512 with our key": lambda forger: forger.signed(algorithm="RS512"),
    "expired": lambda forger: forger.signed(exp=NOW - 1),
    "not yet": lambda forger: forger.signed(nbf=NOW + 3600),
    "from the future": lambda forger: forger.signed(iat=NOW + 3600),
    "another audience": lambda forger: forger.signed(aud="another-gateway"),
    "another issuer": lambda forger: forger.signed(iss="urn:uuid:" + str(uuid.uuid4())),
    "no audience": lambda forger: forger.signed(aud=None),
    "no issuer": lambda forger: forger.signed(iss=None),
    "no subject": lambda forger: forger.signed(sub=None),
    "no end": lambda forger: forger.signed(exp=None),
    "no id": lambda forger: forger.signed(jti=None),
    "no begin": lambda forger: forger.signed(nbf=None),
    "an end that is no number": lambda forger: forger.signed(exp="tomorrow"),
    "another subject, tampered with": lambda forger: tampered(forger.token, sub="admin"),
    "a later end, tampered with": lambda forger: tampered(forger.token, exp=NOW + 10**6),
    "without its signature": lambda forger: forger.token.rpartition(".")[0] + ".",
    "cut": lambda forger: forger.token[:-5],
    "too long": lambda forger: "a." * 5000 + "a",
}


@pytest.fixture
async def forger(harness):
    return Forger(harness, await harness.member())


async def test_the_forger_can_build_a_valid_token(harness, forger):
    """Otherwise the forgeries might be refused for another reason than the intended one."""
    assert (await harness.query(forger.signed(jti=uuid.uuid4().hex))).status_code == 200


@pytest.mark.parametrize("forgery", FORGERIES)
async def test_a_forged_token_is_refused_by_every_gate(harness, forger, forgery):
    token = FORGERIES[forgery](forger)
    answer = await harness.query(token)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_grant")
    async with harness.socket() as socket:
        received = await socket.ask("subscribe", token, sparql=QUERY)
    assert (received["error"], received["status_code"]) == ("invalid_grant", 401)


async def test_a_token_of_a_client_that_never_was_is_refused(harness, forger):
    answer = await harness.query(forger.signed(sub=uuid.uuid4().hex))
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")


async def test_a_token_of_another_gateway_is_refused(harness, forger, tmp_path):
    async with Gateway(settings(tmp_path / "another")) as gateway:
        assert (await Harness(gateway).query(forger.token)).json()["error"] == "invalid_grant"


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Basic bGFtcDpsYW1w", "Bearer a b", "Digest username=lamp", "Bearer <token>", "Bearer ä"],
)
async def test_a_header_without_a_bearer_token_is_a_missing_token(harness, header):
    async with harness.http() as http:
        answer = await http.get("/query", params={"query": QUERY}, headers={"Authorization": header.encode()})
    assert answer.status_code == 401
    assert answer.json()["error"] in ("invalid_request", "invalid_grant")


async def test_token_without_bearer_and_at_the_top_of_the_message_is_accepted(harness, forger):
    """As sepy sends it."""
    async with harness.socket() as socket:
        received = await socket.ask("query", sparql=QUERY, authorization=forger.token)
        assert "result" in received
        await socket.socket.send(json.dumps({"query": {"sparql": QUERY}, "authorization": forger.token}))
        assert "result" in await socket.receive()


async def test_token_in_the_url_is_ignored(harness, forger):
    async with harness.http() as http:
        answer = await http.get("/query", params={"query": QUERY, "access_token": forger.token})
    assert answer.status_code == 401


@bounded(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
async def test_no_token_with_another_character_is_valid(harness, forger, data):
    position = data.draw(st.integers(0, len(forger.token) - 1))
    # The last character of each part may contain unused bits.
    if position + 1 == len(forger.token) or forger.token[position + 1] == ".":
        return
    character = data.draw(st.characters(codec="utf-8", exclude_characters=[forger.token[position]]))
    changed = forger.token[:position] + character + forger.token[position + 1 :]
    async with harness.socket() as socket:
        assert (await socket.ask("query", changed, sparql=QUERY))["status_code"] == 401


async def test_no_response_contains_a_private_key(harness):
    own = harness.security.keys.signing().private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    harness.clients.allow("lamp", Rights())
    async with harness.http() as http:
        answer = await http.post("/oauth/register", json={"register": {"client_identity": "lamp"}})
    jwk = answer.json()["credentials"]["signature"]
    assert set(jwk) == {"kty", "key_ops", "n", "e", "kid", "use", "alg"}
    assert own.decode().splitlines()[1] not in answer.text


def deep(part: str) -> str:
    """Return a token whose header or payload is nested too deeply."""
    parts = {"head": b'{"alg":"RS256"}', "body": b"{}", part: b'{"iss":' + b"[" * 2500 + b"]" * 2500 + b"}"}
    return f"{encoded(parts['head'])}.{encoded(parts['body'])}.{encoded(b'x')}"


@pytest.mark.parametrize("token", [deep("head"), deep("body"), f"{encoded(b'{' + b'9' * 5000)}.e30.eA", "a.b.c"])
async def test_an_invalid_token_gets_a_message_about_tokens(harness, token):
    answer = await harness.query(token)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_grant")
    received = answer.json()["error_description"]
    assert "recursion" not in received
    assert "sys." not in received
