"""The recent values of a running gateway over HTTP: from updates and MQTT messages, after kills, from a backup."""

from __future__ import annotations

import csv
import io
import json
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import paho.mqtt.publish as mqtt
import pytest

from edge.gates.http.series import to_csv, to_json
from edge.protocol.series import SeriesRequest, SeriesResult, SeriesRow
from edge.recent.buffer import SampleBuffer
from edge.recent.sample_log import read
from tests.faults.monitored_gateway import Watched
from tests.support.commands import run_edge
from tests.support.processes import GatewayProcess
from tests.support.waiting import wait_for

PREFIXES = "PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#> "
OBSERVATION = "http://example.org/attic?room=1&kind=temperature"
SET = """{prefixes} DELETE {{ <urn:q> qudt:numericValue ?v }}
INSERT {{ <{observation}> sosa:hasResult <urn:q> . <urn:q> qudt:numericValue {value} }}
WHERE {{ OPTIONAL {{ <urn:q> qudt:numericValue ?v }} }}"""


class Box(Watched):
    """A gateway and its recent values."""

    def set(self, value):
        self.update(SET.format(prefixes=PREFIXES, observation=OBSERVATION, value=value))

    def get(self, headers=None, **parameters):
        address = f"{self.endpoints['http']}/api/series?{urlencode(parameters, doseq=True)}"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=headers or {}), timeout=30) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def series(self, **parameters):
        status, _, body = self.get(**parameters)
        assert status == 200, body
        return json.loads(body)

    def values(self, observation=OBSERVATION, **parameters):
        (found,) = self.series(observation=observation, **parameters)["series"]
        return [row["value"] for row in found["rows"]]


@pytest.fixture
def box(tmp_path):
    started = []

    def start(directory="data", **settings):
        settings = {"EDGE__HOST__ENABLED": "false", **settings}
        started.append(GatewayProcess(tmp_path / directory, settings))
        return Box(started[-1])

    yield start
    for process in started:
        process.stop()


def test_values_of_updates_are_in_the_series_at_once(box):
    box = box()
    for value in (20, 21.5, 19):
        box.set(value)
        assert box.values()[-1] == value
    answer = box.series(observation=OBSERVATION)
    (found,) = answer["series"]
    assert (found["observation"], found["graph"], found["kind"], found["step"]) == (OBSERVATION, "", "number", None)
    times = [datetime.fromisoformat(row["time"]) for row in found["rows"]]
    assert times == sorted(times)
    assert datetime.now(UTC) - times[-1] < timedelta(minutes=1)
    assert datetime.fromisoformat(answer["to"]) - datetime.fromisoformat(answer["from"]) >= timedelta(hours=24)
    (listed,) = box.series()["series"]
    assert (listed["observation"], listed["kind"]) == (OBSERVATION, "number")


def test_messages_of_a_mapped_device_are_in_the_series(box, tmp_path):
    (tmp_path / "data" / "mappings").mkdir(parents=True)
    (tmp_path / "data" / "mappings" / "attic.toml").write_text("""
[[mapping]]
topic = "attic/t"
observation = "http://example.org/attic/t"
[[mapping]]
topic = "attic/switch"
observation = "http://example.org/attic/switch"
datatype = "string"
""")
    box = box()
    port = box.port("mqtt")

    def send(topic, payload, values):
        """Send a message, and wait until its value is in the series, so that times of messages differ."""
        mqtt.single(topic, payload, qos=1, hostname="127.0.0.1", port=port)
        observation = f"http://example.org/{topic}"
        wait_for(lambda: observation in {found["observation"] for found in box.series()["series"]}, what=topic)
        wait_for(lambda: box.values(observation) == values, what=f"{payload} of {topic}")

    send("attic/t", "20.5", [20.5])
    send("attic/t", "20.5", [20.5, 20.5])  # an equal value at a new time, too
    send("attic/t", "21", [20.5, 20.5, 21])
    send("attic/switch", "on", ["on"])
    send("attic/switch", "off", ["on", "off"])
    assert len(box.series()["series"]) == 2


def test_csv_has_a_row_for_each_value(box):
    box = box()
    for value in (20, 21.5):
        box.set(value)
    for wanted in ({"format": "csv"}, {"headers": {"Accept": "text/csv"}}):
        status, media_type, body = box.get(observation=OBSERVATION, **wanted)
        assert (status, media_type) == (200, "text/csv; charset=utf-8")
        rows = list(csv.DictReader(io.StringIO(body)))
        assert [(row["observation"], row["value"], row["count"]) for row in rows] == [
            (OBSERVATION, "20", ""),
            (OBSERVATION, "21.5", ""),
        ]
    status, _, body = box.get(format="csv")
    assert body.splitlines()[0] == "observation,graph,kind,from,to"


