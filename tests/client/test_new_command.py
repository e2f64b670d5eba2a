"""`edge new`: the generated programs run unchanged as separate processes with a running gateway."""

import os
import re
import signal
import subprocess
import sys

import pytest

from edge.client import SyncClient
from edge.jsap import Profile
from tests.support.commands import run_edge
from tests.support.waiting import PATIENCE, wait_for

KINDS = ["producer", "consumer", "aggregator", "negation"]


def new(*arguments):
    return run_edge(["new", *arguments], os.environ, seconds=PATIENCE)


@pytest.fixture
def start(tmp_path):
    """Start a program; its output goes to a file that the test can read meanwhile."""
    started = []

    def run(program, gateway, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("EDGE_")}
        environment = {**kept, "EDGE_URL": gateway.url, **environment}
        out, err = program.with_suffix(".out"), program.with_suffix(".err")
        with out.open("w") as stdout, err.open("w") as stderr:
            process = subprocess.Popen([sys.executable, program], stdout=stdout, stderr=stderr, env=environment)
        process.received = out.read_text
        process.complained = err.read_text
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait(10)


def skeleton(kind, directory):
    """Return the generated program of a kind."""
    assert new(kind, directory).returncode == 0
    return directory / f"{kind}.py"


def update(client, program, name, **bindings):
    """Send an update of the program's profile."""
    client.update(Profile.load(program.with_suffix(".jsap")).update(name).text(bindings))


def test_the_three_agents_work_together(empty_gateway, tmp_path, start):
    programs = {kind: start(skeleton(kind, tmp_path), empty_gateway) for kind in KINDS[:3]}
    with SyncClient(empty_gateway.endpoints) as client:
        wait_for(
            lambda: client.ask("ASK { ?sensor <http://example.org/alarm> ?alarm }"),
            what="the aggregator's update",
        )
    for kind, words in [("producer", "sent "), ("consumer", "cellar/temperature"), ("aggregator", "cellar has ")]:
        wait_for(lambda kind=kind, words=words: words in programs[kind].received(), what=f"the {kind}'s words")
    for number, process in zip((signal.SIGINT, signal.SIGTERM, signal.SIGINT), programs.values(), strict=True):
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
        assert process.complained() == ""


def test_a_program_may_start_before_the_gateway(absent_gateway, tmp_path, start):
    consumer = start(skeleton("consumer", tmp_path), absent_gateway)
    wait_for(lambda: "trying again" in consumer.complained(), what="the consumer misses the gateway")
    absent_gateway.start()
    wait_for(lambda: "0 now" in consumer.received(), what="the first result")
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(PATIENCE) == 0


def test_the_negation_notices_a_missing_event(empty_gateway, tmp_path, start):
    program = skeleton("negation", tmp_path)
    program.write_text(program.read_text().replace("timedelta(seconds=30)", "timedelta(seconds=1.5)"))
    light = start(program, empty_gateway)
    with SyncClient(empty_gateway.endpoints) as client:
        client.publish(True, sensor="http://example.org/door", property="http://example.org/presence")
        wait_for(lambda: "door-lamp ON" in light.received(), what="the lamp is on")
        update(client, program, "SENSED", sensor="http://example.org/door", presence=False)
        update(client, program, "SENSED", sensor="http://example.org/door", presence=True)
        update(client, program, "SENSED", sensor="http://example.org/door", presence=False)
        wait_for(lambda: "door-lamp OFF" in light.received(), what="the lamp is off")
    with SyncClient(empty_gateway.endpoints) as client:
        wait_for(lambda: not client.timers("pending"), what="all timers")
        assert sorted(timer.state for timer in client.timers()) == ["done", "unchanged"]
    assert light.received().count("OFF") == 1
    light.send_signal(signal.SIGTERM)
    assert light.wait(PATIENCE) == 0


