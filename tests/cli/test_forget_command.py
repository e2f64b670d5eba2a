"""`edge forget`: the observations of a device are removed, and its mapping is shown."""

from __future__ import annotations

import json

import pytest

from tests.support.waiting import wait_for

SENSOR = "urn:sepa-edge:zigbee2mqtt:kitchen/lamp"


@pytest.fixture
def run(shared_edge, gateway):
    """Run a command with the gateway, whose graph has only what the test publishes."""

    def command(*arguments):
        return shared_edge(*arguments, "--data-dir", gateway.data_dir)

    assert command("update", "CLEAR ALL").returncode == 0
    return command


def publish(run, device: str, payload: object) -> None:
    done = run("publish", f"zigbee2mqtt/{device}", json.dumps(payload))
    assert (done.returncode, done.stderr) == (0, "")
    wait_for(lambda: f":{device}/" in rows(run))


def rows(run, pattern: str = "?s a <http://www.w3.org/ns/sosa/Observation>") -> str:
    return str(run("query", f"SELECT ?s {{ {pattern} }}").stdout)


def test_a_device_is_removed_with_its_results_and_others_stay(run):
    publish(run, "kitchen/lamp", {"temperature": 21.5, "battery": 90})
    publish(run, "hall", {"temperature": 20})
    shown = run("forget", "kitchen/lamp", "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines() == [
        f"2 observations of {SENSOR} would be removed:",
        f"  {SENSOR}/battery",
        f"  {SENSOR}/temperature",
        "messages on zigbee2mqtt/kitchen/lamp create them again (mapping zigbee2mqtt/device); `ignore = true` "
        "prevents it",
    ]
    assert f"{SENSOR}/battery" in rows(run)
    done = run("forget", SENSOR)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"removed 2 observations of {SENSOR}:")
    assert "kitchen" not in rows(run)
    assert "hall" in rows(run)
    left = run("query", "SELECT (COUNT(*) AS ?n) { ?s <http://qudt.org/1.1/schema/qudt#numericValue> ?v }").stdout
    assert left.splitlines()[2] == "1"
    publish(run, "kitchen/lamp", {"temperature": 22})


DESCRIBED = (
    "?s a ?type ; <http://mml.arces.unibo.it/monitor#hasMappingDigest> ?d "
    "FILTER NOT EXISTS { ?s a <http://www.w3.org/ns/sosa/Observation> }"
)


def described(run) -> set[str]:
    """Return the sensors, properties and places whose description is the gateway's."""
    return {line.strip("<> ") for line in rows(run, DESCRIBED).splitlines() if "urn:" in line}


def test_a_device_is_found_by_its_label(run):
    publish(run, "0x01", {"temperature": 20})
    assert run("forget", "0x01", "--dry-run").returncode == 0
    rename = (
        "DELETE { ?s rdfs:label ?l } INSERT { ?s rdfs:label 'Bench 12' } WHERE { ?s a sosa:Sensor ; rdfs:label ?l }"
    )
    assert run("update", rename).returncode == 0
    done = run("forget", "Bench 12/temperature", "--dry-run")
    assert done.stdout.startswith("1 observation of urn:sepa-edge:zigbee2mqtt:0x01/temperature would be")
    assert "0x01" in run("forget", "Bench 1").stderr
    assert run("forget", "Bench 12").returncode == 0


def test_descriptions_that_nothing_refers_to_are_removed(run):
    publish(run, "kitchen/lamp", {"temperature": 21.5, "battery": 90})
    publish(run, "hall", {"temperature": 20})
    before = described(run)
    assert SENSOR in before
    assert run("forget", "urn:sepa-edge:zigbee2mqtt:kitchen/lamp/battery").returncode == 0
    assert {each for each in before - described(run) if "batter" not in each} == set()
    assert run("forget", "kitchen/lamp").returncode == 0
    assert [each for each in described(run) if "kitchen" in each or "batter" in each] == []
    assert any("hall" in each for each in described(run))
    assert any("temperature" in each for each in described(run))
    assert run("forget", "hall").returncode == 0
    assert described(run) == set()
    assert "urn:" not in rows(run, "?s ?p ?o")


LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


def rename(run, thing: str, *, to: str) -> None:
    """Give a thing another label, as the application does."""
    change = f"DELETE {{ <{thing}> {LABEL} ?l }} INSERT {{ {to} }} WHERE {{ <{thing}> {LABEL} ?l }}"
    assert run("update", change).returncode == 0


