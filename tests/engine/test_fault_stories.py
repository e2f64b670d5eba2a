"""Random stories with injected faults: only the faulty subscription ends; all others agree with the naive engine."""

from __future__ import annotations

import random

import pytest
from engine_world import EVERYTHING, NOW, Watched, World, _request
from fault_injection import ERRORS, POINTS, Injector, injector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from story import Subscribe, draw
from test_fault_isolation import armed

from edge.engine.requests import SubscribeFailed
from edge.protocol.errors import NotFound
from tests.support.examples import examples

__all__ = ["injector"]


class FaultyWorld(World):
    """Both engines, with faults in one of them. Ended subscriptions are not compared."""

    def __init__(self, injector: Injector, author: random.Random) -> None:
        super().__init__()
        self.injector = injector
        self.author = author
        self.ended = 0

    def aim(self) -> None:
        """Choose the fault of the next update."""
        author = self.author
        point, error = author.choice(POINTS), author.choice(ERRORS)
        after, lasting = author.random() < 0.5, author.random() < 0.3
        self.injector.aim(point, author.choice((0, 0, 1, 2, 5, 11)), error, after=after, lasting=lasting)

    def _reap(self) -> None:
        """Remove the ended subscriptions."""
        for name, each in list(self.watched.items()):
            if each.received and isinstance(each.received[-1], SubscribeFailed):
                del self.watched[name]
                with pytest.raises(NotFound):
                    self.engine.unsubscribe(each.spuid)
                self.ended += 1

    def _check_unchanged(self, quads, graphs) -> None:  # type: ignore[no-untyped-def]
        self.injector.point = None
        self._reap()
        super()._check_unchanged(quads, graphs)
        self.aim()

    def _check_graph(self) -> None:
        self.injector.point = None
        self._reap()
        super()._check_graph()

    def _check_delta(self, each: Watched) -> None:
        if each.received and isinstance(each.received[-1], SubscribeFailed):
            return
        super()._check_delta(each)


@given(st.integers(min_value=0, max_value=2**63))
@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_story_with_faults(injector: Injector, seed: int) -> None:
    tell(injector, seed)


def tell(injector: Injector, seed: int) -> tuple[int, int]:
    """Run a story. Return the number of faults and of ended subscriptions."""
    injector.raised = 0
    injector.point = None
    world = FaultyWorld(injector, random.Random(seed))
    with armed(world.engine, injector):
        for step in draw(seed):
            if not isinstance(step, Subscribe):
                world.aim()
            step.tell(world)
            injector.point = None
    assert world.engine.spus.delivery.faults >= world.ended
    world.check_restored()
    spus = world.engine.spus
    if world._everything not in spus.registry.by_spuid:  # it ended like others
        world._everything = world.engine.subscribe(_request(EVERYTHING), lambda _: None, None, NOW).spuid
    world.check_no_leak()
    assert spus.registry.memory.held == 0
    return injector.raised, world.ended
