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
from mqtt_harness import ALL, ROOT, MqttClient, connection, house, port_of, sessions, subscriptions, wait_for_sessions

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
        told = client.subscribe(alias="all")
        assert told["addedResults"] == {"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": []}}
        client.send({"update": {"sparql": insert(1), "alias": "write"}})
        messages = [client.receive(), client.receive()]
        assert {"updated": {"alias": "write", "added": 1, "removed": 0}} in messages
        notification = next(message["notification"] for message in messages if "notification" in message)
        assert (notification["sequence"], notification["alias"]) == (1, "all")
        assert client.ask({"query": {"sparql": ALL}})["result"]["results"]["bindings"][0]["s"]["value"] == "urn:a"
        answer = client.ask({"unsubscribe": {"spuid": told["spuid"]}})
        assert answer == {"unsubscribed": {"spuid": told["spuid"], "alias": "all"}}


def test_delayed_updates(gateway):
    with MqttClient(port_of(gateway)) as client:
        message = {"update": {"sparql": insert(1), "delay": "PT1H", "id": "later"}}
        assert client.ask(message)["scheduled"]["id"] == "later"
        assert client.ask({"timers": {}})["timers"][0]["id"] == "later"
        assert client.ask({"cancel": {"id": "later"}}) == {"cancelled": {"id": "later"}}


def test_each_is_told_what_is_its_own(gateway):
    port = port_of(gateway)
    with MqttClient(port, "one") as one, MqttClient(port, "two") as two:
        mine, theirs = one.subscribe(alias="mine"), two.subscribe(alias="theirs")
        refused = one.ask({"unsubscribe": {"spuid": theirs["spuid"]}})
        assert refused["error"] == "not_found"
        two.send({"update": {"sparql": insert(1)}})
        assert one.receive()["notification"]["spuid"] == mine["spuid"]
        told = [two.receive(), two.receive()]
        assert [each["notification"]["spuid"] for each in told if "notification" in each] == [theirs["spuid"]]
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


def test_what_is_wrong_is_answered(gateway):
    with MqttClient(port_of(gateway)) as client:
        for payload, error in WRONG:
            client.send(payload)
            assert (payload[:40], client.receive()["error"]) == (payload[:40], error)
        assert "result" in client.ask({"query": {"sparql": "ASK {}"}})


def test_a_client_whose_connection_breaks_is_forgotten(gateway):
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


def test_a_client_that_says_good_bye_and_comes_again(gateway):
    with MqttClient(port_of(gateway)) as client:
        first = client.subscribe()
        client.say("Offline")
        wait_for_sessions(gateway, 0)
        second = client.subscribe()
        assert second["spuid"] != first["spuid"]
        client.update(insert(1))
        assert subscriptions(gateway) == 1


def test_a_lost_client_resumes_what_asked_for_it(tmp_path, mosquitto):
    query = "SELECT ?o { <urn:a> <urn:b> ?o }"
    with house(tmp_path, mosquitto.url) as gateway, MqttClient(mosquitto.port) as client:
        told = client.subscribe(query, resume=True)
        client.say("offline")
        wait_for_sessions(gateway, 0)
        update = {"update": insert(1, 2)}
        httpx.post(gateway.endpoints["http"] + "/update", data=update).raise_for_status()
        before = connection(gateway)
        mosquitto.stop(kill=True)
        mosquitto.start()
        client.online(besides=before)
        client.send({"subscribe": {"sparql": query, "spuid": told["spuid"], "sequence": 0}})
        missed = client.receive()["notification"]
        assert missed["spuid"] == told["spuid"]
        assert len(missed["addedResults"]["results"]["bindings"]) == 2


def test_a_client_resumes_after_a_restart_of_the_gateway(tmp_path, mosquitto):
    query = "SELECT ?o { <urn:a> <urn:b> ?o }"
    with contextlib.ExitStack() as stack:
        with house(tmp_path, mosquitto.url) as gateway:
            client = stack.enter_context(MqttClient(mosquitto.port))
            told = client.subscribe(query, resume=True)
            before = connection(gateway)
        with house(tmp_path, mosquitto.url) as gateway:
            update = {"update": insert(1, 2)}
            httpx.post(gateway.endpoints["http"] + "/update", data=update).raise_for_status()
            client.online(besides=before)
            client.send({"subscribe": {"sparql": query, "spuid": told["spuid"], "sequence": 0}})
            missed = client.receive()["notification"]
            assert missed["spuid"] == told["spuid"]
            assert len(missed["addedResults"]["results"]["bindings"]) == 2


