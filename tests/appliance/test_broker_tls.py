"""The broker's copy of the certificate that the gateway renews."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest
from sepa_edge_appliance import broker_tls

from edge.security.certificates import Files, make
from tests.appliance.appliance import own


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Return the files of the gateway."""
    monkeypatch.setattr(broker_tls, "TLS", tmp_path / "tls")
    monkeypatch.setattr(broker_tls, "COPY", tmp_path / "copy")
    monkeypatch.setattr(broker_tls.time, "sleep", lambda _: None)
    monkeypatch.setattr(shutil, "chown", lambda *_: None)
    own(monkeypatch)
    return make(tmp_path / "tls")


def test_a_new_certificate_is_copied_with_its_key_and_the_same_one_is_not(files, tmp_path):
    assert broker_tls.copy()
    assert not broker_tls.copy()
    make(files.directory)
    assert broker_tls.copy()
    assert {file.name: file.read_bytes() for file in (tmp_path / "copy").iterdir()} == {
        "server.pem": files.server.read_bytes(),
        "server.key": files.server_key.read_bytes(),
    }
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "copy").iterdir()} == {0o600}


def test_an_incomplete_pair_is_not_copied(files, monkeypatch):
    broker_tls.copy()
    old = files.server.read_bytes()
    make(files.directory)
    new = files.server.read_bytes()
    files.server.write_bytes(old)
    monkeypatch.setattr(broker_tls.time, "sleep", lambda _: files.server.write_bytes(new))
    assert broker_tls.copy()
    assert (broker_tls.COPY / "server.pem").read_bytes() == new


def test_a_pair_that_does_not_match_is_not_copied(files):
    broker_tls.copy()
    before = (broker_tls.COPY / "server.key").read_bytes()
    old = files.server.read_bytes()
    make(files.directory)
    files.server.write_bytes(old)
    with pytest.raises(ssl.SSLError):
        broker_tls.copy()
    assert (broker_tls.COPY / "server.key").read_bytes() == before
