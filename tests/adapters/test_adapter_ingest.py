"""Messages on topics that clients connected to observations in the graph (the Topics Manager)."""

import threading
from datetime import UTC, datetime

import pytest
from adapter_parts import select, update

from edge.adapters.ingest import Ingest
from edge.adapters.observations import Observations
from edge.adapters.settings import MappingsSettings
from edge.engine.requests import QueryRequest, SubscribeFailed, SubscriberNotification
from edge.mapping import Mapper

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ("21.5", "21.5"),
        ("DS18B20 21.5 C", "21.5"),
        ("from 192.168.1.7: -3", "-3"),
        ("1e3", "1000"),
        ("+5.", "5"),
        ("\u22125", "-5"),
        ("{pm2.5: 7", "7"),
        ('{"pm2.5": 7}', "7"),
        ('{"2": {"3": [null, true, 8]}}', "8"),
        ('{"time": "2026-01-01", "v": 9}', "9"),
        ('{"state": "21.5 C", "1": "on"}', "21.5"),
        ('["\u22125 C"]', "-5"),
        ('{"v": 2e2}', "200"),
    ],
)
def test_the_first_number_that_is_a_number_counts(engine, observations, payload, value):
    ingest = Ingest(lambda: Mapper([]), observations)
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    ingest.write(ingest.read("a/b", payload.encode(), NOON))
    assert select(engine, "<urn:o> sosa:hasResult ?q . ?q qudt:numericValue ?v")[0][1] == value


@pytest.mark.parametrize(
    "payload", [b"off", b"192.168.1.7", b"\xff\xfe", b"v1.2.3", b'{"1": "off"}', b"[true, null, {}]"]
)
def test_a_payload_without_a_number_is_counted_and_shown(engine, observations, payload):
    ingest = Ingest(lambda: Mapper([]), observations)
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    assert ingest.read("a/b", payload, NOON) == []
    (entry,) = ingest.bad_values.listed()
    assert (entry["topic"], entry["reason"]) == ("a/b", "the payload holds no number")


@pytest.mark.parametrize("payload", [b"1e400", b"-1e999 C", b'{"v": 1e400}', b'{"v": NaN}', b"9" * 400])
def test_a_number_that_is_not_finite_is_refused(engine, observations, payload):
    ingest = Ingest(lambda: Mapper([]), observations)
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    assert ingest.read("a/b", payload, NOON) == []
    (entry,) = ingest.bad_values.listed()
    assert "is not finite" in entry["reason"]


def test_a_payload_that_is_too_long_to_be_read_is_searched(engine, observations):
    ingest = Ingest(lambda: Mapper([]), observations, MappingsSettings(max_payload=10))
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    (arrival,) = ingest.read("a/b", b'{"pm 2.5": 7}', NOON)
    assert arrival.reading.value == "2.5"


def test_a_client_can_publish_as_soon_as_its_update_is_answered(engine):
    """A slow subscriber that is notified first must not keep the adapters from knowing the new topic."""
    held, door = threading.Event(), threading.Event()

    def slow(notification: SubscriberNotification | SubscribeFailed) -> None:
        if isinstance(notification, SubscriberNotification) and notification.sequence:
            held.set()
            door.wait(10)

    engine.subscribe(QueryRequest("SELECT ?o { ?o a <http://www.w3.org/ns/sosa/Observation> }"), slow).result(10)
    observations = Observations(engine)
    observations.start()
    ingest = Ingest(lambda: Mapper([]), observations)
    answers = []

    def client() -> None:
        update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
        answers.append(ingest.read("a/b", b"21.5", NOON))

    thread = threading.Thread(target=client)
    thread.start()
    assert held.wait(10)
    thread.join(0.2)
    assert not answers, "the update was answered before the adapters knew of it"
    door.set()
    thread.join(10)
    assert [arrival.reading.value for arrival in answers[0]] == ["21.5"]
    observations.close()


def test_a_newly_mapped_topic_leaves_the_list_of_unmapped_topics(engine, observations):
    ingest = Ingest(lambda: Mapper([]), observations)
    ingest.read("a/b", b"1", NOON)
    assert [entry["topic"] for entry in ingest.unmapped.listed()] == ["a/b"]
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    ingest.write(ingest.read("a/b", b"2", NOON))
    assert ingest.unmapped.listed() == []
    assert ingest.unmapped.total == 1