def test_a_sensor_that_repeats_itself_keeps_no_lamp_on(empty_gateway, tmp_path, start):
    program = skeleton("negation", tmp_path)
    program.write_text(program.read_text().replace("timedelta(seconds=30)", "timedelta(seconds=1.5)"))
    light = start(program, empty_gateway)
    with SyncClient(empty_gateway.endpoints) as client:
        others = {timer.id for timer in client.timers()}
    with SyncClient(empty_gateway.endpoints) as client:
        door = {"sensor": "http://example.org/door", "property": "http://example.org/presence"}
        client.publish(True, **door)
        wait_for(lambda: "door-lamp ON" in light.received(), what="the lamp is on")

        def off():
            client.publish(False, **door)
            return "door-lamp OFF" in light.received()

        wait_for(off, what="the lamp is off, though the sensor goes on")
    with SyncClient(empty_gateway.endpoints) as client:
        (timer,) = [timer for timer in client.timers() if timer.id not in others]
        assert timer.state == "done"


def test_a_producer_reports_a_missing_gateway_and_continues_when_it_starts(absent_gateway, tmp_path, start):
    producer = start(skeleton("producer", tmp_path), absent_gateway)
    wait_for(lambda: "trying again" in producer.complained(), what="the producer misses the gateway")
    (line,) = producer.complained().splitlines()
    assert "no connection to http://" in line
    assert line.endswith("Is the gateway running (`edge run`)? EDGE_URL sets its address")
    absent_gateway.start()
    wait_for(lambda: "sent" in producer.received(), what="the first value")
    producer.send_signal(signal.SIGINT)
    assert producer.wait(PATIENCE) == 0


def test_a_program_ends_with_one_line(empty_gateway, tmp_path, start):
    program = skeleton("producer", tmp_path)
    profile = program.with_suffix(".jsap")
    load = '"sparql": "LOAD ?sensor ; INSERT DATA { <urn:s> <urn:p> ?value }"'
    profile.write_text(re.sub(r'"sparql": ".*"', load, profile.read_text()))
    producer = start(program, empty_gateway)
    assert producer.wait(PATIENCE) == 1
    (line,) = producer.complained().splitlines()
    assert "LOAD is disabled" in line


def test_a_program_finds_the_gateway_of_this_machine(empty_gateway, tmp_path, start):
    consumer = start(
        skeleton("consumer", tmp_path), empty_gateway, EDGE_URL="", EDGE__DATA_DIR=str(empty_gateway.data_dir)
    )
    wait_for(lambda: "0 now" in consumer.received(), what="the first result")
    with SyncClient(empty_gateway.url) as client:
        client.publish(21.5, sensor="http://example.org/attic", property="http://example.org/temperature")
    wait_for(lambda: "attic/temperature" in consumer.received(), what="the observation")


@pytest.mark.parametrize("kind", KINDS)
def test_existing_files_are_not_overwritten_without_force(tmp_path, kind):
    done = new(kind, tmp_path / "deep" / "mine.py")
    assert (done.returncode, done.stderr) == (0, "")
    program, profile = tmp_path / "deep" / "mine.py", tmp_path / "deep" / "mine.jsap"
    assert str(program) in done.stdout
    assert len(program.read_text().splitlines()) < 40
    assert Profile.load(profile)
    original = profile.read_text()
    for file in (program, profile):
        for other in (program, profile):
            other.unlink(missing_ok=True)
        file.write_text("mine")
        done = new(kind, program)
        assert done.returncode == 2
        assert str(file) in done.stderr
        assert "--force" in done.stderr
        assert file.read_text() == "mine"
        assert {program.exists(), profile.exists()} == {True, False}
    assert new(kind, program, "--force").returncode == 0
    assert profile.read_text() == original


def test_a_directory_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    done = new("consumer", tmp_path / "file" / "inside")
    assert done.returncode == 2
    assert done.stderr.startswith("edge: cannot write")


def test_a_name_of_another_kind_of_file_is_refused(tmp_path):
    done = new("consumer", tmp_path / "x.txt")
    assert done.returncode == 2
    assert str(tmp_path / "x.py") in done.stderr
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "house.d").mkdir()
    assert new("consumer", tmp_path / "house.d").returncode == 0
    assert (tmp_path / "house.d" / "consumer.py").exists()


def test_the_kinds_are_listed(tmp_path):
    done = new("nonsense")
    assert done.returncode == 2
    assert all(kind in done.stderr for kind in KINDS)