def test_descriptions_of_clients_and_those_that_others_use_are_kept(run):
    publish(run, "kitchen/lamp", {"temperature": 21.5})
    place = next(each for each in described(run) if "place" in each)
    observed = next(each for each in described(run) if "property" in each)
    rename(run, place, to=f"<{place}> {LABEL} 'mine'")
    assert run("update", f"INSERT DATA {{ <urn:floor> <urn:has> <{observed}> }}").returncode == 0
    assert run("forget", "kitchen/lamp").returncode == 0
    assert described(run) == {observed, place}
    assert "mine" in rows(run, f"<{place}> {LABEL} ?s")


def test_a_sensor_that_others_use_keeps_its_name(run):
    publish(run, "kitchen/lamp", {"temperature": 21.5})
    rename(run, SENSOR, to=f"<{SENSOR}> {LABEL} 'mine'")
    assert run("update", f"INSERT DATA {{ <urn:floor> <urn:has> <{SENSOR}> }}").returncode == 0
    assert run("forget", "kitchen/lamp").returncode == 0
    assert described(run) == {SENSOR}
    assert "mine" in rows(run, f"<{SENSOR}> {LABEL} ?s")


@pytest.mark.parametrize("name", ["'mine'", None])
def test_nothing_is_left_of_a_device_that_was_renamed(run, name):
    publish(run, "kitchen/lamp", {"temperature": 21.5})
    platform = f"<{SENSOR}> a <http://www.w3.org/ns/sosa/Platform>"
    rename(run, SENSOR, to=f"{platform} ; {LABEL} {name}" if name else platform)
    assert run("update", f"INSERT DATA {{ <{SENSOR}> <urn:serial> 'ours' }}").returncode == 0
    assert run("forget", "kitchen/lamp").returncode == 0
    assert "urn:" not in rows(run, "?s a ?type")
    assert "urn:" not in rows(run, f"?s {LABEL} ?name")
    assert SENSOR in rows(run, "?s <urn:serial> 'ours'")
    publish(run, "kitchen/lamp", {"temperature": 22})
    assert SENSOR in rows(run, f"?s {LABEL} 'kitchen/lamp'")
    assert run("forget", "kitchen/lamp").returncode == 0


def test_one_observation_is_removed_by_its_iri(run):
    publish(run, "hall", {"temperature": 20, "humidity": 50})
    done = run("forget", "urn:sepa-edge:zigbee2mqtt:hall/humidity")
    assert done.stdout.splitlines()[0] == "removed 1 observation of urn:sepa-edge:zigbee2mqtt:hall/humidity:"
    assert "hall/temperature" in rows(run)
    assert "humidity" not in rows(run)


def test_results_that_others_use_are_kept(run):
    publish(run, "hall", {"temperature": 20})
    text = "PREFIX sosa: <http://www.w3.org/ns/sosa/> INSERT { <urn:copy> a sosa:Observation ; sosa:hasResult ?r } "
    assert run("update", f"{text} WHERE {{ ?o sosa:hasResult ?r }}").returncode == 0
    assert run("forget", "hall").returncode == 0
    assert "urn:copy" in rows(run)
    assert "20" in rows(run, "?r <http://qudt.org/1.1/schema/qudt#numericValue> ?s")


def test_an_unknown_or_ambiguous_name_is_refused_with_names(run):
    empty = run("forget", "hall")
    assert (empty.returncode, empty.stderr) == (
        1,
        "edge: the graph has no observations, or this client may not read them\n",
    )
    publish(run, "hall", {"temperature": 20})
    refused = run("forget", "hal")
    assert refused.returncode == 1
    assert refused.stderr.endswith("similar or first ones: urn:sepa-edge:zigbee2mqtt:hall\n")
    data = "<urn:o> a sosa:Observation ; sosa:madeBySensor <urn:x:hall>"
    assert run("update", f"PREFIX sosa: <http://www.w3.org/ns/sosa/> INSERT DATA {{ {data} }}").returncode == 0
    refused = run("forget", "hall")
    assert refused.returncode == 1
    assert "several devices are called hall" in refused.stderr
    assert "urn:x:hall" in refused.stderr
    assert "hall/temperature" in rows(run)


def test_without_a_gateway_it_says_so(shared_edge, tmp_path):
    failed = shared_edge("forget", "hall", "--url", "http://127.0.0.1:9")
    assert (failed.returncode, failed.stdout) == (3, "")
