"""Registration: permission, rate limit, and stored data."""

from __future__ import annotations

import hmac
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from edge.security import row_checksums, secret
from edge.security.client_database import NAME, ClientDatabase
from edge.security.clients import Rights
from edge.security.keys import Keys
from tests.support import signing_keys
from tests.support.clients import clients_of

REFUSED = (401, "unauthorized_client")


@pytest.fixture
def clients(tmp_path):
    with clients_of(tmp_path) as clients:
        yield clients


def asking(identity: object, **members: object) -> dict[str, object]:
    return {"register": {"client_identity": identity, "grant_types": ["client_credentials"], **members}}


async def tried(harness, identity: str) -> tuple[int, str]:
    async with harness.http() as http:
        answer = await http.post("/oauth/register", json=asking(identity))
    return answer.status_code, answer.json().get("error", "")


async def test_no_client_registers_at_a_new_gateway(harness):
    for identity in ("admin", "root", "lamp", "", "a" * 300, "<b>", "'; DROP TABLE client; --"):
        assert await tried(harness, identity) == REFUSED


async def test_an_allowed_identity_registers_once(harness):
    harness.clients.allow("lamp", Rights())
    assert (await tried(harness, "lamp"))[0] == 201
    assert await tried(harness, "lamp") == REFUSED
    assert await tried(harness, "lamp2") == REFUSED


async def test_an_enrolment_code_is_valid_once_and_its_identity_is_not_a_code(harness):
    code = harness.clients.invite("lamp", Rights(), 60)
    assert await tried(harness, "lamp") == REFUSED
    assert (await tried(harness, code))[0] == 201
    assert await tried(harness, code) == REFUSED
    assert [client.identity for client in harness.clients.all()] == ["lamp"]


async def test_a_code_has_an_end_and_a_newer_one_makes_it_void(harness):
    late = harness.clients.invite("lamp", Rights(), 0)
    assert await tried(harness, late) == REFUSED
    old = harness.clients.invite("lamp", Rights(), 60)
    new = harness.clients.invite("lamp", Rights(), 60)
    assert await tried(harness, old) == REFUSED
    assert (await tried(harness, new))[0] == 201


async def test_a_code_ends_when_its_identity_is_revoked(harness):
    code = harness.clients.invite("lamp", Rights(), 60)
    harness.clients.revoke("lamp")
    assert await tried(harness, code) == REFUSED


async def test_open_registration_is_temporary_and_for_new_clients_only(harness):
    harness.clients.allow("gone", Rights())
    harness.clients.revoke("gone")
    harness.clients.invite("invited", Rights(), 60)
    harness.clients.open(Rights(actions=frozenset({"query"})), 60)
    assert (await tried(harness, "anybody"))[0] == 201
    assert await tried(harness, "anybody") == REFUSED
    assert await tried(harness, "gone") == REFUSED
    assert await tried(harness, "invited") == REFUSED
    assert {c.identity: c.rights.actions for c in harness.clients.all()}["anybody"] == {"query"}
    harness.clients.open(Rights(), 0)
    assert await tried(harness, "late") == REFUSED