def strict(text):
    """Parse JSON as browsers do. Raises `ValueError` for `Infinity` and `NaN`, which Python accepts."""

    def refuse(constant):
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_summaries_of_the_largest_numbers_are_valid_json(box):
    box = box()
    largest = "1.7976931348623157e308"
    for value in (f'"{each}"^^<http://www.w3.org/2001/XMLSchema#double>' for each in ("INF", "-INF", "NaN")):
        box.set(value)  # not recorded
    for value in (largest, "1.7e308", largest):
        box.set(value)
    _, _, body = box.get(observation=OBSERVATION, points=1)
    (row,) = strict(body)["series"][0]["rows"]
    assert (row["count"], row["max"]) == (3, float(largest))
    assert row["min"] < row["mean"] < row["max"]
    _, _, body = box.get(observation=OBSERVATION, points=1, format="csv")
    (row,) = csv.DictReader(io.StringIO(body))
    assert "inf" not in row["mean"]


@pytest.mark.parametrize(
    ("mean", "written"),
    [(1.7976931348623157e308, 1.7976931348623157e308), (-1.7976931348623157e308, -1.7976931348623157e308),
     (float("inf"), None), (float("nan"), None), (0.1 + 0.2, 0.3)],
    ids=["largest", "least", "infinite", "no number", "rounded"],
)  # fmt: skip
def test_a_mean_is_written_as_json_can_have_it(mean, written):
    """Earlier versions stored infinite means; that of the largest number is not rounded up to infinity."""
    row = SeriesRow(0, 1, 2, 1, 1, mean)
    result = SeriesResult(OBSERVATION, "", "number", 60_000_000, [row])
    (found,) = strict(to_json(SeriesRequest([OBSERVATION], 0, 1), [result]))["series"]
    assert found["rows"][0]["mean"] == written
    (found,) = csv.DictReader(io.StringIO(to_csv([result]).decode()))
    assert found["mean"] == ("" if written is None else str(written))


def test_several_observations_and_unknown_ones(box):
    box = box()
    box.set(1)
    answer = box.series(observation=[OBSERVATION, "urn:unknown", "urn:unknown"])
    assert [each["observation"] for each in answer["series"]] == [OBSERVATION]
    assert answer["unknown"] == ["urn:unknown"]
    status, _, body = box.get(observation="urn:unknown")
    assert status == 404
    assert "/api/series" in json.loads(body)["error_description"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"observation": ""}, "is empty"),
        ({"observation": "urn:o", "from": "yesterday"}, '"from" must be a time with time zone'),
        ({"observation": "urn:o", "to": "2026-01-01T00:00:00+01:00 "}, "%2B"),
        ({"observation": "urn:o", "from": "now", "to": "-1h"}, '"from" must be before "to"'),
        ({"observation": "urn:o", "points": "0"}, '"points" must be a number from 1 to 10,000'),
        ({"observation": "urn:o", "points": "9" * 30}, '"points" must be'),
        ({"observation": "urn:o", "points": ["1", "2"]}, "must be given once"),
        ({"observation": "urn:o", "format": "xml"}, '"format" must be json or csv'),
        ({"observation": "urn:o", "form": "csv"}, 'Unknown parameter "form"'),
        ({"observation": ["urn:o"] * 101}, "up to 100 observations"),
        ({"from": "-1h"}, '"from" needs an observation'),
    ],
)
def test_a_wrong_request_gets_the_problem_and_the_remedy(shared_box, parameters, message):
    status, _, body = shared_box.get(**parameters)
    assert status == 400
    assert message in json.loads(body)["error_description"]


@pytest.mark.parametrize("begin", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "1969-12-31T23:00:00Z"])
def test_a_time_before_1970_is_1970(shared_box, begin):
    shared_box.set(1)
    answer = shared_box.series(observation=OBSERVATION, **{"from": begin, "to": "9999-12-31T23:59:59Z"})
    assert answer["from"] == "1970-01-01T00:00:00Z"
    assert answer["series"][0]["rows"]


@pytest.fixture(scope="module")
def shared_box(tmp_path_factory):
    process = GatewayProcess(tmp_path_factory.mktemp("shared"), {"EDGE__HOST__ENABLED": "false"})
    yield Box(process)
    process.stop()


