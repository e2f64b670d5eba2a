"""The embedded broker with security: authentication, and the topics that each client may publish and receive."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import subprocess

import jwt
import pytest
from device import Device, token
from hypothesis import example, given
from hypothesis import strategies as st
from mqtt_harness import ALL, ROOT, port_of, running_gateway
from paho.mqtt.client import MQTTMessageInfo

from edge.gates.mqtt.topics import level
from edge.security.clients import Rights
from tests.support.waiting import wait_for

KITCHEN = Rights(actions=frozenset(), publish=frozenset({"kitchen/#"}), receive=frozenset({"kitchen/+/set"}))
"""A device that may do only this."""


@pytest.fixture
def gateway(tmp_path):
    security = {"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0}
    with running_gateway(tmp_path, security=security) as gateway:
        yield gateway


@pytest.fixture
def port(gateway):
    return port_of(gateway)


@pytest.fixture
def operator(gateway, port):
    """Subscribe to all readings, to see those that the broker forwards."""
    with Device(port, token(gateway, "operator")) as operator:
        assert operator.subscribe("#")
        yield operator


def test_no_client_connects_without_a_token(gateway, port):
    for password, code in ((None, 5), ("", 5), ("nonsense", 4), ("two words", 4)):
        with Device(port, password) as device:
            assert device.code == code, password


def test_forged_expired_and_revoked_tokens_are_refused(gateway, port):
    good = token(gateway, "lamp")
    claims = jwt.decode(good, options={"verify_signature": False})
    header, body, _ = good.split(".")
    forged = [
        jwt.encode(claims, "x" * 32, "HS256", {"kid": jwt.get_unverified_header(good)["kid"]}),
        jwt.encode(claims, None, "none"),
        f"{header}.{body}.",
        good[:-4] + "AAAA",
        token(gateway, "short", seconds=1),
        token(gateway, "revoked"),
    ]
    gateway._security.clients.revoke("revoked")
    with Device(port, forged[4]) as short:
        wait_for(short.gone.is_set)
    for password in forged:
        with Device(port, password) as device:
            assert device.code == 4, password
    for password in (good, f"Bearer {good}"):
        with Device(port, password) as device:
            assert device.inside


def test_a_refused_client_does_not_affect_a_connected_one(gateway, port, operator):
    """The session name, will and connection belong to the client with the valid token."""
    mine = token(gateway, "lamp")
    with Device(port, mine, name="one", will="lamp/gone", clean=False) as lamp:
        assert lamp.subscribe("lamp/set")
        for clean in (True, False):
            with Device(port, "wrong", name="one", will="lamp/open", clean=clean) as thief:
                assert thief.code == 4
            with Device(port, token(gateway, "other"), name="one", clean=clean) as other:
                assert other.inside
        operator.publish("lamp/set", "on")
        assert lamp.hear() == ("lamp/set", "on")
        lamp.client._sock.shutdown(socket.SHUT_RDWR)
        assert operator.heard_before("lamp/gone") == ["lamp/set"]


def test_a_client_that_connects_again_replaces_itself(gateway, port):
    mine = token(gateway, "lamp")
    with Device(port, mine, name="one") as before, Device(port, mine, name="one") as after:
        wait_for(before.gone.is_set)
        assert after.subscribe("a")
        after.publish("a", "still here")
        assert after.hear() == ("a", "still here")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_device_publishes_permitted_topics_only(gateway, port, operator, caplog, qos):
    caplog.set_level(logging.WARNING)
    with Device(port, token(gateway, "kitchen", KITCHEN)) as device:
        for topic in ("hall/a", "kitchens", "/kitchen/a", "kitchen/a", "x/kitchen/a", "", "kitchen"):
            if topic:
                device.publish(topic, qos=qos)
        assert operator.heard_before("kitchen") == ["kitchen/a"]
    (received,) = [record for record in caplog.records if record.message == "broker.refused"]
    assert (received.client, received.topic) == ("kitchen", "hall/a")
    assert gateway._mqtt.broker.refused == 4


def test_a_device_receives_permitted_topics_only(gateway, port, operator):
    for topic in ("kitchen/lamp/set", "kitchen/secret", "hall/lamp/set"):
        operator.publish(topic, "kept", retain=True)
    refused = [
        "#",
        "+/lamp/set",
        "kitchen/#",
        "kitchen/+/+",
        "kitchen/lamp",
        "hall/lamp/set",
        "/",
        "+",
        "kitchen//set/#",
    ]
    refused += ["$SYS/#", "$share/group/#", "$share/group/kitchen/lamp/set", "$share/group/kitchen/secret"]
    with Device(port, token(gateway, "kitchen", KITCHEN)) as device:
        for topic_filter in refused:
            assert not device.subscribe(topic_filter), topic_filter
        assert device.subscribe("kitchen/+/set")
        assert device.came.get(timeout=20) == ("kitchen/lamp/set", "kept", True)
        assert device.subscribe("kitchen//set")
        operator.publish("kitchen/secret", "new")
        operator.publish("kitchen//set", "new")
        assert device.hear() == ("kitchen//set", "new")


def test_permission_for_all_topics_excludes_responses_to_others(gateway, port, operator):
    mine = token(gateway, "mine")
    with Device(port, mine) as client:
        assert client.subscribe(f"{ROOT}/response/mine")
        for topic_filter in (
            f"{ROOT}/response/other",
            f"{ROOT}/response/+",
            f"{ROOT}/#",
            f"{ROOT}/+/other",
            f"{ROOT}/request/mine",
            f"$share/x/{ROOT}/response/other",
        ):
            assert not client.subscribe(topic_filter), topic_filter
        with Device(port, token(gateway, "other")) as other:
            for listens in ("sepa/#", "sepa/+/response/mine", "+/gateway/#"):
                assert other.subscribe(listens)
            client.publish(f"{ROOT}/status/mine", "online", retain=True)
            client.publish(f"{ROOT}/request/mine", f'{{"query": {{"sparql": "{ALL}", "authorization": "{mine}"}}}}')
            assert '"result"' in client.hear()[1]
            client.publish("sepa/end")
            assert other.heard_before("sepa/end") == []
            assert operator.heard_before("sepa/end") == []
        with Device(port, token(gateway, "late")) as late:
            client.publish("sepa/end", retain=True)
            assert late.subscribe("sepa/#")
            assert late.heard_before("sepa/end") == []


def test_no_client_publishes_in_the_name_of_another(gateway, port):
    """A client that may publish everything still cannot fake the gateway's status, its answers or others' requests."""
    with (
        Device(port, token(gateway, "mine")) as client,
        Device(port, token(gateway, "thief")) as thief,
    ):
        assert client.subscribe(f"{ROOT}/response/mine")
        assert client.subscribe(f"{ROOT}/status")
        assert client.subscribe(f"{ROOT}/query/#")
        for topic in ("request/mine", "response/mine", "status", "query/q", "query/q/delta", "status/mine"):
            thief.publish(f"{ROOT}/{topic}", "forged", retain=True)
        client.publish(f"{ROOT}/request/mine", "[]")
        assert client.heard_before(f"{ROOT}/response/mine") == []
        assert gateway._mqtt.broker.refused == 6


@pytest.mark.parametrize(("identity", "name"), [("+", "%2B"), ("house/ann+1@x", "house%2Fann%2B1%40x")])
def test_a_name_that_is_not_a_topic_level_is_encoded(gateway, port, identity, name):
    mine = token(gateway, identity)
    with Device(port, mine) as client:
        for others in ("+", "+/#", "house/ann", "#"):
            assert not client.subscribe(f"{ROOT}/response/{others}"), others
        assert client.subscribe(f"{ROOT}/response/{name}")
        client.publish(f"{ROOT}/request/{name}", f'{{"query": {{"sparql": "ASK {{}}", "authorization": "{mine}"}}}}')
        assert '"boolean":true' in client.hear()[1]


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=6), min_size=2, max_size=2, unique=True))
@example(["a/b", "a%2Fb"])
@example(["a b", "a%20b"])
def test_the_names_of_two_clients_differ_and_each_is_one_level(identities):
    names = [level(identity) for identity in identities]
    assert names[0] != names[1]
    assert all(not set("/+#") & set(name) for name in names)
    assert level("https://auth.example/realms/home lamp(1)") == "https%3A%2F%2Fauth.example%2Frealms%2Fhome%20lamp(1)"
    assert level("ann.2@example.org:x_-") == "ann.2@example.org:x_-"


def test_topics_of_the_gate_are_given_by_filters_that_name_its_root(gateway, port):
    given = Rights(publish=frozenset({f"{ROOT}/request/ann"}), receive=frozenset({f"{ROOT}/response/ann/#", "sepa/#"}))
    with Device(port, token(gateway, "issuer/ann", given)) as ann:
        assert ann.subscribe(f"{ROOT}/response/ann")
        for refused in (f"{ROOT}/response/bob", f"{ROOT}/query/#", f"{ROOT}/#"):
            assert not ann.subscribe(refused), refused
        ann.publish(f"{ROOT}/request/bob", "[]")
        ann.publish(f"{ROOT}/request/ann", "[]")
        assert "error" in ann.hear()[1]
        assert gateway._mqtt.broker.refused == 4


def test_wills_only_where_a_client_may_publish(gateway, port, operator):
    device = token(gateway, "kitchen", KITCHEN)
    for will in ("hall/gone", "kitchen/#", f"{ROOT}/status", f"{ROOT}/status/other", "$SYS/x"):
        with Device(port, device, will=will) as refused:
            assert refused.code == 5, will
    for will in ("kitchen/gone", f"{ROOT}/status/kitchen"):
        with Device(port, device, will=will) as allowed:
            assert allowed.inside, will
            allowed.client._sock.shutdown(socket.SHUT_RDWR)
    assert operator.hear() == ("kitchen/gone", "the last")


def test_a_connection_ends_with_its_token_and_the_will_is_published(gateway, port, operator):
    with Device(port, token(gateway, "lamp", seconds=2), will="lamp/gone") as lamp:
        assert lamp.subscribe("lamp/set")
        wait_for(lamp.gone.is_set)
        assert operator.hear() == ("lamp/gone", "the last")


def test_a_connection_ends_when_the_client_is_revoked_and_has_no_will_any_more(gateway, port, operator):
    with (
        Device(port, token(gateway, "lamp"), will="lamp/open") as lamp,
        Device(port, token(gateway, "other"), will="other/gone") as other,
    ):
        assert lamp.subscribe("a")
        gateway._security.clients.revoke("lamp")
        wait_for(lamp.gone.is_set)
        assert not other.gone.is_set()
        other.client._sock.shutdown(socket.SHUT_RDWR)
        assert operator.heard_before("other/gone") == []


def test_changed_permissions_apply_at_once(gateway, port, operator):
    operator.publish("hall/kept", retain=True)
    mine = token(gateway, "kitchen")
    with Device(port, mine, name="one", clean=False, will="hall/gone") as device:
        assert device.subscribe("hall/#")
        assert device.hear()[0] == "hall/kept"
        gateway._security.clients.allow("kitchen", KITCHEN)
        wait_for(device.gone.is_set)
    with Device(port, mine, name="one", clean=False) as device:
        assert not device.subscribe("hall/#")
        assert device.subscribe("kitchen/+/set")
        operator.publish("hall/kept")
        operator.publish("kitchen/a/set")
        assert device.hear()[0] == "kitchen/a/set"
    assert "hall/gone" not in operator.heard_before("kitchen/a/set")


def test_topics_with_wildcards_and_system_topics_cannot_be_published(gateway, port, operator):
    for topic in ("kitchen/+", "kitchen/#", "#", "$SYS/broker"):
        with Device(port, token(gateway, "lamp"), will="lamp/gone") as lamp:
            connection = lamp.client._sock
            lamp.client._send_publish(1, topic.encode(), b"1", info=MQTTMessageInfo(1))  # publish() would raise
            with contextlib.suppress(OSError):  # the broker may have closed it by now
                connection.shutdown(socket.SHUT_WR)
        assert operator.heard_before("lamp/gone") == [], topic


def test_a_protocol_violation_ends_the_connection(gateway, port, operator):
    with Device(port, token(gateway, "lamp"), will="lamp/gone", name="one") as lamp:
        assert lamp.subscribe("a")
        lamp.client._send_publish(1, b"$SYS/broker", b"1", info=MQTTMessageInfo(1))
        wait_for(lamp.gone.is_set)
    assert operator.hear() == ("lamp/gone", "the last")


def test_the_gateways_own_port_is_for_the_gateway(gateway):
    port = int(gateway._mqtt.broker.own_url.rpartition(":")[2])
    for password in (None, "", "gateway", token(gateway, "lamp")):
        with Device(port, password) as device:
            assert not device.inside


def test_other_versions_and_other_packets_are_refused_at_once(gateway, port):
    five = b"\x10\x11\x00\x04MQTT\x05\xc2\x00\x3c\x00\x00\x01a\x00\x01b"
    for sent, answer in ((five, b"\x20\x02\x00\x01"), (b"\x30\x05\x00\x01a12", b""), (b"\x10\x04\x00\x09MQ", None)):
        with socket.create_connection(("127.0.0.1", port), 20) as client:
            client.sendall(sent)
            if answer is None:
                client.shutdown(socket.SHUT_WR)
            found = b""
            while part := client.recv(100):
                found += part
            assert found == (answer or b"")


def test_a_persistent_session_needs_an_identifier(gateway, port):
    password = token(gateway, "lamp").encode()
    body = b"\x00\x04MQTT\x04\xc0\x00\x3c" + b"\x00\x00" + b"\x00\x01u" + len(password).to_bytes(2) + password
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(b"\x10" + bytes([len(body) % 128 | 128, len(body) // 128]) + body)
        assert client.recv(4) == b"\x20\x02\x00\x02"


def test_tls_port_requires_a_token(gateway):
    secure = int(gateway.endpoints["mqtts"].rpartition(":")[2])
    authority = str(gateway.settings.tls_dir / "ca.pem")
    with Device(secure, "nonsense", ca=authority) as unknown:
        assert unknown.code == 4
    with Device(secure, token(gateway, "lamp"), ca=authority) as lamp:
        assert lamp.subscribe("lamp/#")
        lamp.publish("lamp/on", "1", qos=2)
        assert lamp.hear() == ("lamp/on", "1")
        gateway._security.clients.revoke("lamp")
        wait_for(lamp.gone.is_set)


def test_mosquitto_clients_connect_with_a_token(gateway, port):
    password = token(gateway, "kitchen", KITCHEN)
    secure = gateway.endpoints["mqtts"].rpartition(":")[2]
    authority = str(gateway.settings.tls_dir / "ca.pem")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    plain = ["-p", str(port), "-q", "1", "-m", "21.5"]
    refused = run("mosquitto_pub", *plain, "-t", "kitchen/t")
    assert (refused.returncode, "not authorised" in refused.stderr) == (5, True)
    assert run("mosquitto_pub", *plain, "-t", "kitchen/t", "-u", "kitchen", "-P", password).returncode == 0
    tls = ["-h", "localhost", "-p", secure, "--cafile", authority, "-u", "kitchen", "-P", password]
    assert run("mosquitto_pub", *tls, "-q", "1", "-m", "1", "-t", "kitchen/t").returncode == 0
    denied = run("mosquitto_sub", *tls, "-t", "#", "-W", "5")
    assert "denied" in (denied.stderr + denied.stdout).lower()


@pytest.mark.parametrize("sources", [1, 4])
def test_silent_unauthenticated_connections_block_no_device(gateway, port, monkeypatch, sources):
    """They stop after the TLS handshake: connections from one address, and from several."""
    monkeypatch.setattr("edge.listener.is_local", lambda host: False)
    secure = int(gateway.endpoints["mqtts"].rpartition(":")[2])
    authority = str(gateway.settings.tls_dir / "ca.pem")
    trust = ssl.create_default_context(cafile=authority)
    with contextlib.ExitStack() as stack:
        for number in range(130):
            address = (f"127.0.0.{number % sources + 2}", 0)
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", secure), 20, source_address=address))
            with contextlib.suppress(OSError):
                stack.enter_context(trust.wrap_socket(plain, server_hostname="localhost"))
        with Device(secure, token(gateway, "lamp"), ca=authority) as lamp, Device(port, token(gateway, "fan")) as fan:
            assert lamp.inside
            assert fan.inside