def test_what_is_retained_is_not_done_again(gateway):
    with MqttClient(port_of(gateway)) as client:
        client.send({"update": {"sparql": insert(1)}}, retain=True)
        assert client.receive()["updated"]["added"] == 1
        client.update("DELETE WHERE { ?s ?p ?o }")
        before = connection(gateway)
        gateway._mqtt.gate._wire.drop("a test")
        client.online(besides=before)
        assert client.ask({"query": {"sparql": "ASK { ?s ?p ?o }"}})["result"]["boolean"] is False


def test_topics_of_the_gate_are_no_readings(gateway):
    with MqttClient(port_of(gateway)) as client, httpx.Client(base_url=gateway.endpoints["http"]) as http:
        client.subscribe()
        client.update(insert(1))
        client.client.publish("somewhere/else", "x", 1).wait_for_publish(10)
        listed = wait_for(lambda: http.get("/api/unmapped").json(), what="the other topic")
        assert [each["topic"] for each in listed] == ["somewhere/else"]


def test_a_client_that_retains_how_it_is(gateway):
    with MqttClient(port_of(gateway), will=True) as client:
        client.client.publish(f"{ROOT}/status/me", "online", 1, retain=True)
        wait_for_sessions(gateway, 1)
        before = connection(gateway)
        gateway._mqtt.gate._wire.drop("a test")
        client.online(besides=before)
        wait_for_sessions(gateway, 1)
        client.client.publish(f"{ROOT}/status/me", "offline", 1, retain=True)
        wait_for_sessions(gateway, 0)


def test_the_status_tells_how_the_gateway_is(gateway):
    with MqttClient(port_of(gateway)) as client:
        client.client.unsubscribe(f"{ROOT}/status")
        client.subscribed.clear()
        client.client.subscribe(f"{ROOT}/status", 1)
        status = client.status("online")
        assert status["health"]["mqtt_gate"] == "connected"
        assert status["health"]["query_faults"] == {}


def test_the_status_is_told_again_and_again(tmp_path):
    with house(tmp_path, mqtt_gate={"status_interval": 0.1}) as gateway, MqttClient(port_of(gateway)) as client:
        first, second = client.status("online"), client.status("online")
        assert first["connection"] == second["connection"]


def test_a_gateway_that_stops_says_so(tmp_path, mosquitto):
    with house(tmp_path, mosquitto.url) as gateway:
        client = MqttClient(mosquitto.port).__enter__()
        client.subscribe()
        before = connection(gateway)
    assert client.status("offline") == {"status": "offline"}
    with house(tmp_path, mosquitto.url):
        client.online(besides=before)
        client.subscribe()
        client.__exit__()


def test_a_gateway_that_is_lost_is_declared_dead(tmp_path, mosquitto):
    with house(tmp_path, mosquitto.url) as gateway, MqttClient(mosquitto.port) as client:
        before = connection(gateway)
        gateway._mqtt.gate._wire._link._client._sock.close()
        assert client.status("offline")
        client.online(besides=before)
        client.subscribe()


def test_a_broker_that_is_killed_and_comes_back(tmp_path, mosquitto):
    with house(tmp_path, mosquitto.url) as gateway, MqttClient(mosquitto.port) as client:
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


def test_who_is_silent_and_has_no_will_is_given_up(tmp_path):
    with house(tmp_path, mqtt_gate={"idle_timeout": 0.5}) as gateway:
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


def told_of(caplog, event):
    return [record for record in caplog.records if record.message == event]


def test_when_there_is_no_room_who_was_silent_the_longest_gives_up_its_place(tmp_path, caplog):
    """It announced a will, and left with a DISCONNECT, after which a broker publishes no will."""
    with house(tmp_path, mqtt_gate={"max_clients": 2, "idle_timeout": 0.3}) as gateway:
        port = port_of(gateway)
        for name in "one", "two":
            with MqttClient(port, name, will=True) as left:
                left.say("online")
                spuid = left.subscribe(resume=True)["spuid"]
        with MqttClient(port, "one") as one, MqttClient(port, "three") as three:
            one.ask({"query": {"sparql": "ASK {}"}})
            wait_for(lambda: "result" in three.ask({"query": {"sparql": "ASK {}"}}), what="a place")
            assert sessions(gateway) == 2
            assert len(told_of(caplog, "mqtt_gate.full")) == 1
            again = three.ask({"subscribe": {"sparql": ALL, "spuid": spuid, "sequence": 0}})
            assert again["notification"]["spuid"] == spuid


def test_who_gives_up_its_place_is_told(tmp_path):
    with house(tmp_path, mqtt_gate={"max_clients": 1, "idle_timeout": 0.3}) as gateway:
        port = port_of(gateway)
        with MqttClient(port, "one", will=True) as one, MqttClient(port, "two") as two:
            one.say("online")
            one.subscribe()
            wait_for(lambda: "result" in two.ask({"query": {"sparql": "ASK {}"}}), what="a place")
            error = one.receive()
            assert (error["error"], "mqtt_gate.max_clients" in error["error_description"]) == ("timeout", True)
            assert subscriptions(gateway) == 0


