"""Readings become observations through ADD_OBSERVATION and UPDATE_VALUE. Changes that clients made stay."""

import threading
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import pytest
from adapter_parts import Values, select, update, value_of

from edge.adapters import updates
from edge.adapters.observations import Observations
from edge.adapters.planner import Arrival, time_stamp
from edge.adapters.settings import ObservationsSettings
from edge.engine.requests import QueryRequest, SubscribeFailed, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.mapping.reading import XSD_DECIMAL, Reading
from edge.protocol.errors import NotReady, TooManyRequests

ROOM = "http://example.org/room"
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
READING = Reading(
    ROOM,
    "21.5",
    XSD_DECIMAL,
    unit="http://qudt.org/1.1/vocab/unit#DegreeCelsius",
    location="http://example.org/house",
    property="http://example.org/temperature",
    sensor="http://example.org/thermometer",
    label="Room",
    comment="Temperature of the room",
    topic="room/temperature",
)


def write(observations, *readings, received=NOON, **options):
    return observations.write([Arrival(reading, received, **options) for reading in readings]).result(10)


def named(value: str) -> Reading:
    return READING._replace(value=value)


def quantity(engine) -> str:
    [(iri,)] = select(engine, f"<{ROOM}> sosa:hasResult ?q")
    return iri


def test_the_first_reading_adds_the_observation_with_the_terms_of_the_paper(engine, observations):
    write(observations, READING)
    description = dict(select(engine, f"<{ROOM}> ?p ?o"))
    digest = description.pop("http://mml.arces.unibo.it/monitor#hasMappingDigest")
    result = description.pop("http://www.w3.org/ns/sosa/hasResult")
    assert digest
    assert result.startswith("http://mml.arces.unibo.it/monitor#QuantityValue-")
    assert description == {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type": "http://www.w3.org/ns/sosa/Observation",
        "http://www.w3.org/2000/01/rdf-schema#label": "Room",
        "http://www.w3.org/2000/01/rdf-schema#comment": "Temperature of the room",
        "http://www.w3.org/ns/sosa/hasFeatureOfInterest": "http://example.org/house",
        "http://www.w3.org/ns/sosa/observedProperty": "http://example.org/temperature",
        "http://www.w3.org/ns/sosa/madeBySensor": "http://example.org/thermometer",
        "http://mml.arces.unibo.it/monitor#hasMqttTopic": "room/temperature",
    }
    assert dict(select(engine, f"<{result}> ?p ?o")) == {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type": "http://qudt.org/1.1/schema/qudt#QuantityValue",
        "http://qudt.org/1.1/schema/qudt#unit": "http://qudt.org/1.1/vocab/unit#DegreeCelsius",
        "http://qudt.org/1.1/schema/qudt#numericValue": "21.5",
        "http://www.w3.org/2006/time#hasTime": f"{result}-instant",
    }
    assert dict(select(engine, f"<{result}-instant> ?p ?o")) == {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type": "http://www.w3.org/2006/time#Instant",
        "http://www.w3.org/2006/time#inXSDDateTimeStamp": "2024-05-01T12:00:00Z",
    }


def test_members_missing_in_the_mapping_are_omitted(engine, observations):
    write(observations, Reading(ROOM, "1", XSD_DECIMAL))
    assert [p for p, _ in select(engine, f"<{ROOM}> ?p ?o") if "digest" not in p.lower()] == [
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
        "http://www.w3.org/ns/sosa/hasResult",
    ]


def test_a_later_reading_replaces_value_and_time_and_nothing_else(engine, observations):
    write(observations, READING)
    before = set(select(engine, "?s ?p ?o"))
    write(observations, named("22"), received=NOON + timedelta(seconds=1))
    after = set(select(engine, "?s ?p ?o"))
    assert (len(after - before), len(before - after)) == (2, 2)
    assert value_of(engine, ROOM) == "22"
    assert select(engine, "?i time:inXSDDateTimeStamp ?t")[0][1] == "2024-05-01T12:00:01Z"


def test_an_equal_reading_of_the_same_time_changes_nothing(engine, observations):
    write(observations, READING)
    before = engine.sequence
    write(observations, READING)
    assert engine.sequence == before


def test_the_time_of_the_message_goes_before_that_of_arrival(engine, observations):
    write(observations, READING._replace(time=NOON - timedelta(hours=1)))
    assert select(engine, "?i time:inXSDDateTimeStamp ?t")[0][1] == "2024-05-01T11:00:00Z"


def result_times(engine) -> list[str]:
    return [time for (time,) in select(engine, f"<{ROOM}> sosa:resultTime ?time")]


