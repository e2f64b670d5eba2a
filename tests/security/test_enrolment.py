"""The enrolment code of a new gateway: who can read it, and its lifetime."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.security.clients import Rights
from edge.security.enrolment import Enrolment, is_near
from tests.support.clients import clients_of


@pytest.fixture
def clients(tmp_path):
    with clients_of(tmp_path) as clients:
        yield clients


@pytest.fixture
def file(tmp_path, clients):
    file = tmp_path / "enrolment"
    file.write_text(clients.invite("operator", Rights(), 600) + "\n")
    return file


def test_the_code_is_shown_for_a_limited_time_until_its_use(clients, file):
    now = 1000.0
    enrolment = Enrolment(clients, file, 900, lambda: now)
    code = file.read_text().strip()
    assert enrolment.to_message("192.168.1.7", "192.168.1.2") == {"state": "open", "code": code}
    assert enrolment.to_message("8.8.4.4", "192.168.1.2") == {"state": "closed"}
    now += 900
    assert enrolment.to_message("192.168.1.7", "192.168.1.2") == {"state": "closed"}
    now -= 900
    clients.register(code)
    assert enrolment.to_message("192.168.1.7", "192.168.1.2") == {"state": "none"}


def test_code_is_never_shown_with_a_duration_of_zero(clients, file):
    assert Enrolment(clients, file, 0, lambda: 0.0).to_message("127.0.0.1", "127.0.0.1") == {"state": "closed"}


@pytest.mark.parametrize("content", [None, "", "ABCDE", b"\xff"])
def test_an_invalid_code_is_not_shown(clients, tmp_path, content):
    file = tmp_path / "other"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert Enrolment(clients, file, 900).to_message("127.0.0.1", "127.0.0.1") == {"state": "none"}


def test_a_pipe_is_not_waited_for(clients, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert Enrolment(clients, tmp_path / "pipe", 900).to_message("127.0.0.1", "127.0.0.1") == {"state": "none"}


def test_an_expired_code_is_not_shown(clients, tmp_path):
    file = tmp_path / "old"
    file.write_text(clients.invite("operator", Rights(), 0))
    assert Enrolment(clients, file, 900).to_message("127.0.0.1", "127.0.0.1") == {"state": "none"}


@pytest.mark.parametrize(
    ("peer", "here", "near"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("10.1.2.3", "10.1.2.1", True),
        ("169.254.3.4", "169.254.1.1", True),
        ("::ffff:192.168.1.9", "::ffff:192.168.1.2", True),
        ("::ffff:8.8.4.4", "::", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("fd00::1", "2001:db8::1", True),
        ("2a00:1:2:3::7", "2a00:1:2:3::1", True),
        ("2a00:1:2:4::7", "2a00:1:2:3::1", False),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.168.1.2", False),
        ("8.8.8.8", "192.168.1.2", False),
        ("", "", False),
        ("testclient", "127.0.0.1", False),
    ],
)
def test_private_addresses_of_the_network_are_near(peer, here, near):
    assert is_near(peer, here) == near


@given(peer=st.ip_addresses(v=4, network="8.0.0.0/8"), here=st.ip_addresses())
def test_public_addresses_are_not_near(peer, here):
    assert not is_near(str(peer), str(here))


async def test_over_http_without_a_token(secured, tmp_path):
    file = tmp_path / "enrolment"
    async with secured(enrolment_file=file) as harness, harness.http("https", verify=False) as http:
        assert (await http.get("/api/enrolment")).json() == {"state": "none"}
        code = harness.clients.invite("operator", Rights(), 600)
        file.write_text(code)
        answer = await http.get("/api/enrolment")
        assert answer.json() == {"state": "open", "code": code}
        assert answer.headers["cache-control"] == "no-store"
        for header in ("Origin", "Forwarded", "X-Forwarded-For", "X-Real-IP", "Via"):
            elsewhere = await http.get("/api/enrolment", headers={header: "https://evil.example"})
            assert code not in elsewhere.text


async def test_a_gateway_without_a_code_reports_the_state_none(harness):
    async with harness.http() as http:
        assert (await http.get("/api/enrolment")).json() == {"state": "none"}
