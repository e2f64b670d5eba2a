"""The SE protocol over MQTT: real brokers, real clients, a whole gateway."""

import contextlib
import json
import logging
import queue

import httpx
import paho.mqtt.client as paho
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt_harness import (
    ALL,
    ROOT,
    MqttClient,
    connection,
    port_of,
    running_gateway,
    sessions,
    subscriptions,
    wait_for_sessions,
)

from edge.cli.run import _greet
from edge.gates.mqtt.client import state_of
from edge.gates.mqtt.topics import Topics
from edge.gates.mqtt.unhandled_topics import UnhandledTopics
from edge.security.clients import Rights
from tests.support.clients import clients_of
from tests.support.waiting import wait_for

INSERT = "INSERT DATA {{ <urn:a> <urn:b> {} }}"


def insert(*values: int) -> str:
    return " ; ".join(INSERT.format(value) for value in values)


def test_query_update_subscribe_unsubscribe(gateway):
    with MqttClient(port_of(gateway)) as client:
        received = client.subscribe(alias="all")
        assert received["addedResults"] == {"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": []}}
        client.send({"update": {"sparql": insert(1), "alias": "write"}})
        messages = [client.receive(), client.receive()]
        assert {"updated": {"alias": "write", "added": 1, "removed": 0}} in messages
        notification = next(message["notification"] for message in messages if "notification" in message)
        assert (notification["sequence"], notification["alias"]) == (1, "all")
        assert client.ask({"query": {"sparql": ALL}})["result"]["results"]["bindings"][0]["s"]["value"] == "urn:a"
        answer = client.ask({"unsubscribe": {"spuid": received["spuid"]}})
        assert answer == {"unsubscribed": {"spuid": received["spuid"], "alias": "all"}}


def test_delayed_updates(gateway):
    with MqttClient(port_of(gateway)) as client:
        message = {"update": {"sparql": insert(1), "delay": "PT1H", "id": "later"}}
        assert client.ask(message)["scheduled"]["id"] == "later"
        assert client.ask({"timers": {}})["timers"][0]["id"] == "later"
        assert client.ask({"cancel": {"id": "later"}}) == {"cancelled": {"id": "later"}}


def test_each_client_gets_only_its_own_responses(gateway):
    port = port_of(gateway)
    with MqttClient(port, "one") as one, MqttClient(port, "two") as two:
        mine, theirs = one.subscribe(alias="mine"), two.subscribe(alias="theirs")
        refused = one.ask({"unsubscribe": {"spuid": theirs["spuid"]}})
        assert refused["error"] == "not_found"
        two.send({"update": {"sparql": insert(1)}})
        assert one.receive()["notification"]["spuid"] == mine["spuid"]
        received = [two.receive(), two.receive()]
        assert [each["notification"]["spuid"] for each in received if "notification" in each] == [theirs["spuid"]]
        assert sessions(gateway) == subscriptions(gateway) == 2


def test_notifications_come_in_order_and_without_gaps(gateway):
    count = 100
    with MqttClient(port_of(gateway), "listener") as listener, MqttClient(port_of(gateway), "writer") as writer:
        listener.subscribe("SELECT ?o { <urn:a> <urn:b> ?o }")
        for value in range(count):
            writer.send({"update": {"sparql": insert(value)}})
        sequence, values = 0, []
        while len(values) < count:
            notification = listener.receive()["notification"]
            # If the broker is slower than the updates, the gateway merges several.
            sequence += notification.get("merged", 1)
            assert notification["sequence"] == sequence
            values += [int(row["o"]["value"]) for row in notification["addedResults"]["results"]["bindings"]]
        assert sorted(values) == list(range(count))


WRONG = [
    ("", "invalid_request"),
    ("{", "invalid_request"),
    (b"\xff\x00", "invalid_request"),
    ('{"subscribe": {}}', "invalid_request"),
    ('{"query": {"sparql": "SELECT"}}', "parsing_failed"),
    ('{"unsubscribe": {"spuid": "no"}}', "not_found"),
    (json.dumps({"query": {"sparql": "#" * 300_000}}), "payload_too_large"),
]


def test_invalid_requests_get_an_error(gateway):
    with MqttClient(port_of(gateway)) as client:
        for payload, error in WRONG:
            client.send(payload)
            assert (payload[:40], client.receive()["error"]) == (payload[:40], error)
        assert "result" in client.ask({"query": {"sparql": "ASK {}"}})


