"""MQTT 5 response topics and correlation data."""

import json
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqtt_harness import ALL, ROOT, MqttClient, port_of, running_gateway

from edge.gates.mqtt.correlation import Correlation, Reply
from edge.protocol.errors import InvalidRequest
from edge.protocol.messages import (
    MAX_ALIAS,
    MAX_ENCODED_ALIAS,
    notification_message,
    parse_message,
    result_message,
    timers_message,
    unsubscribed_message,
    updated_message,
)

MINE = f"{ROOT}/response/me"


@pytest.fixture
def client(tmp_path, mosquitto):
    with (
        running_gateway(tmp_path, mosquitto.url, mqtt={"version": "5"}) as gateway,
        MqttClient(port_of(gateway), five=True) as client,
    ):
        yield client


def test_answers_carry_the_correlation_data_of_their_request(client):
    numbers = {uuid4().bytes: number for number in range(30)}
    for correlation, number in numbers.items():
        query = {"sparql": f"SELECT ({number} AS ?n) {{}}", "alias": f"q{number}"}
        client.send({"query": query}, ResponseTopic=f"{MINE}/answers", CorrelationData=correlation)
    for _ in numbers:
        message = client.message()
        result = json.loads(message.payload)["result"]
        number = numbers[message.properties.CorrelationData]
        assert message.topic == f"{MINE}/answers"
        assert result["alias"] == f"q{number}"
        assert result["results"]["bindings"][0]["n"]["value"] == str(number)


def test_notifications_carry_the_correlation_data_of_the_subscribe_request(client):
    client.send({"subscribe": {"sparql": ALL}}, ResponseTopic=f"{MINE}/lamps", CorrelationData=b"\x00lamps")
    first = client.message()
    received = json.loads(first.payload)["notification"]
    assert (first.topic, first.properties.CorrelationData, first.qos) == (f"{MINE}/lamps", b"\x00lamps", 1)
    assert "alias" not in received
    client.send({"update": {"sparql": "INSERT DATA { <urn:a> <urn:b> 1 }"}}, CorrelationData=b"write")
    seen = {(m.topic, m.properties.CorrelationData) for m in (client.message(), client.message())}
    assert seen == {(MINE, b"write"), (f"{MINE}/lamps", b"\x00lamps")}
    client.send({"unsubscribe": {"spuid": received["spuid"]}}, CorrelationData=b"end")
    answer = client.message()
    assert answer.properties.CorrelationData == b"end"
    assert json.loads(answer.payload) == {"unsubscribed": {"spuid": received["spuid"]}}


@pytest.mark.parametrize("text", ["{", '{"query": {"sparql": "SELECT"}}', '{"query": {}}', b"\xff"])
def test_errors_carry_the_correlation_data(client, text):
    client.send(text, ResponseTopic=f"{MINE}/x", CorrelationData=b"7")
    message = client.message()
    assert "error" in json.loads(message.payload)
    assert (message.topic, getattr(message.properties, "CorrelationData", None)) == (f"{MINE}/x", b"7")


@pytest.mark.parametrize("topic", ["zigbee2mqtt/lamp/set", f"{ROOT}/response/other", f"{MINE}else", f"{ROOT}/status"])
def test_no_response_goes_to_a_foreign_response_topic(client, topic):
    """Otherwise a client could use the gateway to publish where it may not publish itself."""
    client.send({"query": {"sparql": "ASK {}"}}, ResponseTopic=topic, CorrelationData=b"1")
    message = client.message()
    assert message.topic == MINE
    assert message.properties.CorrelationData == b"1"
    assert json.loads(message.payload)["error"] == "invalid_request"


text = st.text(st.characters(exclude_categories=["Cs"]))
replies = st.builds(Reply, text, st.binary(), st.none() | text)
messages = st.sampled_from(
    [
        lambda alias: notification_message("sepa://s", alias, 3, '{"head":{"vars":["alias"]}}', "{}"),
        lambda alias: result_message(alias, '{"head":{"vars":["alias"]},"results":{"bindings":[]}}'),
        lambda alias: updated_message(alias, 1, 2),
        lambda alias: timers_message(alias, [{"alias": "x"}]),
        lambda alias: unsubscribed_message("sepa://s", alias),
        lambda alias: InvalidRequest('"alias": "x", no', alias=alias, spuid="s").to_json(),
    ]
)


@given(replies, messages)
def test_a_reply_comes_back_and_the_message_is_as_if_it_had_never_been(reply, message):
    correlation = Correlation()
    found = correlation.take(message(correlation.alias(reply)))
    assert found is not None
    assert found[1] == reply
    assert json.loads(found[0]) == json.loads(message(reply.alias))
    assert correlation.take(message(reply.alias)) is None


@given(replies)
def test_a_reply_cannot_be_forged(reply):
    theirs = Correlation().alias(reply)
    assert Correlation().take(updated_message(theirs, 1, 2)) is None


@given(replies)
def test_a_request_changes_only_in_its_alias(reply):
    message = {"sparql": "ASK {}", "alias": "mine", "default-graph-uri": ["urn:g"], "timeout": 5, "authorization": "x"}
    correlation = Correlation()
    tagged = correlation.with_alias(parse_message(json.dumps({"subscribe": message})), reply)
    assert parse_message(tagged, MAX_ENCODED_ALIAS) == parse_message(
        json.dumps({"subscribe": {**message, "alias": correlation.alias(reply)}}), MAX_ENCODED_ALIAS
    )


def test_the_longest_reply_fits_the_alias_that_stands_for_it():
    reply = Reply("\U0001f600" * 1024, b"x" * 1024, "\U0001f600" * MAX_ALIAS)
    assert len(Correlation().alias(reply)) <= MAX_ENCODED_ALIAS


@pytest.mark.parametrize(
    ("alias", "correlation", "reason"),
    [("a", b"x" * 1025, "correlation data has 1025 bytes"), ("a" * 1025, b"x", "1024 at most")],
)
def test_the_data_stored_with_a_subscription_is_bounded(client, alias, correlation, reason):
    client.send({"subscribe": {"sparql": ALL, "alias": alias}}, ResponseTopic=MINE, CorrelationData=correlation)
    error = json.loads(client.message().payload)
    assert error["error"] == "invalid_request"
    assert reason in error["error_description"]
