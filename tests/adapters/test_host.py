"""The gateway observes its host, and a quiet host causes few writes."""

from datetime import UTC, datetime, timedelta

import pyoxigraph as ox
import pytest
from adapter_parts import select

from edge.adapters.host import HostAdapter, HostReadings
from edge.adapters.host_sensors import Metric, plain, sample
from edge.adapters.settings import HostSettings
from tests.support.settings import unchecked
from tests.support.waiting import wait_for

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def metric(value: float, step: float = 1.0) -> Metric:
    return Metric("Load", "Load", value, "http://example.org/unit", "http://example.org/load", step, 2)


def test_the_host_reports_metrics():
    metrics = {each.name: each for each in sample()}
    assert {"CPUUse", "Load", "MemoryUse", "MemoryAvailable", "DiskUse-root", "Uptime"} <= metrics.keys()
    for each in metrics.values():
        ox.NamedNode(f"http://example.org/{each.name}")
        float(each.lexical)
    assert 0 < metrics["MemoryUse"].value <= 100


def test_every_metric_becomes_an_observation_of_the_host(engine, observations):
    adapter = HostAdapter(HostSettings(), observations, hostname="box 1")
    count = adapter.look(NOON)
    assert count == len(sample())
    host = "http://mml.arces.unibo.it/monitor#Host-box-1"
    rows = select(engine, f"?o a sosa:Observation ; sosa:hasFeatureOfInterest <{host}> ; rdfs:label ?l ; "
                  "sosa:hasResult ?q . ?q qudt:numericValue ?v ; qudt:unit ?u")  # fmt: skip
    assert len(rows) == count
    assert f"{host}-MemoryUse" in {value for row in rows for value in row}


def test_a_small_change_is_not_written(engine, observations):
    readings = [20.0]
    adapter = HostAdapter(HostSettings(refresh=600), observations, hostname="h", sensors=lambda: [metric(readings[0])])
    assert adapter.look(NOON) == 1
    sequence = engine.sequence
    readings[0] = 20.5
    assert adapter.look(NOON + timedelta(seconds=10)) == 0
    assert engine.sequence == sequence
    readings[0] = 21.0
    assert adapter.look(NOON + timedelta(seconds=20)) == 1
    assert adapter.look(NOON + timedelta(seconds=619)) == 0
    assert adapter.look(NOON + timedelta(seconds=620)) == 1


def test_slow_drift_counts_from_the_last_written_value():
    readings = HostReadings(HostSettings(), "h")
    first = readings.due([metric(10)], NOON)
    readings.written([metric(10)], first)
    assert not readings.due([metric(10.9)], NOON)
    assert readings.due([metric(11.1)], NOON)


def test_the_host_is_polled_and_a_failing_sensor_is_tolerated(observations, caplog):
    calls = []

    def sensors() -> list[Metric]:
        calls.append(1)
        if len(calls) in (2, 3):
            raise OSError("the sensor is gone")
        return [metric(float(len(calls)))]

    adapter = HostAdapter(unchecked(HostSettings, interval=0.01), observations, hostname="h", sensors=sensors)
    adapter.start()
    wait_for(lambda: adapter.readings >= 3)
    adapter.stop()
    assert caplog.messages.count("host.failing") == 1


@pytest.mark.parametrize(("name", "expected"), [("/mnt/My Disk", "mnt-My-Disk"), ("Core 0", "Core-0"), ("ü", "")])
def test_plain_names(name, expected):
    assert plain(name) == expected


def test_written_metrics_are_stored_if_configured():
    for store in (False, True):
        (arrival,) = HostReadings(HostSettings(store=store), "h").due([metric(10)], NOON)
        assert (arrival.reading.store is not None) == store