def test_the_result_time_is_that_of_the_message_alone(engine, observations):
    write(observations, READING)
    assert result_times(engine) == []
    for hour in (1, 2):
        before = set(select(engine, "?s ?p ?o"))
        write(observations, READING._replace(value=str(hour), time=NOON + timedelta(hours=hour)))
        assert result_times(engine) == [f"2024-05-01T{12 + hour}:00:00Z"]
        after = set(select(engine, "?s ?p ?o"))
        assert (len(after - before), len(before - after)) == (3, 1 + hour)
    assert select(
        engine, f"<{ROOM}> sosa:resultTime ?t FILTER(DATATYPE(?t) = <http://www.w3.org/2001/XMLSchema#dateTime>)"
    )
    before = engine.sequence
    write(observations, named("3"))
    assert (result_times(engine), value_of(engine, ROOM)) == ([], "3")
    assert engine.sequence == before + 1


@pytest.mark.parametrize(
    "removed", ["sosa:hasResult ?q", "sosa:hasResult ?q . ?q ?p ?o . ?q time:hasTime ?i . ?i ?a ?b"]
)
@pytest.mark.parametrize("value_only", [False, True])
def test_a_result_after_a_deleted_one_has_no_former_result_time(engine, observations, removed, value_only):
    write(observations, READING._replace(time=NOON))
    update(engine, f"DELETE {{ <{ROOM}> {removed} }} WHERE {{ <{ROOM}> {removed} }}")
    write(observations, named("1"), value_only=value_only)
    assert (result_times(engine), value_of(engine, ROOM)) == ([], "1")
    write(observations, READING._replace(time=NOON))
    update(engine, f"DELETE {{ <{ROOM}> {removed} }} WHERE {{ <{ROOM}> {removed} }}")
    write(observations, READING._replace(value="2", time=NOON + timedelta(hours=1)), value_only=value_only)
    assert result_times(engine) == ([] if value_only else ["2024-05-01T13:00:00Z"])
    assert select(engine, "?i time:inXSDDateTimeStamp ?t")[0][1] == "2024-05-01T13:00:00Z"


def test_a_result_time_is_removed_after_a_restart_and_a_failed_write(engine, observations, monkeypatch):
    write(observations, READING._replace(time=NOON))
    again = Observations(engine)
    again.start()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "write", lambda requests, receipt, done: done(NotReady("for a test")))
        with pytest.raises(NotReady):
            write(again, named("1"))
    assert result_times(engine) == ["2024-05-01T12:00:00Z"]
    write(again, named("1"))
    assert result_times(engine) == []
    before = len(again._planner.plan([Arrival(named("2"), NOON)]).requests)
    assert before == 1


def test_the_result_time_of_a_failed_description_is_removed(engine, observations, monkeypatch):
    write(observations, READING._replace(time=NOON))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "write", lambda requests, receipt, done: done(NotReady("for a test")))
        for readings in ([READING._replace(label="Other")], [named("1"), READING._replace(sensor="not an IRI")]):
            with pytest.raises(NotReady):
                write(observations, *readings)
    write(observations, named("1"))
    assert result_times(engine) == []


def test_a_result_time_of_a_client_stays_with_values_without_time_of_message(engine, observations):
    write(observations, READING)
    update(engine, f"INSERT DATA {{ <{ROOM}> sosa:resultTime '2024-01-01T00:00:00Z' }}")
    write(observations, named("1"))
    again = Observations(engine)
    again.start()
    for each in (again, observations):
        write(each, named("2"))
        assert result_times(engine) == ["2024-01-01T00:00:00Z"]
    write(observations, READING._replace(time=NOON))
    assert result_times(engine) == ["2024-05-01T12:00:00Z"]


def test_a_result_time_goes_with_a_quantity_that_a_blank_node_replaces(engine, observations):
    write(observations, READING._replace(time=NOON))
    update(
        engine,
        f"DELETE {{ <{ROOM}> sosa:hasResult ?q }} INSERT {{ <{ROOM}> sosa:hasResult [ a qudt:QuantityValue ] }} "
        f"WHERE {{ <{ROOM}> sosa:hasResult ?q }}",
    )
    write(observations, READING._replace(value="1", time=NOON + timedelta(hours=1)))
    assert (result_times(engine), value_of(engine, ROOM)) == ([], "1")


def test_values_of_graph_mappings_keep_the_result_time_of_a_client(engine, observations):
    write(observations, READING)
    update(
        engine,
        f"INSERT DATA {{ <{ROOM}> sosa:resultTime '2024-01-01T00:00:00Z' }}",
    )
    write(observations, named("5"), value_only=True)
    assert result_times(engine) == ["2024-01-01T00:00:00Z"]


