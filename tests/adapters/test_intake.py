"""What messages on topics that clients tied to observations in the graph say (the Topics Manager)."""

from datetime import UTC, datetime

import pytest
from adapter_parts import select, update

from edge.adapters.intake import Intake
from edge.mapping import Mapper

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("payload", "value"),
    [("21.5", "21.5"), ("DS18B20 21.5 C", "21.5"), ("from 192.168.1.7: -3", "-3"), ("1e3", "1000"), ("+5.", "5")],
)
def test_the_first_number_that_is_a_number_counts(engine, observations, payload, value):
    intake = Intake(lambda: Mapper([]), observations)
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    intake.write(intake.read("a/b", payload.encode(), NOON))
    assert select(engine, "<urn:o> sosa:hasResult ?q . ?q qudt:numericValue ?v")[0][1] == value


@pytest.mark.parametrize("payload", [b"off", b"192.168.1.7", b"\xff\xfe", b"v1.2.3"])
def test_a_payload_without_a_number_is_counted_and_shown(engine, observations, payload):
    intake = Intake(lambda: Mapper([]), observations)
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    assert intake.read("a/b", payload, NOON) == []
    (entry,) = intake.bad_values.listed()
    assert (entry["topic"], entry["reason"]) == ("a/b", "the payload holds no number")


def test_a_topic_that_is_mapped_is_no_longer_listed_as_unmapped(engine, observations):
    intake = Intake(lambda: Mapper([]), observations)
    intake.read("a/b", b"1", NOON)
    assert [entry["topic"] for entry in intake.unmapped.listed()] == ["a/b"]
    update(engine, 'INSERT DATA { <urn:o> a sosa:Observation ; monitor:hasMqttTopic "a/b" }')
    intake.write(intake.read("a/b", b"2", NOON))
    assert intake.unmapped.listed() == []
    assert intake.unmapped.total == 1