def test_a_disconnected_client_is_removed(gateway):
    port = port_of(gateway)
    with MqttClient(port, "other") as other:
        other.subscribe()
        client = MqttClient(port, "doomed", will=True).__enter__()
        client.say("online")
        client.subscribe()
        client.subscribe("ASK { <urn:a> ?p ?o }")
        assert subscriptions(gateway) == 3
        client.vanish()
        wait_for(lambda: subscriptions(gateway) == 1, what="the dead client's subscriptions to end")
        assert sessions(gateway) == 1
        other.send({"update": {"sparql": insert(1)}})
        assert {tuple(other.receive()) for _ in range(2)} == {("updated",), ("notification",)}


def test_a_client_ends_its_session_and_returns(gateway):
    with MqttClient(port_of(gateway)) as client:
        first = client.subscribe()
        client.say("Offline")
        wait_for_sessions(gateway, 0)
        second = client.subscribe()
        assert second["spuid"] != first["spuid"]
        client.update(insert(1))
        assert subscriptions(gateway) == 1


def missed(client: MqttClient, query: str, spuid: str, count: int) -> set[str]:
    """Resume a subscription, and return the values of the added rows.

    An update is answered before its subscribers are notified, so a client may resume in between: then the rows come
    with the next notification.
    """
    client.send({"subscribe": {"sparql": query, "spuid": spuid, "sequence": 0}})
    rows: list[dict] = []
    sequence = 0
    while len(rows) < count:
        notification = client.receive()["notification"]
        sequence += bool(notification["addedResults"]["results"]["bindings"])
        assert (notification["spuid"], notification["sequence"]) == (spuid, sequence)
        rows += notification["addedResults"]["results"]["bindings"]
    assert len(rows) == count
    return {row["o"]["value"] for row in rows}


def test_a_lost_client_resumes_its_resumable_subscriptions(tmp_path, mosquitto):
    query = "SELECT ?o { <urn:a> <urn:b> ?o }"
    with running_gateway(tmp_path, mosquitto.url) as gateway, MqttClient(mosquitto.port) as client:
        received = client.subscribe(query, resume=True)
        client.say("offline")
        wait_for_sessions(gateway, 0)
        update = {"update": insert(1, 2)}
        httpx.post(gateway.endpoints["http"] + "/update", data=update).raise_for_status()
        before = connection(gateway)
        mosquitto.stop(kill=True)
        mosquitto.start()
        client.online(besides=before)
        assert missed(client, query, received["spuid"], 2) == {"1", "2"}


def test_a_client_resumes_after_a_restart_of_the_gateway(tmp_path, mosquitto):
    query = "SELECT ?o { <urn:a> <urn:b> ?o }"
    with contextlib.ExitStack() as stack:
        with running_gateway(tmp_path, mosquitto.url) as gateway:
            client = stack.enter_context(MqttClient(mosquitto.port))
            received = client.subscribe(query, resume=True)
            before = connection(gateway)
        with running_gateway(tmp_path, mosquitto.url) as gateway:
            update = {"update": insert(1, 2)}
            httpx.post(gateway.endpoints["http"] + "/update", data=update).raise_for_status()
            client.online(besides=before)
            assert missed(client, query, received["spuid"], 2) == {"1", "2"}


def test_retained_requests_are_not_executed_again(gateway):
    with MqttClient(port_of(gateway)) as client:
        client.send({"update": {"sparql": insert(1)}}, retain=True)
        assert client.receive()["updated"]["added"] == 1
        client.update("DELETE WHERE { ?s ?p ?o }")
        before = connection(gateway)
        gateway._mqtt.gate._wire.drop("a test")
        client.online(besides=before)
        assert client.ask({"query": {"sparql": "ASK { ?s ?p ?o }"}})["result"]["boolean"] is False


def test_topics_of_the_gate_are_not_readings(gateway):
    with MqttClient(port_of(gateway)) as client, httpx.Client(base_url=gateway.endpoints["http"]) as http:
        client.subscribe()
        client.update(insert(1))
        client.client.publish("somewhere/else", "x", 1).wait_for_publish(10)
        listed = wait_for(lambda: http.get("/api/unmapped").json(), what="the other topic")
        assert [each["topic"] for each in listed] == ["somewhere/else"]


