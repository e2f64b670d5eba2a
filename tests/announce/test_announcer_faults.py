"""Faults of the announcer: defects in its work, and rights that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge.adapters.settings import MqttSettings
from edge.announce.announcer import Announcer
from edge.announce.settings import AnnounceSettings
from edge.announce.topics import Place
from edge.announce.work_faults import WorkFaults
from edge.engine.requests import UpdateRequest
from edge.engine.start import open_engine
from edge.protocol.access import ANYBODY, Access
from edge.protocol.errors import EdgeError
from tests.support.waiting import wait_for

OBSERVATION = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
INSERT DATA { <urn:o> a sosa:Observation ; sosa:hasResult <urn:q> . <urn:q> qudt:numericValue 1 }"""


@contextmanager
def announcing(
    directory: Path,
    access: Callable[[], Access | None] = lambda: ANYBODY,
    settable: Callable[[Sequence[str]], Mapping[str, Mapping[str, object]]] = lambda _: {},
) -> Iterator[Announcer]:
    """Yield an announcer whose broker never comes."""
    engine = open_engine(None)
    engine.update([UpdateRequest(OBSERVATION)]).result(20)
    announcer = Announcer(
        engine,
        MqttSettings(broker="mqtt://127.0.0.1:1", client_id="gw"),
        AnnounceSettings(home_assistant=True),
        Place("homeassistant", "sepa", "gw"),
        access=access,
        settable=settable,
        mapper=lambda: None,
        queries_dir=directory,
    )
    # No broker has retained messages to wait for.
    announcer._ready_at = 0.0
    announcer.start()
    try:
        yield announcer
    finally:
        announcer.stop(5)
        assert engine.close()


def test_a_defect_in_the_work_pauses_it_and_is_logged_once(tmp_path, caplog, monkeypatch):
    calls = []

    def defect(observations: Sequence[str]) -> Mapping[str, Mapping[str, object]]:
        calls.append(observations)
        if len(calls) < 3:
            raise RuntimeError("a defect")
        return {}

    pauses: list[float] = []
    failed = WorkFaults.failed

    def fail(self: WorkFaults, error: Exception, now: float) -> None:
        failed(self, error, now)
        pauses.append(self.retry_at - now)
        assert "a defect" in self.fault
        self.retry_at = now

    monkeypatch.setattr(WorkFaults, "failed", fail)
    with caplog.at_level(logging.ERROR), announcing(tmp_path, settable=defect) as announcer:
        wait_for(lambda: announcer.entities == 1, what="the entity")
        assert announcer.fault == ""
        assert announcer.alive
    assert calls == [["urn:o"]] * 3
    assert 0.5 <= pauses[0] <= 1
    assert 1 <= pauses[1] <= 2
    assert caplog.text.count("announce.fault") == 1


def test_a_defect_in_an_event_does_not_end_the_thread(tmp_path, caplog):
    with caplog.at_level(logging.ERROR), announcing(tmp_path) as announcer:
        for _ in range(10):
            announcer._events.put(lambda: 1 / 0)
        wait_for(lambda: announcer.entities == 1, what="the entity")
    assert caplog.text.count("announce.fault") == 1


def test_while_the_rights_were_never_read_nothing_is_announced_or_removed(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("edge.announce.announcer._LOOK", 0.01)
    reads: list[int] = []
    rights: list[Access | None] = []

    def access() -> Access | None:
        reads.append(1)
        if not rights:
            raise EdgeError("the list is damaged")
        return rights[0]

    with caplog.at_level(logging.ERROR), announcing(tmp_path, access) as announcer:
        state = announcer._place.state("of_an_earlier_run")
        announcer._events.put(lambda: announcer._found_retained(state))
        wait_for(lambda: len(reads) > 20, what="some attempts")
        assert "the list is damaged" in announcer.fault
        assert (announcer.entities, len(announcer._outgoing), list(announcer._found)) == (0, 1, [state])
        rights.append(ANYBODY)
        wait_for(lambda: announcer.entities == 1, what="the entity")
        assert announcer.fault == ""
        wait_for(lambda: not announcer._found, what="the removal")
        # Known rights stay while they cannot be read.
        rights.clear()
        wait_for(lambda: announcer.fault, what="the fault")
        assert announcer.entities == 1
    assert caplog.text.count("announce.rights_unreadable") == 2


def test_a_client_that_is_not_registered_when_the_list_is_read_again_has_no_rights(tmp_path, monkeypatch):
    monkeypatch.setattr("edge.announce.announcer._LOOK", 0.01)
    readable: list[int] = []

    def access() -> Access | None:
        if not readable:
            raise EdgeError("the list is damaged")
        return None

    with announcing(tmp_path, access) as announcer:
        wait_for(lambda: "damaged" in announcer.fault, what="the fault")
        readable.append(1)
        wait_for(lambda: "announce.client" in announcer.fault, what="the other fault")
        assert announcer.entities == 0


def test_the_fault_names_a_broker_that_does_not_come(tmp_path, monkeypatch):
    with announcing(tmp_path) as announcer:
        assert announcer.fault == ""
        monkeypatch.setattr("edge.announce.outgoing._DOWN", 0.0)
        assert "mqtt://127.0.0.1:1 is not connected" in announcer.fault


def test_errors_that_differ_are_logged_up_to_a_limit(caplog):
    faults = WorkFaults()
    with caplog.at_level(logging.ERROR):
        for number in range(1000):
            faults.failed(ValueError(number), 0.0)
    assert caplog.text.count("announce.fault") == pytest.approx(100)
    assert 30 <= faults.retry_at <= 60
    faults.succeeded()
    assert faults.fault == ""
