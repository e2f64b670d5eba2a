"""Reports of registered queries over MQTT: requests `follow` and `unfollow`."""

from __future__ import annotations

import json
from contextlib import contextmanager
from unittest.mock import ANY
from urllib.parse import quote

import httpx
import pytest
from device import Device, token
from mqtt_harness import ROOT, MqttClient, port_of, running_gateway, sessions, subscriptions

from edge.security.clients import Rights
from tests.support.waiting import wait_for

SELECT = """REGISTER RSTREAM <urn:q> AS SELECT ?o FROM NAMED WINDOW <urn:w> ON <urn:edge:stream:s> [ELEMENTS 1]
WHERE { WINDOW <urn:w> { ?s ?p ?o } }"""
FOLLOW = {"follow": {"query": "urn:q"}}
MINE = f"{ROOT}/response/me"


class Streams:
    """The streams of a gateway over HTTP."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.http = httpx.Client(base_url=gateway.endpoints["http"], timeout=20)
        assert self.http.put("/streams/s").status_code == 200

    def query(self, text=SELECT, name="urn:q"):
        assert self.http.put(f"/queries/{quote(name, safe='')}", content=text).status_code == 200

    def put(self, value):
        element = f'<urn:a> <urn:p> "{value}" .'
        answer = self.http.post("/streams/s", content=element, headers={"Content-Type": "text/turtle"})
        assert answer.status_code == 200

    def end(self, name="urn:q"):
        return self.http.delete(f"/queries/{quote(name, safe='')}")

    def no_follower(self):
        wait_for(lambda: not subscriptions(self.gateway), what="no follower")


@contextmanager
def streaming(directory, broker="", **sections):
    with running_gateway(directory, broker, **sections) as gateway:
        streams = Streams(gateway)
        yield streams
        streams.http.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    limits = {"max_result": 20_000, "max_subscriptions": 2, "max_connections": 3}
    with streaming(tmp_path_factory.mktemp("mqtt"), mqtt_gate=limits) as streams:
        yield streams


@pytest.fixture
def streams(running):
    running.query()
    yield running
    running.end()
    running.no_follower()


@pytest.fixture
def client(streams):
    with MqttClient(port_of(streams.gateway)) as client:
        yield client
        client.say("offline")
        wait_for(lambda: not sessions(streams.gateway), what="no session")


def values(message):
    report = message["report"]
    return report["number"], [row["o"]["value"] for row in report["content"]["results"]["bindings"]]


def test_a_client_gets_each_report_with_its_number_until_it_unfollows(streams, client):
    streams.put(1)
    assert client.ask(FOLLOW) == {"following": {"query": "urn:q", "number": 1, "of": ANY}}
    assert subscriptions(streams.gateway) == 1
    for number in (2, 3):
        streams.put(number)
        assert values(client.receive()) == (number, [str(number)])
    assert client.ask({"unfollow": {"query": "urn:q"}}) == {"unfollowed": {"query": "urn:q"}}
    streams.no_follower()
    streams.put(4)
    assert client.ask({"query": {"sparql": "ASK {}"}})["result"]["boolean"] is True
    assert client.ask({"unfollow": {"query": "urn:q", "alias": "x"}}) == {
        "error": "not_found",
        "error_description": 'This client does not follow the query "urn:q"',
        "status_code": 404,
        "alias": "x",
    }


def test_a_client_that_follows_again_gets_the_reports_after_its_number(streams, client):
    client.ask(FOLLOW)
    streams.put(1)
    assert values(client.receive()) == (1, ["1"])
    client.ask({"unfollow": {"query": "urn:q"}})
    streams.put(2)
    streams.put(3)
    answer = client.ask({"follow": {"query": "urn:q", "after": 1}})
    assert answer == {"following": {"query": "urn:q", "number": 1, "of": ANY}}
    assert [values(client.receive()) for _ in range(2)] == [(2, ["2"]), (3, ["3"])]


@pytest.mark.parametrize("after", [-1, "1", 1.5, True], ids=str)
def test_a_number_that_is_not_that_of_a_report_is_refused(streams, client, after):
    assert client.ask({"follow": {"query": "urn:q", "after": after}})["status_code"] == 400


def test_answers_and_reports_have_the_alias_of_the_request(streams, client):
    alias = 'a"\\ é'
    assert client.ask({"follow": {"query": "urn:q", "alias": alias}})["following"]["alias"] == alias
    streams.put(1)
    report = client.receive()
    assert (report["report"]["alias"], values(report)) == (alias, (1, ["1"]))
    streams.end()
    assert client.receive()["alias"] == alias


def test_the_report_has_the_members_of_the_websocket(streams, client):
    client.ask(FOLLOW)
    streams.put(1)
    assert set(client.receive()["report"]) == {"query", "number", "time", "merged", "content_type", "content"}


def test_a_query_that_ends_ends_its_followers_after_the_waiting_reports(streams, client):
    client.ask(FOLLOW)
    streams.put(1)
    streams.end()
    assert values(client.receive()) == (1, ["1"])
    error = client.receive()
    assert (error["status_code"], error["alias"]) == (404, "urn:q")
    assert error["error_description"] == 'The query "urn:q" has been ended'
    streams.no_follower()


@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        ({"follow": {"query": "urn:other"}}, 404, "There is no query"),
        ({"follow": {"query": "\0 # é"}}, 404, "There is no query"),
        ({"follow": {"query": 5}}, 400, "query"),
        ({"follow": {}}, 400, "query"),
        ({"follow": "urn:q"}, 400, '"follow" must be a JSON object'),
        ({"follow": {"query": "urn:" + "x" * 1_990}}, 404, "There is no query"),
        ({"unfollow": {"query": "urn:" + "x" * 1_990}}, 404, "does not follow"),
        ({"follow": {"query": "x" * 2_101}}, 400, "query"),
        ({"follow": {"query": "urn:q", "alias": "x" * 1_025}}, 400, "alias"),
        ({"follow": {"query": "urn:q"}, "unfollow": {"query": "urn:q"}}, 400, "exactly one of the members"),
        ({"unfollow": {"query": "urn:other"}}, 404, "does not follow"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else None,
)
def test_requests_that_are_not_valid_are_errors(streams, client, request_, status, reason):
    error = client.ask(request_)
    assert error["status_code"] == status
    assert reason in error["error_description"]
    assert subscriptions(streams.gateway) == 0


def test_a_text_with_the_word_follow_is_no_request_for_reports(streams, client):
    answer = client.ask({"query": {"sparql": 'SELECT ("x" AS ?follow) {} # "follow"'}})
    assert answer["result"]["results"]["bindings"][0]["follow"]["value"] == "x"


def test_a_client_that_follows_again_gets_each_report_once(streams, client):
    for _ in range(3):
        assert client.ask(FOLLOW)["following"]["number"] == 0
    streams.put(1)
    assert values(client.receive()) == (1, ["1"])
    assert client.ask({"query": {"sparql": "ASK {}"}})["result"]["boolean"] is True
    assert subscriptions(streams.gateway) == 1


def test_each_of_many_requests_at_once_is_answered_and_the_last_one_follows(streams, client):
    for number in range(100):
        client.send({"follow": {"query": "urn:q", "alias": str(number)}})
    answers = [client.receive() for _ in range(100)]
    aliases = [each["following"]["alias"] if "following" in each else each["alias"] for each in answers]
    assert sorted(aliases, key=int) == [str(number) for number in range(100)]
    assert {each["status_code"] for each in answers if "error" in each} <= {404}
    streams.put(1)
    assert client.receive()["report"]["alias"] == "99"
    assert subscriptions(streams.gateway) == 1


def test_a_client_follows_a_limited_number_of_queries(streams, client):
    for name in ("urn:r", "urn:t"):
        streams.query(SELECT.replace("urn:q", name), name)
    try:
        assert "following" in client.ask(FOLLOW)
        assert "following" in client.ask({"follow": {"query": "urn:r"}})
        error = client.ask({"follow": {"query": "urn:t"}})
        assert error["status_code"] == 429
        assert "mqtt_gate.max_subscriptions" in error["error_description"]
        streams.put(1)
        assert {client.receive()["report"]["query"] for _ in range(2)} == {"urn:q", "urn:r"}
    finally:
        for name in ("urn:r", "urn:t"):
            streams.end(name)


def test_a_report_beyond_the_largest_result_ends_the_following(streams, client):
    client.ask({"follow": {"query": "urn:q", "alias": "a" * 100}})
    streams.put("x" * 19_000)
    assert len(client.receive()["report"]["content"]["results"]["bindings"][0]["o"]["value"]) == 19_000
    streams.put("x" * 20_000)
    error = client.receive()
    assert error["status_code"] == 413
    assert "20000 bytes (mqtt_gate.max_result)" in error["error_description"]
    streams.no_follower()


def test_a_client_that_goes_offline_follows_no_longer(streams, client):
    client.ask(FOLLOW)
    client.say("offline")
    streams.no_follower()


def test_a_gate_that_stops_and_starts_again_follows_nothing(streams):
    with MqttClient(port_of(streams.gateway)) as client:
        client.ask(FOLLOW)
        client.say("offline")
        assert client.ask(FOLLOW)["following"]["number"] == 0
        client.vanish()
        with MqttClient(port_of(streams.gateway), "other") as other:
            other.ask(FOLLOW)
            streams.put(1)
            assert values(other.receive()) == (1, ["1"])
            other.say("offline")
    with MqttClient(port_of(streams.gateway)) as client:
        client.say("offline")
        streams.no_follower()


def test_response_topic_and_correlation_data_are_those_of_the_request(tmp_path, mosquitto):
    topic = f"{MINE}/query/q"
    with (
        streaming(tmp_path, mosquitto.url, mqtt={"version": "5"}) as streams,
        MqttClient(port_of(streams.gateway), five=True) as client,
    ):
        streams.query()
        client.send(FOLLOW, ResponseTopic=topic, CorrelationData=b"\0q")
        messages = [client.message()]
        streams.put(1)
        messages.append(client.message())
        streams.end()
        messages.append(client.message())
        assert {(each.topic, each.properties.CorrelationData) for each in messages} == {(topic, b"\0q")}
        following, report, error = (json.loads(each.payload) for each in messages)
        assert following == {"following": {"query": "urn:q", "number": 0, "of": ANY}}
        assert (list(report), "alias" in report["report"], values(report)) == (["report"], False, (1, ["1"]))
        assert (error["status_code"], "alias" in error) == (404, False)
        client.send({"follow": {"query": 5}}, ResponseTopic=topic, CorrelationData=b"2")
        refusal = client.message()
        assert (refusal.topic, json.loads(refusal.payload)["status_code"]) == (topic, 400)


def test_with_security_only_the_client_of_a_query_follows_it_until_it_is_revoked(tmp_path):
    security = {"enabled": True, "https_port": 0, "wss_port": 0, "mqtts_port": 0}
    with running_gateway(tmp_path, security=security) as gateway:
        reader = Rights(frozenset({"query"}), read=frozenset({"urn:edge:stream:s"}))
        operator, mine, other = (
            token(gateway, "operator"),
            token(gateway, "mine", reader),
            token(gateway, "other", reader),
        )
        with httpx.Client(base_url=gateway.endpoints["http"], timeout=20) as http:
            for path, content, client in (("/streams/s", "", operator), ("/queries/urn%3Aq", SELECT, mine)):
                answer = http.put(path, content=content, headers={"Authorization": f"Bearer {client}"})
                assert answer.status_code == 200, answer.text
        with Device(port_of(gateway), mine) as device:
            assert device.subscribe(f"{ROOT}/response/mine/#")

            def ask(authorization):
                follow = {"query": "urn:q", **({"authorization": authorization} if authorization else {})}
                device.publish(f"{ROOT}/request/mine", json.dumps({"follow": follow}))
                return json.loads(device.hear()[1])

            assert ask("")["status_code"] == 401
            assert ask(f"Bearer {other}")["status_code"] == 403
            assert ask(f"Bearer {mine}") == {"following": {"query": "urn:q", "number": 0, "of": ANY}}
            # A request without permission leaves the follower alone.
            for wrong, status in (("", 401), ("Bearer x", 401)):
                assert ask(wrong)["status_code"] == status
            httpx.post(
                f"{gateway.endpoints['http']}/streams/s",
                content='<urn:a> <urn:p> "1" .',
                headers={"Content-Type": "text/turtle", "Authorization": f"Bearer {operator}"},
            ).raise_for_status()
            assert values(json.loads(device.hear()[1])) == (1, ["1"])
            gateway._security.clients.revoke("mine")
            wait_for(lambda: not subscriptions(gateway), what="no follower")
