"""Registration: permission, rate limit, and stored data."""

from __future__ import annotations

import hmac
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from edge.security import row_checksums, secret
from edge.security.clients import Rights
from edge.security.store import NAME, Store
from tests.support.clients import clients_of

REFUSED = (401, "unauthorized_client")


@pytest.fixture
def clients(tmp_path):
    with clients_of(tmp_path) as clients:
        yield clients


def asking(identity: object, **members: object) -> dict[str, object]:
    return {"register": {"client_identity": identity, "grant_types": ["client_credentials"], **members}}


async def tried(house, identity: str) -> tuple[int, str]:
    async with house.http() as http:
        answer = await http.post("/oauth/register", json=asking(identity))
    return answer.status_code, answer.json().get("error", "")


async def test_nobody_registers_at_a_new_gateway(house):
    for identity in ("admin", "root", "lamp", "", "a" * 300, "<b>", "'; DROP TABLE client; --"):
        assert await tried(house, identity) == REFUSED


async def test_an_allowed_identity_registers_once(house):
    house.clients.allow("lamp", Rights())
    assert (await tried(house, "lamp"))[0] == 201
    assert await tried(house, "lamp") == REFUSED
    assert await tried(house, "lamp2") == REFUSED


async def test_an_enrolment_code_is_good_once_and_its_identity_does_not_open_the_door(house):
    code = house.clients.invite("lamp", Rights(), 60)
    assert await tried(house, "lamp") == REFUSED
    assert (await tried(house, code))[0] == 201
    assert await tried(house, code) == REFUSED
    assert [client.identity for client in house.clients.all()] == ["lamp"]


async def test_a_code_has_an_end_and_a_newer_one_makes_it_void(house):
    late = house.clients.invite("lamp", Rights(), 0)
    assert await tried(house, late) == REFUSED
    old = house.clients.invite("lamp", Rights(), 60)
    new = house.clients.invite("lamp", Rights(), 60)
    assert await tried(house, old) == REFUSED
    assert (await tried(house, new))[0] == 201


async def test_a_code_ends_when_its_identity_is_revoked(house):
    code = house.clients.invite("lamp", Rights(), 60)
    house.clients.revoke("lamp")
    assert await tried(house, code) == REFUSED


async def test_the_door_is_open_for_a_time_to_who_is_new_only(house):
    house.clients.allow("gone", Rights())
    house.clients.revoke("gone")
    house.clients.invite("invited", Rights(), 60)
    house.clients.open(Rights(actions=frozenset({"query"})), 60)
    assert (await tried(house, "anybody"))[0] == 201
    assert await tried(house, "anybody") == REFUSED
    assert await tried(house, "gone") == REFUSED
    assert await tried(house, "invited") == REFUSED
    assert {c.identity: c.rights.actions for c in house.clients.all()}["anybody"] == {"query"}
    house.clients.open(Rights(), 0)
    assert await tried(house, "late") == REFUSED


async def test_a_window_ends_by_itself(house):
    house.clients.open(Rights(), 1e-6)
    assert await tried(house, "late") == REFUSED


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
async def test_what_is_no_registration_is_told_so(house, body):
    async with house.http() as http:
        answer = await http.post("/oauth/register", content=body)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_a_registration_may_hold_what_sepa_js_puts_in_but_not_a_megabyte(house):
    house.clients.allow("lamp", Rights())
    async with house.http() as http:
        large = asking("lamp", httpsAgent={"x": "y" * 20_000})
        assert (await http.post("/oauth/register", json=large)).status_code == 413
        some = asking("lamp", httpsAgent={"x": "y" * 10_000})
        assert (await http.post("/oauth/register", json=some)).status_code == 201


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_both_forms_of_the_token_are_in_one_answer_and_it_is_the_same_again(house, method):
    house.clients.allow("lamp", Rights())
    credentials = await house.register("lamp")
    async with house.http() as http:
        first = await http.request(method, "/oauth/token", auth=credentials)
        second = await http.request(method, "/oauth/token", auth=credentials)
    assert first.status_code == 201
    assert first.headers["cache-control"] == "no-store"
    body = first.json()
    assert body["token"] == {name: body[name] for name in ("access_token", "token_type", "expires_in")}
    assert (body["token_type"], 3590 < body["expires_in"] <= 3600) == ("bearer", True)
    assert second.json()["access_token"] == body["access_token"]


async def test_a_token_with_less_than_half_of_its_life_left_is_not_given_again(secured):
    async with secured(token_lifetime=2) as house:
        house.clients.allow("lamp", Rights())
        credentials = await house.register("lamp")
        first = await house.token(credentials)
        await house.until(lambda: house.security.tokens.issue(credentials[0]).token != first)


