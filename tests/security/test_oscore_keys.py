"""OSCORE keys of clients: how they are created, stored, exhausted and revoked."""

from __future__ import annotations

import json
import stat

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.cli import edge
from edge.protocol.errors import InvalidClient
from edge.security.clients import NoSuchClient, Rights
from edge.security.security import Security
from edge.security.settings import SecuritySettings
from tests.support.examples import examples


@pytest.fixture
def run(tmp_path):
    def run(*command: str, code: int = 0) -> str:
        result = CliRunner().invoke(edge, ["clients", *command, "--data-dir", str(tmp_path / "data")])
        assert result.exit_code == code, result.output
        return result.output.strip()

    return run


@pytest.fixture
def security(tmp_path):
    security = Security(tmp_path / "data", SecuritySettings())
    yield security
    security.close()


def test_the_command_prints_them_in_the_forms_that_devices_take(run, security):
    run("allow", "lamp")
    text = run("oscore", "lamp")
    assert "AES-CCM-16-64-128" in text
    assert security.contexts.find(b"\1").secret.hex() in text

    lines = dict(line.split(",", 1) for line in run("oscore", "lamp", "--form", "libcoap").splitlines())
    keys = security.contexts.find(b"\2")
    assert lines["master_secret"] == f'hex,"{keys.secret.hex()}"'
    assert lines["master_salt"] == f'hex,"{keys.salt.hex()}"'
    assert (lines["sender_id"], lines["recipient_id"]) == ('hex,"02"', 'hex,"00"')

    made = json.loads(run("oscore", "lamp", "--form", "aiocoap"))
    keys = security.contexts.find(b"\3")
    assert (made["secret_hex"], made["salt_hex"]) == (keys.secret.hex(), keys.salt.hex())
    assert (made["sender-id_hex"], made["recipient-id_hex"]) == ("03", "00")


def test_new_keys_differ_and_revoke_earlier_ones(run, security):
    run("allow", "lamp")
    assert run("oscore", "lamp") != run("oscore", "lamp")
    assert security.contexts.find(b"\1") is None
    assert security.contexts.access(b"\2").client == "lamp"
    run("oscore", "lamp", "--end")
    assert security.contexts.find(b"\2") is None
    assert "no OSCORE keys" in run("oscore", "lamp", "--end", code=1)
    assert "no OSCORE keys" in run("oscore", "nobody", "--end", code=1)


def test_keys_are_created_for_allowed_clients_only(run):
    assert 'Client "nobody" does not exist' in run("oscore", "nobody", code=1)
    run("invite", "later")
    assert "is invited" in run("oscore", "later", code=1)
    run("allow", "gone")
    run("oscore", "gone")
    run("revoke", "gone")
    assert "was revoked" in run("oscore", "gone", code=1)


def test_a_registered_client_keeps_its_tokens(security):
    security.clients.allow("lamp", Rights())
    token = security.token("lamp", None)
    security.share("lamp")
    assert security.guard.access(token).client == "lamp"


def test_keys_follow_the_current_permissions(security):
    security.clients.allow("lamp", Rights())
    kid = security.share("lamp").kid
    assert "update" in security.contexts.access(kid).actions
    security.clients.allow("lamp", Rights(actions=frozenset({"query"})))
    assert security.contexts.access(kid).actions == {"query"}
    assert security.contexts.access(kid).expires is None
    security.clients.revoke("lamp")
    with pytest.raises(InvalidClient):
        security.contexts.access(kid)
    security.clients.allow("lamp", Rights())
    security.token("lamp", None)
    with pytest.raises(InvalidClient):
        security.contexts.access(kid)


def test_keys_of_revoked_clients_are_removed_when_keys_are_created(security):
    for name in ("one", "two"):
        security.clients.allow(name, Rights())
        security.share(name)
    security.clients.revoke("one")
    security.share("two")
    assert [row[0] for row in security._store.rows("SELECT number FROM oscore")] == [3]


def test_keys_are_readable_by_the_owner_only(security, tmp_path):
    security.clients.allow("lamp", Rights())
    secret = security.share("lamp").secret
    holders = [file for file in (tmp_path / "data").iterdir() if secret in file.read_bytes()]
    assert holders
    assert {stat.S_IMODE(file.stat().st_mode) for file in holders} == {0o600}


def test_key_ids_are_not_reused(security):
    """Otherwise a device with old keys would look like another device with an error."""
    seen = set()
    for number in range(300):
        security.clients.allow("lamp", Rights())
        seen.add(security.share("lamp").kid)
        if number % 7 == 0:
            security.unshare("lamp")
    assert len(seen) == 300
    assert b"\0" not in seen
    assert max(map(len, seen)) == 2


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(1, 2000) | st.none(), max_size=12))
def test_sequence_numbers_are_not_reused(tmp_path_factory, story):
    """The gateway is killed, and no number repeats."""
    directory = tmp_path_factory.mktemp("data")
    security = Security(directory, SecuritySettings())
    security.clients.allow("lamp", Rights())
    kid = security.share("lamp").kid
    end = 0
    for count in story:
        if count is None:
            security.close()
            security = Security(directory, SecuritySettings())
            continue
        assert security.contexts.reserve(kid, count) == end
        end += count
    security.close()


def test_revoked_keys_get_no_sequence_numbers(security):
    security.clients.allow("lamp", Rights())
    kid = security.share("lamp").kid
    security.unshare("lamp")
    with pytest.raises(InvalidClient):
        security.contexts.reserve(kid, 1)


def test_only_allowed_clients_get_keys(security):
    with pytest.raises(NoSuchClient):
        security.share("nobody")
