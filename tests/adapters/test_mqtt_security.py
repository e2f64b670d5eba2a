"""TLS and credentials for a real Mosquitto, with certificates that the test generates."""

import logging
import shutil
import subprocess
from pathlib import Path

import pytest
from adapter_parts import Gateway

from tests.support.processes import Mosquitto
from tests.support.waiting import wait_for


def openssl(*words: object) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here; install the package openssl")
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def certificates(tmp_path) -> Path:
    """Return a CA, a server certificate for 127.0.0.1, and a client certificate."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj",
            "/CN=Test authority", "-keyout", folder / "ca.key", "-out", folder / "ca.pem")  # fmt: skip
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                "-CAcreateserial", "-days", 2, "-extfile", extensions, "-out", folder / f"{name}.pem")  # fmt: skip
    return folder


@pytest.fixture
def secure(tmp_path, certificates):
    broker = Mosquitto(
        tmp_path / "broker",
        f"cafile {certificates}/ca.pem\ncertfile {certificates}/server.pem\nkeyfile {certificates}/server.key\n"
        "require_certificate true\n",
    )
    broker.start()
    yield broker
    broker.stop()


def test_tls_with_a_client_certificate(engine, observations, secure, certificates):
    settings = {
        "ca_file": certificates / "ca.pem",
        "cert_file": certificates / "client.pem",
        "key_file": certificates / "client.key",
    }
    with Gateway(engine, observations, f"mqtts://127.0.0.1:{secure.port}", **settings).connected():
        pass


def test_a_broker_of_an_unknown_authority_is_not_trusted(engine, observations, secure, caplog):
    caplog.set_level(logging.INFO, "edge.adapters")
    with Gateway(engine, observations, f"mqtts://127.0.0.1:{secure.port}") as gateway:
        wait_for(lambda: gateway.adapter._loop.failures >= 2)
    [down] = [record for record in caplog.records if record.message == "mqtt.down"]
    assert "certificate verify failed" in down.reason


def test_a_missing_certificate_file_is_refused_at_once(engine, observations, tmp_path):
    with pytest.raises(FileNotFoundError):
        Gateway(engine, observations, "mqtts://127.0.0.1", ca_file=tmp_path / "nothing.pem")


def test_credentials(engine, observations, tmp_path, caplog):
    caplog.set_level(logging.INFO, "edge.adapters")
    tool = shutil.which("mosquitto_passwd")
    if tool is None:
        pytest.skip("no mosquitto_passwd here; install the package mosquitto")
    passwords = tmp_path / "passwords"
    subprocess.run([tool, "-c", "-b", passwords, "gateway", "secret"], check=True, capture_output=True)
    broker = Mosquitto(tmp_path / "broker", f"password_file {passwords}", anonymous=False)
    broker.start()
    try:
        with Gateway(engine, observations, broker.url, username="gateway", password="secret").connected():
            pass
        with Gateway(engine, observations, broker.url, username="gateway", password="wrong") as gateway:
            wait_for(lambda: gateway.adapter._loop.failures >= 2)
        [down] = [record for record in caplog.records if record.message == "mqtt.down"]
        assert "Not authorized" in down.reason
        assert "wrong" not in caplog.text
    finally:
        broker.stop()