def test_a_retained_client_status_is_accepted(gateway):
    with MqttClient(port_of(gateway), will=True) as client:
        client.client.publish(f"{ROOT}/status/me", "online", 1, retain=True)
        wait_for_sessions(gateway, 1)
        before = connection(gateway)
        gateway._mqtt.gate._wire.drop("a test")
        client.online(besides=before)
        wait_for_sessions(gateway, 1)
        client.client.publish(f"{ROOT}/status/me", "offline", 1, retain=True)
        wait_for_sessions(gateway, 0)


def test_the_status_topic_shows_the_state_of_the_gateway(gateway):
    with MqttClient(port_of(gateway)) as client:
        client.client.unsubscribe(f"{ROOT}/status")
        client.subscribed.clear()
        client.client.subscribe(f"{ROOT}/status", 1)
        status = client.status("online")
        assert status["health"]["mqtt_gate"] == "connected"
        assert status["health"]["query_faults"] == {}


def test_the_status_is_published_periodically(tmp_path):
    with (
        running_gateway(tmp_path, mqtt_gate={"status_interval": 0.1}) as gateway,
        MqttClient(port_of(gateway)) as client,
    ):
        first, second = client.status("online"), client.status("online")
        assert first["connection"] == second["connection"]


def test_a_stopping_gateway_publishes_its_status(tmp_path, mosquitto):
    with running_gateway(tmp_path, mosquitto.url) as gateway:
        client = MqttClient(mosquitto.port).__enter__()
        client.subscribe()
        before = connection(gateway)
    assert client.status("offline") == {"status": "offline"}
    with running_gateway(tmp_path, mosquitto.url):
        client.online(besides=before)
        client.subscribe()
        client.__exit__()


def test_a_gateway_that_is_lost_is_declared_dead(tmp_path, mosquitto):
    with running_gateway(tmp_path, mosquitto.url) as gateway, MqttClient(mosquitto.port) as client:
        before = connection(gateway)
        gateway._mqtt.gate._wire._link._client._sock.close()
        assert client.status("offline")
        client.online(besides=before)
        client.subscribe()


def test_a_broker_that_is_killed_and_comes_back(tmp_path, mosquitto):
    with running_gateway(tmp_path, mosquitto.url) as gateway, MqttClient(mosquitto.port) as client:
        client.subscribe()
        before = connection(gateway)
        mosquitto.stop(kill=True)
        wait_for_sessions(gateway, 0)
        assert subscriptions(gateway) == 0
        client.subscribed.clear()
        mosquitto.start()
        assert client.subscribed.wait(20)
        client.online(besides=before)
        client.subscribe()
        client.send({"update": {"sparql": insert(1)}})
        assert {tuple(client.receive()) for _ in range(2)} == {("updated",), ("notification",)}


def test_a_silent_client_without_a_will_is_removed(tmp_path):
    with running_gateway(tmp_path, mqtt_gate={"idle_timeout": 0.5}) as gateway:
        port = port_of(gateway)
        with MqttClient(port, "silent") as silent, MqttClient(port, "willing", will=True) as willing:
            willing.say("online")
            willing.subscribe()
            silent.subscribe()
            error = silent.receive()
            assert (error["error"], "mqtt_gate.idle_timeout" in error["error_description"]) == ("timeout", True)
            assert subscriptions(gateway) == 1
            willing.update(insert(1))
            with pytest.raises(queue.Empty):
                silent.came.get(timeout=0.1)


def records_of(caplog, event):
    return [record for record in caplog.records if record.message == event]


def test_the_longest_silent_client_is_evicted_when_slots_run_out(tmp_path, caplog):
    """It announced a will, and left with a DISCONNECT, after which a broker publishes no will."""
    with running_gateway(tmp_path, mqtt_gate={"max_connections": 2, "idle_timeout": 0.3}) as gateway:
        port = port_of(gateway)
        for name in "one", "two":
            with MqttClient(port, name, will=True) as left:
                left.say("online")
                spuid = left.subscribe(resume=True)["spuid"]
        with MqttClient(port, "one") as one, MqttClient(port, "three") as three:
            one.ask({"query": {"sparql": "ASK {}"}})
            wait_for(lambda: "result" in three.ask({"query": {"sparql": "ASK {}"}}), what="a place")
            assert sessions(gateway) == 2
            assert len(records_of(caplog, "mqtt_gate.full")) == 1
            again = three.ask({"subscribe": {"sparql": ALL, "spuid": spuid, "sequence": 0}})
            assert again["notification"]["spuid"] == spuid