async def test_a_window_ends_by_itself(harness):
    harness.clients.open(Rights(), 1e-6)
    assert await tried(harness, "late") == REFUSED


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{}",
        '{"register":1}',
        '{"register":{}}',
        '{"register":{"client_identity":1}}',
        '{"register":{"client_identity":"a","grant_types":["password"]}}',
        "[" * 5000,
    ],
)
async def test_an_invalid_registration_is_refused(harness, body):
    async with harness.http() as http:
        answer = await http.post("/oauth/register", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_a_registration_may_contain_the_members_of_sepa_js_but_not_a_megabyte(harness):
    harness.clients.allow("lamp", Rights())
    async with harness.http() as http:
        large = asking("lamp", httpsAgent={"x": "y" * 20_000})
        assert (await http.post("/oauth/register", json=large)).status_code == 413
        some = asking("lamp", httpsAgent={"x": "y" * 10_000})
        assert (await http.post("/oauth/register", json=some)).status_code == 201


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_both_forms_of_the_token_are_in_one_answer_and_it_is_the_same_again(harness, method):
    harness.clients.allow("lamp", Rights())
    credentials = await harness.register("lamp")
    async with harness.http() as http:
        first = await http.request(method, "/oauth/token", auth=credentials)
        second = await http.request(method, "/oauth/token", auth=credentials)
    assert first.status_code == 201
    assert first.headers["cache-control"] == "no-store"
    body = first.json()
    assert body["token"] == {name: body[name] for name in ("access_token", "token_type", "expires_in")}
    assert (body["token_type"], 3590 < body["expires_in"] <= 3600) == ("bearer", True)
    assert second.json()["access_token"] == body["access_token"]


async def test_a_token_with_less_than_half_of_its_life_left_is_not_given_again(secured):
    async with secured(token_lifetime=2) as harness:
        harness.clients.allow("lamp", Rights())
        credentials = await harness.register("lamp")
        first = await harness.token(credentials)
        await harness.until(lambda: harness.security.tokens.issue(credentials[0]).token != first)


async def test_wrong_secrets_and_unknown_clients_get_the_same_error(harness):
    harness.clients.allow("lamp", Rights())
    client_id, password = await harness.register("lamp")
    answers = set()
    async with harness.http() as http:
        for pair in [
            (client_id, "x"),
            (client_id, ""),
            ("x", password),
            ("lamp", password),
            (client_id, password[:-1]),
        ]:
            answer = await http.post("/oauth/token", auth=pair)
            answers.add((answer.status_code, answer.text))
    assert len(answers) == 1
    assert next(iter(answers))[0] == 401


@pytest.mark.parametrize("header", [None, "", "Basic", "Basic !!!", "Basic bm9jb2xvbg==", "Bearer x", "Basic /w=="])
async def test_a_token_request_without_credentials_is_an_invalid_request(harness, header):
    async with harness.http() as http:
        headers = {} if header is None else {"Authorization": header}
        answer = await http.post("/oauth/token", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_request")


async def test_no_secret_and_no_code_is_in_the_data_directory(harness, tmp_path):
    harness.clients.allow("lamp", Rights())
    _, password = await harness.register("lamp")
    code = harness.clients.invite("door", Rights(), 60)
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert password.encode() not in content, file
            assert code.encode() not in content, file


@pytest.mark.skipif(os.name != "posix", reason="file modes")
async def test_the_file_of_clients_and_the_keys_are_their_owners_alone(harness, tmp_path):
    found = [*(tmp_path / "data").glob(f"{NAME}*"), *(tmp_path / "data" / "tls").glob("*.key")]
    assert len(found) >= 3
    for file in found:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_secrets_are_compared_in_constant_time(monkeypatch):
    """By construction: each request costs one scrypt and one `compare_digest` of 32 bytes."""
    compared = []
    monkeypatch.setattr(secret.hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or a == b)
    kept = secret.hashed("right")
    assert secret.matches("right", kept)
    assert not secret.matches("wrong", kept)
    assert not secret.matches("", secret.NOBODY)
    assert compared == [(32, 32)] * 3
    assert hmac is secret.hmac


def test_unknown_client_takes_the_time_of_a_hash(clients, monkeypatch):
    asked = []
    monkeypatch.setattr(secret, "matches", lambda password, kept: asked.append(kept) or True)
    with pytest.raises(Exception, match="not known"):
        clients.authenticate("nobody", "x")
    assert asked == [secret.NOBODY]


def test_codes_and_secrets_come_from_the_operating_system(monkeypatch):
    """Their text is a function of random bytes of the kernel, of at least 128 bits."""
    read: list[int] = []
    urandom = os.urandom

    def noted(count: int) -> bytes:
        read.append(count)
        return urandom(count)

    monkeypatch.setattr("random._urandom", noted)
    monkeypatch.setattr("os.urandom", noted)
    for new in (secret.new_secret, secret.new_code):
        read.clear()
        assert new()
        assert sum(read) >= 16, new


def test_each_gateway_has_its_own_key(tmp_path, monkeypatch):
    """With the real generator: other tests share keys."""
    monkeypatch.setattr("edge.security.keys.generate_private_key", signing_keys.GENERATE)
    texts = []
    for name in ("one", "other"):
        with closing(ClientDatabase(tmp_path / name)) as store:
            texts.append(Keys(store, rotate_after=1, lifetime=1).signing().text)
    assert texts[0] != texts[1]


def test_codes_and_secrets_do_not_repeat():
    assert len({secret.new_code() for _ in range(1000)} | {secret.new_secret() for _ in range(1000)}) == 2000


async def test_keys_rotate_without_ending_sessions(harness):
    old = await harness.member("lamp")
    harness.security.keys.rotate()
    new = await harness.member("other")
    assert (await harness.query(old)).status_code == 200
    assert (await harness.query(new)).status_code == 200
    assert len(harness.security.keys.ring) == 2


async def test_keys_rotate_by_themselves_and_old_ones_are_forgotten(secured, monkeypatch):
    async with secured(token_lifetime=60, key_rotation=60) as harness:
        keys = harness.security.keys
        began = keys.signing().kid
        moment = [0.0]
        import edge.security.keys as module

        real = module.time.time_ns
        monkeypatch.setattr(module.time, "time_ns", lambda: real() + int(moment[0] * 1e9))
        monkeypatch.setattr(module.time, "time", lambda: real() / 1e9 + moment[0])
        found = [began]
        for _ in range(4):
            moment[0] += 61
            found.append(keys.signing().kid)
        assert len(set(found)) == 5
        left = {key.kid for key in keys.ring}
        assert left == set(found[-3:]) or left == set(found[-2:])
        assert keys.verifying(began) is None


async def test_tokens_and_clients_survive_a_restart(secured):
    async with secured() as harness:
        harness.clients.allow("lamp", Rights())
        credentials = await harness.register("lamp")
        token = await harness.token(credentials)
    async with secured() as harness:
        assert (await harness.query(token)).status_code == 200
        assert (await harness.query(await harness.token(credentials))).status_code == 200


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    ClientDatabase(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Exception, match="newer version"):
        ClientDatabase(tmp_path)


def test_a_file_that_is_not_a_database_is_refused_and_not_changed(tmp_path):
    (tmp_path / NAME).write_bytes(b"x" * 5000)
    with pytest.raises(Exception, match="cannot be used"):
        ClientDatabase(tmp_path)
    assert (tmp_path / NAME).read_bytes() == b"x" * 5000


def test_open_registration_grants_the_configured_topics(clients):
    rights = Rights(actions=frozenset(), publish=frozenset({"kitchen/#", "hall"}), receive=frozenset())
    clients.open(rights, 60)
    clients.register("lamp")
    (lamp,) = clients.all()
    assert lamp.rights == rights
    assert (lamp.access(None).publish, lamp.access(None).receive) == (rights.publish, frozenset())


@pytest.mark.parametrize(
    ("version", "missing"), [(1, ("publish", "receive", "priority")), (2, ("priority",)), (3, ()), (4, ())]
)
def test_file_of_an_older_version_is_upgraded(tmp_path, version, missing):
    with clients_of(tmp_path) as clients:
        clients.allow("lamp", Rights(read=frozenset({"http://a/b"})))
        clients.open(Rights(), 60)
    with closing(sqlite3.connect(tmp_path / NAME, isolation_level=None)) as connection:
        for table in row_checksums.COLUMNS:
            connection.execute(f"DROP TRIGGER {table}_inserted")
            connection.execute(f"DROP TRIGGER {table}_updated")
            connection.execute(f"ALTER TABLE {table} DROP COLUMN crc")
        for table in ("client", "opening"):
            for column in missing:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        if version < 4:
            connection.execute("ALTER TABLE client DROP COLUMN token_until")
        connection.execute(f"PRAGMA user_version = {version}")
    with clients_of(tmp_path) as clients:
        clients.register("new")
        found = {client.identity: client for client in clients.all()}
    assert found["new"].access(None).receive is None
    assert (found["lamp"].access(None).publish, found["lamp"].access(None).receive) == (None, frozenset())
    assert {client.rights.priority for client in found.values()} == {"normal"}


def test_priority_is_stored_and_changes_at_once(clients):
    clients.allow("lamp", Rights(priority="low"))
    clients.register("lamp")
    (lamp,) = clients.registered().values()
    assert lamp.access(None).priority == "low"
    clients.allow("lamp", Rights(priority="high"))
    (lamp,) = clients.registered().values()
    assert lamp.access(None).priority == "high"


async def test_unpaired_surrogate_is_not_an_identity(harness):
    async with harness.http() as http:
        answer = await http.post("/oauth/register", content=b'{"register": {"client_identity": "\\ud800"}}')
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_registrations_and_token_requests_of_an_address_are_rate_limited(secured):
    limits = {"oauth_rate": 0.001, "oauth_burst": 3}
    async with secured(limits=limits) as harness, harness.http() as busy, harness.http() as other:
        answers = [await busy.post("/oauth/token", auth=("x", "y")) for _ in range(2)]
        answers += [await busy.post("/oauth/register", json=asking("x")) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 3
        assert int(answers[-1].headers["Retry-After"]) > 900
        assert "limits.oauth_rate" in answers[-1].json()["error_description"]
        assert (await other.post("/oauth/token", auth=("x", "y"))).status_code == 401
        assert (await busy.get("/health")).status_code == 200


async def test_a_wrong_path_gets_the_path_of_tokens(harness):
    async with harness.http() as http:
        received = (await http.post("/token")).json()["error_description"]
    assert "/oauth/register, /oauth/token" in received
