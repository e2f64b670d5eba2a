"""A flipped byte in the file of the clients: that row is named and refused, all others work."""

from __future__ import annotations

import logging
import random
import sqlite3
from contextlib import closing, contextmanager

import jwt
import pytest

from edge.config import Settings
from edge.doctor.checks import files
from edge.doctor.context import DoctorContext, Unasked
from edge.protocol.errors import EdgeError, InvalidClient, UnauthorizedClient
from edge.security import row_checksums
from edge.security.client_database import NAME, StoreRefused
from edge.security.clients import Rights
from edge.security.oscore import leap
from edge.security.security import Security
from edge.security.settings import SecuritySettings


@contextmanager
def opened(directory):
    security = Security(directory, SecuritySettings())
    try:
        yield security
    finally:
        security.close()


@pytest.fixture
def secrets(tmp_path):
    """Return client id and secret by name, of two registered clients with OSCORE keys and an allowed one."""
    with opened(tmp_path) as security:
        found = {}
        for name in ("lamp", "fan"):
            security.clients.allow(name, Rights(read=frozenset({f"http://example.org/graph-of-{name}"})))
            found[name] = security.clients.register(name)
            security.share(name)
        security.clients.allow("new", Rights())
        security.token("lamp", None)
    return found


def flip(path, text, by=b"X"):
    """Change a byte after the last occurrence of a text."""
    content = path.read_bytes()
    at = content.rindex(text) + len(text) - 1
    path.write_bytes(content[:at] + by + content[at + 1 :])


def doctor(directory):
    def ask(_):
        raise Unasked("no gateway")

    around = DoctorContext(Settings(data_dir=directory), ask)
    return [finding for finding in files.check(around) if "clients.sqlite3" in finding.what]


@pytest.mark.parametrize("by", [b"X", b"\xff", b"\0", b'"'])
def test_a_damaged_client_is_named_and_refused_and_the_others_work(tmp_path, secrets, by, caplog):
    assert doctor(tmp_path) == []
    flip(tmp_path / NAME, b"graph-of-lamp", by)
    (finding,) = doctor(tmp_path)
    assert finding.state == "problem"
    assert 'the client "lamp"' in finding.what
    with opened(tmp_path) as security:
        clients = security.clients
        assert {one.identity: one.state for one in clients.all()} == {
            "fan": "registered",
            "lamp": "damaged",
            "new": "allowed",
        }
        assert [one.identity for one in clients.registered().values()] == ["fan"]
        assert clients.authenticate(*secrets["fan"]).identity == "fan"
        with pytest.raises(InvalidClient):
            clients.authenticate(*secrets["lamp"])
        assert [record.client for record in caplog.records if record.message == "security.client_damaged"] == ["lamp"]
        for refused in (
            lambda: clients.allow("lamp", Rights()),
            lambda: clients.invite("lamp", Rights(), 60),
            lambda: security.token("lamp", None),
            lambda: clients.register("lamp"),
        ):
            with pytest.raises(UnauthorizedClient, match=r"damaged|may not register"):
                refused()
        security.keys.rotate(forget=True)  # it writes to all rows: the damage must not become valid
        assert [one.identity for one in clients.registered().values()] == ["fan"]
        clients.revoke("lamp")
        clients.allow("lamp", Rights())
        assert clients.authenticate(*clients.register("lamp")).rights == Rights()
    assert doctor(tmp_path) == []


def test_a_damaged_signing_key_is_named_and_replaced(tmp_path, secrets, caplog):
    with opened(tmp_path) as security:
        before = security.token("fan", None)
    flip(tmp_path / NAME, b"-----BEGIN PRIVATE KEY-----\n", b"*")
    assert "signing key" in doctor(tmp_path)[0].what
    with opened(tmp_path) as security:
        assert security.keys.verifying(jwt.get_unverified_header(before)["kid"]) is None
        token = security.token("fan", None)
        assert security.keys.verifying(jwt.get_unverified_header(token)["kid"]) is not None
        (record,) = [record for record in caplog.records if record.message == "security.key_damaged"][:1]
        assert "rotate-key --now" in record.remedy
        security.keys.rotate(forget=True)
    assert doctor(tmp_path) == []


def test_a_damaged_name_of_the_issuer_is_refused_with_the_remedy(tmp_path, secrets):
    flip(tmp_path / NAME, b"urn:uuid:")
    with pytest.raises(StoreRefused, match=r"name of the issuer .*edge restore"):
        Security(tmp_path, SecuritySettings())


def test_any_flipped_byte_gives_a_clear_error_or_changes_no_client(tmp_path, secrets, caplog):
    caplog.set_level(logging.CRITICAL)
    whole = (tmp_path / NAME).read_bytes()
    with opened(tmp_path) as security:
        known = {one.identity: one for one in security.clients.all()}
    chosen = random.Random(20)
    used = [offset for offset, byte in enumerate(whole) if byte]  # most of the file is empty
    named = 0
    for number in range(60):
        content = bytearray(whole)
        content[chosen.choice(used)] ^= 1 << chosen.randrange(8)
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / NAME).write_bytes(content)
        try:
            with opened(directory) as security:
                for one in security.clients.all():
                    if one.state == "damaged":
                        named += 1
                    else:
                        assert known[one.identity] == one
                for name, (client_id, password) in secrets.items():
                    try:
                        assert security.clients.authenticate(client_id, password).identity == name
                    except InvalidClient:
                        assert name not in {one.identity for one in security.clients.registered().values()}
        except EdgeError:
            continue
    assert named


def test_a_restored_copy_keeps_its_checksums(tmp_path, secrets):
    leap(tmp_path / NAME)
    with closing(sqlite3.connect(tmp_path / NAME)) as connection:
        assert list(row_checksums.damaged_rows(connection)) == []