def test_an_evicted_client_is_notified(tmp_path):
    with running_gateway(tmp_path, mqtt_gate={"max_connections": 1, "idle_timeout": 0.3}) as gateway:
        port = port_of(gateway)
        with MqttClient(port, "one", will=True) as one, MqttClient(port, "two") as two:
            one.say("online")
            one.subscribe()
            wait_for(lambda: "result" in two.ask({"query": {"sparql": "ASK {}"}}), what="a place")
            error = one.receive()
            assert (error["error"], "mqtt_gate.max_connections" in error["error_description"]) == ("timeout", True)
            assert subscriptions(gateway) == 0


STRAYS = ["request", "request/", "request/a/b", "requests/x", f"request/{'x' * 101}", "query/a/b", "status/"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_mistyped_topic_is_logged(tmp_path, caplog, times):
    with running_gateway(tmp_path) as gateway, MqttClient(port_of(gateway)) as client:
        for topic in STRAYS * times:
            client.client.publish(f"{ROOT}/{topic}", '{"query": {"sparql": "ASK {}"}}', 1)
        wait_for(lambda: len(records_of(caplog, "mqtt_gate.ignored")) >= len(STRAYS), what="the log lines")
        assert "result" in client.ask({"query": {"sparql": "ASK {}"}})
        client.subscribe(alias="mine")
        received = records_of(caplog, "mqtt_gate.ignored")
        assert sorted(record.topic for record in received) == sorted(f"{ROOT}/{topic}"[:200] for topic in STRAYS)


def test_the_log_of_mistyped_topics_is_bounded(caplog):
    strays = UnhandledTopics(ROOT)
    for number in range(1000):
        strays.check(f"{ROOT}/requests/{number}")
    received = records_of(caplog, "mqtt_gate.ignored")
    assert len(received) == 100
    assert received[-1].further_ones == "not logged"


@given(
    st.sampled_from(["status", "request", "response", "query", "delta", "other"]), st.lists(st.text("ab+é", min_size=1))
)
def test_topics_of_the_gate_are_not_reported_as_unhandled(kind, levels):
    topics, topic = Topics("a/b"), "/".join(["a/b", kind, *levels])
    own = {topics.status}
    for name in levels:
        own |= {topics.request(name), topics.client_status(name), topics.result(name), topics.delta(name)}
    if levels and kind == "response":
        own.add(topic)
    assert topics.includes(topic) == (topic in own)


@pytest.mark.parametrize(
    ("payload", "ends"),
    [
        ("offline", True),
        (" Offline\n", True),
        ('"offline"', True),
        ('{"status": "offline"}', True),
        ('{"status": "OFFLINE", "since": 5}', True),
        ('{"status": "online"}', False),
        ('{"state": "offline"}', False),
        ("{offline", False),
        ('{"status": ["offline"]}', False),
        ("", False),
        (b"\xff", False),
        ("[" * 10_000, False),
    ],
)
def test_a_client_ends_its_session_by_its_status(payload, ends):
    state = state_of(payload if isinstance(payload, bytes) else payload.encode())
    assert (state == "offline") == ends
    assert (state == "online") == (b"online" in (payload if isinstance(payload, bytes) else payload.encode()))


def test_a_farewell_in_json_ends_the_session(gateway):
    with MqttClient(port_of(gateway)) as client:
        client.say('{"status": "online"}')
        wait_for_sessions(gateway, 1)
        client.subscribe()
        client.say('{"status": "offline"}')
        wait_for_sessions(gateway, 0)


def test_sessions_subscriptions_and_results_are_limited(tmp_path):
    with running_gateway(
        tmp_path, mqtt_gate={"max_connections": 1, "max_subscriptions": 1, "max_result": 2000}
    ) as gateway:
        port = port_of(gateway)
        with MqttClient(port, "one") as one, MqttClient(port, "two") as two:
            one.subscribe("SELECT ?o { <urn:a> <urn:b> ?o }", alias="only")
            assert two.ask({"query": {"sparql": "ASK {}"}})["error"] == "too_many_requests"
            refused = one.ask({"subscribe": {"sparql": ALL}})
            assert (refused["error"], "another NAME" in refused["error_description"]) == ("too_many_requests", True)
            one.send({"update": {"sparql": insert(*range(100)), "alias": "write"}})
            received = [one.receive(), one.receive()]
            assert {"updated": {"alias": "write", "added": 100, "removed": 0}} in received
            error = next(each for each in received if "error" in each)
            assert (error["error"], error["alias"]) == ("subscription_failed", "only")
            assert "mqtt_gate.max_result" in error["error_description"]
            assert subscriptions(gateway) == 0
            refused = one.ask({"query": {"sparql": ALL}})
            assert refused["error"] == "result_too_large"
            assert "mqtt_gate.max_result" in refused["error_description"]


def test_more_requests_than_may_wait_are_refused(tmp_path):
    with (
        running_gateway(tmp_path, mqtt_gate={"max_pending_requests": 1}) as gateway,
        MqttClient(port_of(gateway)) as client,
    ):
        for value in range(200):
            client.send({"update": {"sparql": insert(value)}})
        answers = [client.receive() for _ in range(200)]
        kinds = {answer.get("error", "updated") for answer in answers}
        assert kinds == {"too_many_requests", "updated"}


def test_requests_to_a_disabled_gate_are_unmapped_topics(tmp_path):
    with running_gateway(tmp_path, mqtt_gate={"enabled": "never"}) as gateway:
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", port_of(gateway))
        client.loop_start()
        client.publish(f"{ROOT}/request/me", "{}", 1).wait_for_publish(10)
        client.disconnect()
        client.loop_stop()
        with httpx.Client(base_url=gateway.endpoints["http"]) as http:
            listed = wait_for(lambda: http.get("/api/unmapped").json(), what="the topic")
        assert [each["topic"] for each in listed] == [f"{ROOT}/request/me"]
        assert gateway._mqtt.gate is None


@pytest.mark.parametrize(("queries", "level"), [((), logging.INFO), (("lamps",), logging.WARNING)])
def test_an_external_broker_has_no_gate_unless_configured(tmp_path, mosquitto, caplog, capsys, queries, level):
    caplog.set_level(logging.INFO)
    directory = tmp_path / "data" / "queries"
    directory.mkdir(parents=True)
    for name in queries:
        (directory / f"{name}.rq").write_text("ASK {}")
    with running_gateway(tmp_path, mosquitto.url, mqtt_gate={"enabled": "auto"}) as gateway:
        assert gateway._mqtt.gate is None
        _greet(None, gateway)
        assert "neither clients nor continuous queries" in capsys.readouterr().out
    (received,) = records_of(caplog, "mqtt_gate.closed")
    assert (received.levelno, received.standing_queries) == (level, list(queries))
    caplog.clear()
    with running_gateway(tmp_path, mosquitto.url, mqtt_gate={"enabled": "never"}):
        pass
    assert records_of(caplog, "mqtt_gate.closed") == []


def test_with_security_a_request_needs_a_token(tmp_path, mosquitto):
    """Security also enables the gate at a broker that others can reach."""
    security = {"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0}
    with (
        running_gateway(tmp_path, mosquitto.url, mqtt_gate={"enabled": "auto"}, security=security) as gateway,
        MqttClient(mosquitto.port) as client,
        clients_of(gateway.settings.data_dir) as clients,
    ):
        clients.allow("reader", Rights(actions=frozenset({"query", "subscribe"})))
        with httpx.Client(base_url=gateway.endpoints["http"]) as http:
            body = {"register": {"client_identity": "reader", "grant_types": ["client_credentials"]}}
            known = http.post("/oauth/register", json=body).json()["credentials"]
            token = http.post("/oauth/token", auth=(known["client_id"], known["client_secret"])).json()["access_token"]
        mine = {"authorization": f"Bearer {token}"}
        assert client.ask({"subscribe": {"sparql": ALL}})["status_code"] == 401
        assert client.ask({"update": {"sparql": insert(1), **mine}})["status_code"] == 403
        client.subscribe(**mine)
        assert client.ask({"query": {"sparql": "ASK {}", **mine}})["result"]["boolean"] is True
        clients.revoke("reader")
        assert client.receive()["status_code"] == 401
        wait_for(lambda: subscriptions(gateway) == 0, what="the end of the subscription")
