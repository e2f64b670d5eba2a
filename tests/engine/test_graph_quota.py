"""The limit of the live graph in bytes: refused updates, and updates that a full graph still accepts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge.engine import EngineSettings, open_engine
from edge.engine.requests import UpdateRequest
from edge.protocol.access import ACTIONS, ANYBODY, Access
from edge.protocol.errors import UpdateFailed

LIMIT = 1_000_000
USERS = ACTIONS - {"administer"}
ALICE = Access("alice", USERS, registration="1")
BOB = Access("bob", USERS, registration="2")
OPERATOR = Access("operator", registration="3")


class House:
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
def house():
    house = House()
    yield house
    assert house.scheduler.close()


def test_a_graph_does_not_grow_beyond_its_limit_and_nothing_of_a_refused_update_is_there(house):
    added = house.fill()
    assert 850 <= added <= 960, "about 950 bytes each, up to nine tenths"
    assert house.scheduler.quads == added


def test_a_full_graph_can_be_overwritten_and_emptied(house):
    house.fill()
    house.update('DELETE { <urn:0> <urn:p> ?o } INSERT { <urn:0> <urn:p> "new" } WHERE { <urn:0> <urn:p> ?o }')
    house.update("DELETE WHERE { ?s <urn:p> ?o }")
    assert house.add(10) == 10


def test_sensors_and_administrators_have_a_reserve(house):
    house.fill()
    assert house.add(10, source="") == 10
    assert house.add(10, OPERATOR, "operator") == 10
    assert 60 <= house.fill(source="") <= 100
    with pytest.raises(UpdateFailed, match=r"engine\.max_graph_bytes"):
        house.add(10, OPERATOR, "operator")


def test_one_client_leaves_as_much_to_others(house):
    first = house.fill(ALICE, "alice")
    second = house.fill(BOB, "bob")
    assert 400 <= first <= 650
    assert 100 <= second <= first
    house.update("DELETE WHERE { ?s <urn:p> ?o }", ALICE, "alice")
    assert house.add(10, ALICE, "alice") == 10


def test_an_update_that_is_given_to_run_later_counts_for_its_client(house):
    """It runs in the name of its client, though the gateway starts it."""
    assert house.fill(ALICE, "") <= 650


def test_long_texts_count_by_their_length(house):
    with pytest.raises(UpdateFailed):
        house.add(1, text="x" * LIMIT)
    assert house.add(1, text="x" * (LIMIT // 2)) == 1
    with pytest.raises(UpdateFailed):
        house.add(1, text="y" * (LIMIT // 2))
    assert house.scheduler.quads == 1


def test_the_default_is_a_part_of_the_machine(house):
    settings = replace(EngineSettings(), max_graph_bytes=0)
    scheduler = open_engine(None, settings)
    assert scheduler.update([UpdateRequest("INSERT DATA { <urn:a> <urn:b> 1 }", source="x")]).result(20)[0].added == 1
    assert scheduler.close()
