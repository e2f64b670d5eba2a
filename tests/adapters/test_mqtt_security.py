"""TLS and credentials for a real Mosquitto, with certificates that the test generates."""

import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from adapter_parts import Gateway

from edge.adapters.mqtt_link import MqttLink
from edge.adapters.paho_client import UnusableFile
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
    file = tmp_path / "nothing.pem"
    with pytest.raises(UnusableFile, match=f"mqtt.ca_file: {file} cannot be used: No such file"):
        Gateway(engine, observations, "mqtts://127.0.0.1", ca_file=file)


def test_an_encrypted_key_is_refused_without_asking_for_its_password(engine, observations, certificates):
    key = certificates / "encrypted.key"
    openssl("pkey", "-in", certificates / "client.key", "-aes256", "-passout", "pass:secret", "-out", key)
    with pytest.raises(UnusableFile, match=r"mqtt\.cert_file"):
        Gateway(engine, observations, "mqtts://127.0.0.1", cert_file=certificates / "client.pem", key_file=key)


def test_a_replaced_certificate_applies_without_a_restart(engine, observations, secure, certificates, tmp_path):
    own = tmp_path / "own.pem"
    shutil.copy(certificates / "server.pem", own)  # signed by nobody the broker's certificate is verified with
    settings = {"cert_file": certificates / "client.pem", "key_file": certificates / "client.key"}
    with Gateway(engine, observations, f"mqtts://127.0.0.1:{secure.port}", ca_file=own, **settings) as gateway:
        wait_for(lambda: gateway.adapter._loop.failures >= 2)
        own.write_text("not a certificate")
        failures = gateway.adapter._loop.failures
        wait_for(lambda: gateway.adapter._loop.failures > failures)
        shutil.copy(certificates / "ca.pem", own)
        wait_for(lambda: gateway.adapter.subscribed)


def test_credentials(engine, observations, tmp_path, caplog):
    caplog.set_level(logging.INFO, "edge.adapters")

    def reasons():
        return [record.reason for record in caplog.records if record.message == "mqtt.down"]

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
        file = tmp_path / "password"
        file.write_text("wrong\n")
        with Gateway(engine, observations, broker.url, username="gateway", password_file=file) as gateway:
            ups: list[object] = []
            link = MqttLink(
                gateway.adapter._settings, "gate", "-gate",
                on_up=ups.append, on_down=lambda: None, on_answer=lambda *_: None,
            )  # fmt: skip
            link.start()
            wait_for(lambda: gateway.adapter._loop.failures >= 2 and link._loop.failures >= 2)
            file.unlink()
            failures = gateway.adapter._loop.failures
            wait_for(lambda: gateway.adapter._loop.failures > failures + 1)
            os.mkfifo(file)  # must not block the connection
            wait_for(lambda: f"mqtt.password_file: {file} is not a regular file" in reasons())
            file.unlink()
            file.write_text("secret\n")
            wait_for(lambda: gateway.adapter.subscribed, what="the corrected password applies")
            wait_for(lambda: ups, what="it applies to other connections, too")
            link.stop(3.0)
        refused = "the broker refused the connection: Not authorized"
        missing = f"mqtt.password_file: {file} cannot be used: No such file or directory"
        assert reasons()[:3] == [refused, refused, missing]
        assert "wrong" not in caplog.text
    finally:
        broker.stop()
