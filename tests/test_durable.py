"""State files outside the databases, with power cuts during their writes."""

import ssl

import pytest

from edge import durable
from edge.endpoints import read as read_endpoints
from edge.endpoints import write as write_endpoints
from edge.last_run import LastRun
from edge.last_run import read as read_last_run
from edge.security.certificates import ensure, make
from tests.support.power_cut import build, power_cuts, power_cuts_after, state


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_a_file_has_its_old_content_or_the_new_one(root):
    file = root / "file"
    durable.write(file, b"old", mode=0o600)
    found = {dict(left)["file"] for left in power_cuts(root, lambda: durable.write(file, b"new"))}
    assert found == {b"old", b"new"}
    assert power_cuts_after(root, lambda: durable.write(file, b"newer")) == [(("file", b"newer"),)]


def test_a_file_that_cannot_be_written_leaves_the_old_one_and_no_draft(root, monkeypatch):
    file = root / "file"
    durable.write(file, b"old")

    def fails(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable.os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        durable.write(file, b"new")
    assert {path.name: path.read_bytes() for path in root.iterdir()} == {"file": b"old"}


def test_a_secret_is_never_readable_by_others(root):
    file = root / "file"
    durable.write(file, b"secret", mode=0o600)
    assert file.stat().st_mode & 0o777 == 0o600


def test_directories_are_as_durable_as_their_files(root):
    def action():
        durable.make_directory(root / "a" / "b", root)
        durable.write(root / "a" / "b" / "file", b"content")

    assert power_cuts_after(root, action) == [(("a", None), ("a/b", None), ("a/b/file", b"content"))]


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (lambda root: write_endpoints(root, {"http": "http://127.0.0.1:8000"}), read_endpoints),
        (lambda root: LastRun.begin(root, "1.0", "boot"), read_last_run),
    ],
    ids=["endpoints", "last_run"],
)
def test_state_files_are_complete_after_a_power_cut(root, write, read):
    write(root)
    cuts = power_cuts(root, lambda: write(root))
    assert len(cuts) > 2
    for left in cuts:
        build(root, left)
        assert read(root)


def test_a_power_cut_between_key_and_certificate_is_repaired_at_the_start(root):
    """They are two files; the gateway generates another pair if they do not match, with the previous names."""
    directory = root / "tls"
    make(directory, ["gateway.example.org"])
    cuts = power_cuts(root, lambda: make(directory, ["gateway.example.org"]))
    halves = 0
    for left in cuts:
        build(root, left)
        before = state(root)
        files = ensure(directory, repair=True)
        halves += state(root) != before
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.server, files.server_key)
        assert (directory / "ca.pem").read_bytes() == dict(left)["tls/ca.pem"]
    assert halves
    assert len(power_cuts_after(root, lambda: make(directory))) == 1


def test_a_first_certificate_is_mended_too(root):
    directory = root / "tls"
    for left in power_cuts(root, lambda: make(directory)):
        build(root, left)
        files = ensure(directory, repair=True)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.server, files.server_key)


def test_key_and_certificate_are_replaced_only_at_the_start(root):
    """Another writer may be between the two files."""
    files = make(root / "tls")
    other = make(root / "other")
    files.server_key.write_bytes(other.server_key.read_bytes())
    before = state(root)
    ensure(root / "tls")
    assert state(root) == before
