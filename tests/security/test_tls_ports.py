"""HTTPS and WSS: certificate verification, refusal of old TLS, and renewed certificates."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from secured import settings
from websockets.asyncio.client import connect

from edge.gateway import Gateway, StartError
from edge.security import certificates
from edge.security.certificates import CertificateRefused
from edge.security.tls import Tls


def trusting(harness) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=harness.gateway.settings.tls_dir / "ca.pem")


async def test_https_and_wss_serve_the_secure_and_the_plain_paths(harness):
    token = await harness.member()
    bearer = {"Authorization": f"Bearer {token}"}
    context = trusting(harness)
    async with harness.http("https", verify=context) as http:
        for path in ("/query", "/secure/query", "/sparql"):
            assert (await http.get(path, params={"query": "ASK {}"}, headers=bearer)).status_code == 200
        assert (await http.get("/query", params={"query": "ASK {}"})).status_code == 401
    url = harness.gateway.endpoints["wss"]
    assert url.endswith("/secure/subscribe")
    for path in (url, url.replace("/secure", "")):
        async with connect(path, ssl=context) as socket_:
            await socket_.send(f'{{"query":{{"sparql":"ASK {{}}","authorization":"Bearer {token}"}}}}')
            assert "result" in await socket_.recv()


async def test_a_client_without_the_authority_does_not_connect(harness):
    with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
        async with harness.http("https", verify=ssl.create_default_context()) as http:
            await http.get("/health")


def shaken_hands(port: int, context: ssl.SSLContext) -> tuple[str, str]:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain, context.wrap_socket(plain) as secure:
        cipher = secure.cipher()
        assert cipher is not None
        return secure.version() or "", cipher[0]


def client(version: ssl.TLSVersion, ciphers: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(ciphers)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    return context


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_tls_and_weak_suites_are_refused(harness):
    for service in ("https", "wss"):
        port = int(harness.gateway.endpoints[service].rpartition(":")[2].partition("/")[0])
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises(OSError):  # noqa: PT011 - an alert, or the connection is reset
                await asyncio.to_thread(shaken_hands, port, client(version))
        for weak in ("AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA", "NULL:aNULL"):
            context = client(ssl.TLSVersion.TLSv1_2, f"{weak}:@SECLEVEL=0")
            with pytest.raises(OSError):  # noqa: PT011
                await asyncio.to_thread(shaken_hands, port, context)
        version, cipher = await asyncio.to_thread(shaken_hands, port, client(ssl.TLSVersion.TLSv1_2))
        assert version == "TLSv1.2"
        assert cipher.startswith("ECDHE-") and ("GCM" in cipher or "CHACHA20" in cipher)  # noqa: PT018
        assert (await asyncio.to_thread(shaken_hands, port, client(ssl.TLSVersion.TLSv1_3)))[0] == "TLSv1.3"


def served(context: ssl.SSLContext, authority) -> bytes:
    """Return the certificate that a server with this context presents."""
    trust = ssl.create_default_context(cafile=authority)
    server_in, server_out, client_in, client_out = (ssl.MemoryBIO() for _ in range(4))
    server = context.wrap_bio(server_in, server_out, server_side=True)
    client = trust.wrap_bio(client_in, client_out, server_hostname="localhost")
    for _ in range(10):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
            client_in.write(server_out.read())
            server_in.write(client_out.read())
    return client.getpeercert(binary_form=True) or b""


def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(tmp_path):
    tls = Tls(tmp_path, None, None)
    files = certificates.Files(tmp_path)
    first = served(tls.context, files.authority)
    assert not tls.reload()
    certificates.make(tmp_path, ["other.example.org"])
    assert tls.reload()
    second = served(tls.context, files.authority)
    assert second != first
    files.server.write_text("-----BEGIN CERTIFICATE-----\nnonsense")
    with pytest.raises(CertificateRefused):
        tls.reload()
    assert served(tls.context, files.authority) == second


def test_a_certificate_whose_key_is_another_is_refused_and_the_old_one_stays(tmp_path):
    mine, other = certificates.make(tmp_path / "a"), certificates.make(tmp_path / "b")
    given, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(mine.server, given)
    shutil.copy(mine.server_key, key)
    tls = Tls(tmp_path / "none", given, key)
    before = served(tls.context, mine.authority)
    shutil.copy(other.server, given)
    with pytest.raises(CertificateRefused):
        tls.reload()
    assert served(tls.context, mine.authority) == before
    assert not (tmp_path / "none").exists()


async def test_addresses_name_the_gateway_as_its_certificate_does(tmp_path):
    data_dir = tmp_path / "data"
    for host, given, received in (
        ("0.0.0.0", [], "localhost"),
        ("0.0.0.0", ["gateway.example.org", "192.168.1.5"], "gateway.example.org"),
        ("127.0.0.1", [], "127.0.0.1"),
    ):
        if given:
            certificates.make(data_dir / "tls", given)
        async with Gateway(settings(data_dir, mqtt={"port": 0}, host=host)) as gateway:
            assert {urlsplit(gateway.endpoints[name]).hostname for name in ("https", "wss", "mqtts")} == {received}


def test_our_own_certificate_is_renewed_in_time_and_the_authority_stays(tmp_path, monkeypatch):
    tls = Tls(tmp_path, None, None)
    files = certificates.Files(tmp_path)
    ended, authority = certificates.ends(files.server), files.authority.read_bytes()
    later = datetime.now(UTC) + timedelta(days=380)

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return later

    monkeypatch.setattr(certificates, "datetime", Later)
    assert tls.reload()
    assert certificates.ends(files.server) > ended
    assert files.authority.read_bytes() == authority


def test_certificates_made_with_an_unset_clock_are_valid(tmp_path, monkeypatch):
    class Past(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(1970, 1, 1, 0, 5, tzinfo=tz)

    monkeypatch.setattr(certificates, "datetime", Past)
    files = certificates.make(tmp_path)
    assert certificates.ends(files.authority) > datetime.now(UTC)


@pytest.mark.parametrize("files", [{"cert_file": "none.pem"}, {"cert_file": "text.pem"}])
async def test_an_invalid_certificate_ends_the_start_with_one_sentence(tmp_path, files):
    (tmp_path / "text.pem").write_text("hello")
    given = {name: tmp_path / file for name, file in files.items()}
    with pytest.raises(StartError, match="cannot be used"):
        async with Gateway(settings(tmp_path / "data", **given)):
            raise AssertionError


async def test_an_encrypted_key_does_not_ask_for_its_password(tmp_path):
    files = certificates.make(tmp_path)
    key = generate_private_key(SECP256R1())
    files.server_key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password"))
    )
    with pytest.raises(CertificateRefused):
        Tls(tmp_path / "none", files.server, files.server_key)
