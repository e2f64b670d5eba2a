"""The limit of the live graph in bytes: refused updates, and updates that a full graph still accepts."""

from __future__ import annotations

import pytest

from edge.engine.requests import UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.protocol.access import ACTIONS, ANYBODY, Access
from edge.protocol.errors import UpdateFailed

LIMIT = 1_000_000
USERS = ACTIONS - {"administer"}
ALICE = Access("alice", USERS, registration="1")
BOB = Access("bob", USERS, registration="2")
OPERATOR = Access("operator", registration="3")


class Harness:
    """An engine with a small graph."""

    def __init__(self) -> None:
        self.scheduler = open_engine(None, EngineSettings(max_graph_bytes=LIMIT))
        self._number = 0

    def update(self, sparql: str, access: Access = ANYBODY, source: str = "someone") -> int:
        request = UpdateRequest(sparql, access=access, source=source)
        return self.scheduler.update([request]).result(20)[0].added

    def add(self, count: int, access: Access = ANYBODY, source: str = "someone", text: str = "") -> int:
        first, self._number = self._number, self._number + count
        triples = " ".join(f'<urn:{n}> <urn:p> "{n}{text}" .' for n in range(first, first + count))
        return self.update(f"INSERT DATA {{ {triples} }}", access, source)

    def fill(self, access: Access = ANYBODY, source: str = "someone") -> int:
        """Add triples until the engine refuses; return their number."""
        added = 0
        while added < LIMIT:
            try:
                added += self.add(10, access, source)
            except UpdateFailed:
                return added
        pytest.fail("nothing was refused")


@pytest.fixture
def harness():
    harness = Harness()
    yield harness
    assert harness.scheduler.close()


def test_a_graph_does_not_exceed_its_limit_and_a_refused_update_changes_nothing(harness):
    added = harness.fill()
    assert 850 <= added <= 960, "about 950 bytes each, up to nine tenths"
    assert harness.scheduler.quads == added


def test_a_full_graph_can_be_overwritten_and_emptied(harness):
    harness.fill()
    harness.update('DELETE { <urn:0> <urn:p> ?o } INSERT { <urn:0> <urn:p> "new" } WHERE { <urn:0> <urn:p> ?o }')
    harness.update("DELETE WHERE { ?s <urn:p> ?o }")
    assert harness.add(10) == 10


def test_sensors_and_administrators_have_a_reserve(harness):
    harness.fill()
    assert harness.add(10, source="") == 10
    assert harness.add(10, OPERATOR, "operator") == 10
    assert 60 <= harness.fill(source="") <= 100
    with pytest.raises(UpdateFailed, match=r"engine\.max_graph_bytes"):
        harness.add(10, OPERATOR, "operator")


def test_one_client_cannot_use_the_whole_quota(harness):
    first = harness.fill(ALICE, "alice")
    second = harness.fill(BOB, "bob")
    assert 400 <= first <= 650
    assert 100 <= second <= first
    harness.update("DELETE WHERE { ?s <urn:p> ?o }", ALICE, "alice")
    assert harness.add(10, ALICE, "alice") == 10


def test_a_delayed_update_counts_for_its_client(harness):
    """It runs in the name of its client, though the gateway starts it."""
    assert harness.fill(ALICE, "") <= 650


def test_long_texts_count_by_their_length(harness):
    with pytest.raises(UpdateFailed):
        harness.add(1, text="x" * LIMIT)
    assert harness.add(1, text="x" * (LIMIT // 2)) == 1
    with pytest.raises(UpdateFailed):
        harness.add(1, text="y" * (LIMIT // 2))
    assert harness.scheduler.quads == 1


def test_the_default_is_a_part_of_the_machine(harness):
    settings = EngineSettings(max_graph_bytes=0)
    scheduler = open_engine(None, settings)
    assert scheduler.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }", source="x")]).result(20)[0].added == 1
    assert scheduler.close()