def test_time_message_removes_the_old_time_of_a_new_value(engine):
    observations = Observations(engine, ObservationsSettings(time="message"))
    observations.start()
    write(observations, READING._replace(time=NOON))
    assert len(select(engine, "?q time:hasTime ?i . ?i time:inXSDDateTimeStamp ?t")) == 1
    write(observations, named("3"))
    assert select(engine, "{ ?s time:hasTime ?o } UNION { ?s a time:Instant }") == []
    assert value_of(engine, ROOM) == "3"


def test_time_never_stores_no_time(engine):
    observations = Observations(engine, ObservationsSettings(time="never"))
    observations.start()
    write(observations, READING._replace(time=NOON), READING._replace(value="2", time=NOON))
    assert select(engine, "?q time:hasTime ?i") == []
    assert value_of(engine, ROOM) == "2"


def test_every_reading_written_at_once_is_its_own_change(engine, observations):
    values = Values(engine)
    write(observations, *[named(str(n)) for n in range(20)])
    assert [value for _, value in values.added] == [str(n) for n in range(20)]
    assert [value for _, value in values.removed] == [str(n) for n in range(19)]


def test_after_a_restart_nothing_is_added_again(tmp_path):
    engine = open_engine(tmp_path)
    first = Observations(engine)
    first.start()
    write(first, READING)
    name = quantity(engine)
    assert engine.close()
    engine = open_engine(tmp_path)
    try:
        values = Values(engine)
        second = Observations(engine)
        second.start()
        assert len(second) == 1
        write(second, named("22"))
        assert quantity(engine) == name
        assert values.added == [(ROOM, "21.5"), (ROOM, "22")]
    finally:
        assert engine.close()


def test_a_changed_mapping_replaces_the_description(engine, observations):
    write(observations, READING)
    old = quantity(engine)
    before = engine.quads
    write(observations, READING._replace(label="Kitchen"))
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Kitchen",)]
    assert quantity(engine) != old
    assert engine.quads == before, "nothing of the old quantity and its instant is left"


def test_a_mapping_that_changed_while_the_gateway_was_down(engine, observations):
    write(observations, READING)
    later = Observations(engine)
    later.start()
    write(later, READING._replace(label="Kitchen"))
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Kitchen",)]


def test_two_topics_that_describe_one_observation_differently_do_not_fight(engine, observations):
    other = READING._replace(topic="room/status", label="Status")
    write(observations, READING, other, READING)
    name = quantity(engine)
    write(observations, other, READING, other)
    assert quantity(engine) == name
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Room",)]


def test_changes_of_a_client_stay(engine, observations):
    write(observations, READING)
    update(engine, "DELETE { ?o rdfs:label ?l } INSERT { ?o rdfs:label 'Mine' } WHERE { ?o rdfs:label ?l }")
    update(engine, "DELETE { ?q qudt:unit ?u } INSERT { ?q qudt:unit unit:Kelvin } WHERE { ?q qudt:unit ?u }")
    write(observations, named("294"))
    again = Observations(engine)
    again.start()
    write(again, named("295"))
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Mine",)]
    assert select(engine, "?q qudt:unit ?u")[0][1].endswith("Kelvin")
    assert value_of(engine, ROOM) == "295"


def test_an_observation_that_a_client_deleted_comes_back_with_the_next_reading(engine, observations):
    write(observations, READING)
    update(engine, f"DELETE WHERE {{ <{ROOM}> ?p ?o }}")
    assert len(observations) == 0
    write(observations, named("5"))
    assert value_of(engine, ROOM) == "5"
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Room",)]
    assert len(select(engine, "?i a time:Instant")) == 1, "the instant of the old quantity is gone"


def test_a_client_may_give_an_observation_another_quantity(engine, observations):
    write(observations, READING)
    update(
        engine,
        f"""DELETE {{ <{ROOM}> ?p ?o . ?q ?p1 ?o1 }}
        INSERT {{ <{ROOM}> a sosa:Observation ; rdfs:label "Mine" ; sosa:hasResult monitor:mine .
                  monitor:mine a qudt:QuantityValue }}
        WHERE {{ <{ROOM}> ?p ?o ; sosa:hasResult ?q . ?q ?p1 ?o1 }}""",
    )
    write(observations, named("7"))
    assert select(engine, f"<{ROOM}> sosa:hasResult ?q . ?q qudt:numericValue ?v") == [
        ("http://mml.arces.unibo.it/monitor#mine", "7")
    ]
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Mine",)]
    assert len(select(engine, "?i a time:Instant")) == 1


def test_an_observation_without_result_gets_one(engine, observations):
    update(engine, f'INSERT DATA {{ <{ROOM}> a sosa:Observation ; rdfs:label "Mine" }}')
    write(observations, READING, named("8"))
    assert value_of(engine, ROOM) == "8"
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Mine",)]