def test_a_format_that_is_not_offered_is_refused(shared_box):
    assert shared_box.get(observation="urn:o", headers={"Accept": "image/png"})[0] == 406


def written(box):
    """Return the number of values in the logs."""
    buffer = SampleBuffer()
    for log in (box.process.data_dir / "recent").glob("log-*"):
        read(log, buffer)
    return sum(len(series.times) for series in buffer.series.values())


def test_values_survive_a_stop_completely_and_a_kill_but_for_the_last_seconds(box):
    first = box(EDGE__RECENT__FLUSH_INTERVAL="1")
    for value in range(5):
        first.set(value)
    first.process.stop()
    second = box(EDGE__RECENT__FLUSH_INTERVAL="1")
    assert second.values() == [*range(5)]
    second.set(5)
    wait_for(lambda: written(second) == 6, what="the value is written")
    second.process.kill()
    third = box()
    third.set(6)
    assert [value for value in third.values() if value is not None] == [*range(7)]


def test_a_backup_has_the_recent_values(box, tmp_path):
    old = box(EDGE__RECENT__FLUSH_INTERVAL="1")
    for value in range(5):
        old.set(value)
    wait_for(lambda: written(old) == 5, what="the values are written")
    backup = tmp_path / "backup.tgz"
    edge(old, "backup", backup, "--data-dir", old.process.data_dir)
    edge(old, "restore", backup, "--data-dir", tmp_path / "new")
    assert box("new").values() == [*range(5)]


def test_a_gateway_without_recent_values_says_so(box):
    box = box(EDGE__RECENT__ENABLED="false")
    status, _, body = box.get(observation="urn:o")
    assert status == 404
    assert "recent.enabled" in json.loads(body)["error_description"]
    assert not (box.process.data_dir / "recent").exists()


def test_a_directory_that_cannot_be_written_is_reported_and_updates_go_on(box, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "recent").write_text("a file")
    box = box(EDGE__RECENT__FLUSH_INTERVAL="1")
    box.set(1)
    state = wait_for(lambda: (found := box.ask("/health")[1]["recent"])["state"] == "fails" and found)
    assert "recent" in state["reason"]
    assert box.metric("edge_recent_up") == 0
    (tmp_path / "data" / "recent").unlink()
    wait_for(lambda: box.ask("/health")[1]["recent"]["state"] == "records")
    box.set(2)
    assert box.values()[-1] == 2


def test_the_doctor_reports_damaged_files(box):
    first = box()
    first.set(1)
    first.process.stop()
    directory = first.process.data_dir / "recent"
    (directory / "raw-00000001.blocks.damaged").write_bytes(b"x")
    (directory / "minutes-00000001.blocks").write_bytes(b"x")
    found = edge(first, "doctor", "--json", "--data-dir", first.process.data_dir, check=False)
    rows = [row for row in json.loads(found) if row["check"] == "recent"]
    assert any("minutes-00000001.blocks" in row["what"] and row["do"] for row in rows), rows


def edge(box, *arguments, check=True):
    done = run_edge(arguments, box.process.environment, seconds=60)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def test_values_with_their_own_times_are_found_where_they_belong(box):
    box = box()
    begin = datetime.fromtimestamp(int(time.time()) - 3600, UTC)
    times = [begin + timedelta(seconds=seconds) for seconds in range(0, 3600, 400)]
    for number, at in enumerate(times):
        box.update(f"""{PREFIXES} PREFIX time: <http://www.w3.org/2006/time#>
          PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>
          DELETE {{ <urn:q> qudt:numericValue ?v . <urn:i> time:inXSDDateTimeStamp ?t }}
          INSERT {{ <{OBSERVATION}> sosa:hasResult <urn:q> . <urn:q> time:hasTime <urn:i> ; qudt:numericValue {number} .
            <urn:i> time:inXSDDateTimeStamp "{at.isoformat()}"^^xsd:dateTimeStamp }}
          WHERE {{ OPTIONAL {{ <urn:q> qudt:numericValue ?v }} OPTIONAL {{ <urn:i> time:inXSDDateTimeStamp ?t }} }}""")
    (found,) = box.series(observation=OBSERVATION, **{"from": "-2h"})["series"]
    assert [datetime.fromisoformat(row["time"]) for row in found["rows"]] == times
    (found,) = box.series(observation=OBSERVATION, **{"from": times[2].isoformat(), "to": times[4].isoformat()})[
        "series"
    ]
    assert [row["value"] for row in found["rows"]] == [2, 3]