async def test_wrong_secrets_and_unknown_clients_are_told_alike(house):
    house.clients.allow("lamp", Rights())
    client_id, password = await house.register("lamp")
    answers = set()
    async with house.http() as http:
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
async def test_a_token_request_without_credentials_is_an_invalid_request(house, header):
    async with house.http() as http:
        headers = {} if header is None else {"Authorization": header}
        answer = await http.post("/oauth/token", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_request")


async def test_no_secret_and_no_code_is_in_the_data_directory(house, tmp_path):
    house.clients.allow("lamp", Rights())
    _, password = await house.register("lamp")
    code = house.clients.invite("door", Rights(), 60)
    for file in (tmp_path / "data").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert password.encode() not in content, file
            assert code.encode() not in content, file


@pytest.mark.skipif(os.name != "posix", reason="file modes")
async def test_the_file_of_clients_and_the_keys_are_their_owners_alone(house, tmp_path):
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


def test_the_hash_of_no_secret_is_computed_for_an_unknown_client_too(clients, monkeypatch):
    asked = []
    monkeypatch.setattr(secret, "matches", lambda password, kept: asked.append(kept) or True)
    with pytest.raises(Exception, match="not known"):
        clients.authenticate("nobody", "x")
    assert asked == [secret.NOBODY]


def test_codes_and_secrets_do_not_repeat():
    assert len({secret.new_code() for _ in range(1000)} | {secret.new_secret() for _ in range(1000)}) == 2000


async def test_keys_rotate_and_nobody_is_logged_out(house):
    old = await house.member("lamp")
    house.security.keys.rotate()
    new = await house.member("other")
    assert (await house.query(old)).status_code == 200
    assert (await house.query(new)).status_code == 200
    assert len(house.security.keys._public) == 2


async def test_keys_rotate_by_themselves_and_old_ones_are_forgotten(secured, monkeypatch):
    async with secured(token_lifetime=60, key_rotation=60) as house:
        keys = house.security.keys
        began = keys.signing()[0]
        moment = [0.0]
        import edge.security.keys as module

        real = module.time.time_ns
        monkeypatch.setattr(module.time, "time_ns", lambda: real() + int(moment[0] * 1e9))
        monkeypatch.setattr(module.time, "time", lambda: real() / 1e9 + moment[0])
        found = [began]
        for _ in range(4):
            moment[0] += 61
            found.append(keys.signing()[0])
        assert len(set(found)) == 5
        assert set(keys._public) == set(found[-3:]) or set(keys._public) == set(found[-2:])
        assert keys.verifying(began) is None


async def test_tokens_and_clients_survive_a_restart(secured):
    async with secured() as house:
        house.clients.allow("lamp", Rights())
        credentials = await house.register("lamp")
        token = await house.token(credentials)
    async with secured() as house:
        assert (await house.query(token)).status_code == 200
        assert (await house.query(await house.token(credentials))).status_code == 200


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(Exception, match="newer version"):
        Store(tmp_path)


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    (tmp_path / NAME).write_bytes(b"x" * 5000)
    with pytest.raises(Exception, match="cannot be used"):
        Store(tmp_path)
    assert (tmp_path / NAME).read_bytes() == b"x" * 5000


def test_rights_on_topics_go_with_who_registers_while_it_is_open(clients):
    rights = Rights(actions=frozenset(), publish=frozenset({"kitchen/#", "hall"}), receive=frozenset())
    clients.open(rights, 60)
    clients.register("lamp")
    (lamp,) = clients.all()
    assert lamp.rights == rights
    assert (lamp.access(None).publish, lamp.access(None).receive) == (rights.publish, frozenset())


@pytest.mark.parametrize(
    ("version", "missing"), [(1, ("publish", "receive", "priority")), (2, ("priority",)), (3, ()), (4, ())]
)
def test_a_file_of_an_older_version_is_read_on(tmp_path, version, missing):
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


def test_priority_is_kept_and_changes_at_once(clients):
    clients.allow("lamp", Rights(priority="low"))
    clients.register("lamp")
    (lamp,) = clients.registered().values()
    assert lamp.access(None).priority == "low"
    clients.allow("lamp", Rights(priority="high"))
    (lamp,) = clients.registered().values()
    assert lamp.access(None).priority == "high"


async def test_half_a_surrogate_pair_is_no_identity(house):
    async with house.http() as http:
        answer = await http.post("/oauth/register", content=b'{"register": {"client_identity": "\\ud800"}}')
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_an_address_registers_and_asks_for_tokens_so_often_and_is_told_when_it_may_again(secured):
    limits = {"oauth_rate": 0.001, "oauth_burst": 3}
    async with secured(limits=limits) as house, house.http() as busy, house.http() as other:
        answers = [await busy.post("/oauth/token", auth=("x", "y")) for _ in range(2)]
        answers += [await busy.post("/oauth/register", json=asking("x")) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [401] * 3 + [429] * 3
        assert int(answers[-1].headers["Retry-After"]) > 900
        assert "limits.oauth_rate" in answers[-1].json()["error_description"]
        assert (await other.post("/oauth/token", auth=("x", "y"))).status_code == 401
        assert (await busy.get("/health")).status_code == 200


async def test_who_looks_at_a_wrong_path_is_told_where_tokens_are(house):
    async with house.http() as http:
        told = (await http.post("/token")).json()["error_description"]
    assert "/oauth/register, /oauth/token" in told