STRAYS = ["request", "request/", "request/a/b", "requests/x", f"request/{'x' * 101}", "query/a/b", "status/"]


@pytest.mark.parametrize("times", [1, 3])
def test_who_mistypes_a_topic_can_be_helped_by_the_log(tmp_path, caplog, times):
    with house(tmp_path) as gateway, MqttClient(port_of(gateway)) as client:
        for topic in STRAYS * times:
            client.client.publish(f"{ROOT}/{topic}", '{"query": {"sparql": "ASK {}"}}', 1)
        wait_for(lambda: len(told_of(caplog, "mqtt_gate.ignored")) >= len(STRAYS), what="the log lines")
        assert "result" in client.ask({"query": {"sparql": "ASK {}"}})
        client.subscribe(alias="mine")
        told = told_of(caplog, "mqtt_gate.ignored")
        assert sorted(record.topic for record in told) == sorted(f"{ROOT}/{topic}"[:200] for topic in STRAYS)


def test_the_log_does_not_grow_with_what_is_mistyped(caplog):
    strays = UnhandledTopics(ROOT)
    for number in range(1000):
        strays.check(f"{ROOT}/requests/{number}")
    told = told_of(caplog, "mqtt_gate.ignored")
    assert len(told) == 100
    assert told[-1].further_ones == "not logged"


@given(
    st.sampled_from(["status", "request", "response", "query", "delta", "other"]), st.lists(st.text("ab+é", min_size=1))
)
def test_what_the_gate_and_its_clients_use_is_no_stray(kind, levels):
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
def test_how_a_client_says_that_it_leaves(payload, ends):
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


def test_limits(tmp_path):
    with house(tmp_path, mqtt_gate={"max_clients": 1, "max_subscriptions": 1, "max_result": 2000}) as gateway:
        port = port_of(gateway)
        with MqttClient(port, "one") as one, MqttClient(port, "two") as two:
            one.subscribe("SELECT ?o { <urn:a> <urn:b> ?o }", alias="only")
            assert two.ask({"query": {"sparql": "ASK {}"}})["error"] == "too_many_requests"
            refused = one.ask({"subscribe": {"sparql": ALL}})
            assert (refused["error"], "another NAME" in refused["error_description"]) == ("too_many_requests", True)
            one.send({"update": {"sparql": insert(*range(100)), "alias": "write"}})
            told = [one.receive(), one.receive()]
            assert {"updated": {"alias": "write", "added": 100, "removed": 0}} in told
            error = next(each for each in told if "error" in each)
            assert (error["error"], error["alias"]) == ("subscription_failed", "only")
            assert "mqtt_gate.max_result" in error["error_description"]
            assert subscriptions(gateway) == 0
            refused = one.ask({"query": {"sparql": ALL}})
            assert refused["error"] == "result_too_large"
            assert "mqtt_gate.max_result" in refused["error_description"]


def test_more_requests_than_may_wait_are_refused(tmp_path):
    with house(tmp_path, mqtt_gate={"max_pending_requests": 1}) as gateway, MqttClient(port_of(gateway)) as client:
        for value in range(200):
            client.send({"update": {"sparql": insert(value)}})
        answers = [client.receive() for _ in range(200)]
        kinds = {answer.get("error", "updated") for answer in answers}
        assert kinds == {"too_many_requests", "updated"}


def test_a_gate_that_is_switched_off(tmp_path):
    with house(tmp_path, mqtt_gate={"enabled": "never"}) as gateway:
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
def test_another_broker_has_no_gate_unless_it_is_asked_for_and_the_log_says_so(
    tmp_path, mosquitto, caplog, capsys, queries, level
):
    caplog.set_level(logging.INFO)
    directory = tmp_path / "data" / "queries"
    directory.mkdir(parents=True)
    for name in queries:
        (directory / f"{name}.rq").write_text("ASK {}")
    with house(tmp_path, mosquitto.url, mqtt_gate={"enabled": "auto"}) as gateway:
        assert gateway._mqtt.gate is None
        _greet(None, gateway)
        assert "neither clients nor continuous queries" in capsys.readouterr().out
    (told,) = told_of(caplog, "mqtt_gate.closed")
    assert (told.levelno, told.standing_queries) == (level, list(queries))
    caplog.clear()
    with house(tmp_path, mosquitto.url, mqtt_gate={"enabled": "never"}):
        pass
    assert told_of(caplog, "mqtt_gate.closed") == []


def test_with_security_a_request_needs_a_token(tmp_path, mosquitto):
    """Security also enables the gate at a broker that others can reach."""
    security = {"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0}
    with (
        house(tmp_path, mosquitto.url, mqtt_gate={"enabled": "auto"}, security=security) as gateway,
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