def test_a_quantity_that_is_a_blank_node(engine, observations):
    update(engine, f"INSERT DATA {{ <{ROOM}> a sosa:Observation ; sosa:hasResult [ a qudt:QuantityValue ] }}")
    write(observations, READING)
    write(observations, named("9"))
    assert value_of(engine, ROOM) == "9"


def test_declared_observations_exist_before_their_first_value(engine, observations):
    observations.declare([READING])
    assert select(engine, f"<{ROOM}> rdfs:label ?l") == [("Room",)]
    assert value_of(engine, ROOM) is None
    name = quantity(engine)
    observations.declare([READING])
    write(observations, READING)
    assert quantity(engine) == name
    assert value_of(engine, ROOM) == "21.5"


def test_values_of_graph_mappings_add_nothing(engine, observations):
    write(observations, READING, value_only=True)
    assert engine.quads == 0


def test_a_value_that_is_not_valid_rdf_is_refused_and_blocks_nothing(engine, observations):
    plan = write(observations, READING._replace(observation="no iri"), READING._replace(unit="no iri"), READING)
    assert [arrival.reading.observation for arrival, _ in plan.refused] == ["no iri", ROOM]
    assert value_of(engine, ROOM) == "21.5"


def test_a_failed_write_is_repeated(tmp_path):
    engine = open_engine(None, EngineSettings(max_pending_updates=10))
    observations = Observations(engine)
    observations.start()
    crowd = [READING._replace(observation=f"http://example.org/{n}") for n in range(10)]
    busy = threading.Event()
    engine.subscribe(QueryRequest("ASK { }"), lambda _: busy.wait(10) and None)
    engine.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }")])
    with pytest.raises(TooManyRequests):
        write(observations, *crowd)
    busy.set()
    assert len(observations) == 0
    write(observations, crowd[0])
    assert value_of(engine, "http://example.org/0") == "21.5"
    assert engine.close()
    with pytest.raises(NotReady):
        write(observations, crowd[0])


def test_unchanged_recognises_repeated_readings(engine, observations):
    write(observations, READING)
    other = READING._replace(observation="http://example.org/other")
    arrivals = [Arrival(READING, NOON), Arrival(other, NOON)]
    assert observations.unchanged(arrivals) == {0}
    assert observations.unchanged([Arrival(named("1"), NOON)]) == set()
    assert observations.unchanged([Arrival(READING, NOON), Arrival(named("1"), NOON)]) == set()


def test_new_values_do_not_touch_the_adapters_own_subscription(engine, observations):
    seen = []
    engine.subscribe(QueryRequest(updates.OBSERVATIONS), seen.append).result(10)
    write(observations, READING)
    count = len(seen)
    write(observations, named("1"), named("2"))
    assert len(seen) == count


def test_a_subscription_that_failed_is_made_again(engine, observations, caplog):
    write(observations, READING)
    observations._sink(SubscribeFailed("sepa://subscription/x", None, "for a test"))
    write(observations, named("3"))
    assert value_of(engine, ROOM) == "3"
    assert len(observations) == 1
    assert engine.subscriptions == 1
    assert "observations.subscribed_again" in caplog.messages


@pytest.mark.parametrize(
    "name",
    ["ADD_OBSERVATION", "GIVE_QUANTITY", "UPDATE_VALUE", "UPDATE_VALUE_AND_TIME", "UPDATE_VALUE_WITHOUT_TIME",
     "UPDATE_VALUE_AND_RESULT_TIME", "UPDATE_VALUE_AND_TIME_OF_ARRIVAL", "FORGET_INSTANT"],
)  # fmt: skip
def test_the_texts_are_legal_and_change_nothing_in_an_empty_graph_but_what_add_adds(engine, name):
    import pyoxigraph as ox

    thing = ox.NamedNode("http://example.org/x")
    text = getattr(updates, name)
    [outcome] = engine.update(
        [UpdateRequest(text, bindings={"observation": thing, "quantity": thing, "instant": thing})]
    ).result(10)
    assert outcome.changed == (name == "ADD_OBSERVATION")


def test_time_stamps_are_utc_to_the_millisecond():
    assert time_stamp(NOON) == "2024-05-01T12:00:00Z"
    assert time_stamp(NOON + timedelta(microseconds=250_400)) == "2024-05-01T12:00:00.25Z"


def test_a_declaration_that_fails_by_a_fault_is_rolled_back(engine, observations, monkeypatch):
    failed: Future[object] = Future()
    failed.set_exception(RuntimeError("a fault"))
    with monkeypatch.context() as patch:
        patch.setattr(engine, "update", lambda _: failed)
        with pytest.raises(RuntimeError, match="a fault"):
            observations.declare([READING])
    assert len(observations) == 0
    assert observations.declare([READING]).requests
    assert len(observations) == 1
