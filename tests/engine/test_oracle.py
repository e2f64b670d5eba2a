"""The engine against the naive engine, over generated data, updates and queries.

By hand: `ORACLE_EXAMPLES=5000 pytest tests/engine/test_oracle.py` runs for longer than CI does. What is found is cut
down to the subscriptions and updates that it takes.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from engine_world import World
from generated_patterns import PREFIX
from generated_sparql import Story, seeds, story
from hypothesis import HealthCheck, Phase, given, settings

EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "0"))


def tell(told: Story) -> None:
    """Live through a story on both engines."""
    world = World()
    world.update(told.first, PREFIX)
    for query in told.queries:
        world.subscribe(query)
    for operations in told.updates:
        world.update(operations, PREFIX)
    for query in told.queries:
        world.check_query(query)
    world.check_restored()
    world.check_no_leak()


def cut_down(told: Story, error: type[Exception]) -> Story:
    """A story with fewer parts that ends with the same kind of error."""

    def fails(shorter: Story) -> bool:
        try:
            tell(shorter)
        except error:
            return True
        except Exception:  # noqa: BLE001  another error is another story
            return False
        return False

    for part in ("queries", "updates"):
        for index in reversed(range(len(getattr(told, part)))):
            rest = getattr(told, part)
            shorter = replace(told, **{part: rest[:index] + rest[index + 1 :]})
            if fails(shorter):
                told = shorter
    for index, operations in enumerate(told.updates):
        for which in reversed(range(len(operations))):
            rest = told.updates[index]
            shorter = replace(
                told, updates=[*told.updates[:index], rest[:which] + rest[which + 1 :], *told.updates[index + 1 :]]
            )
            if len(rest) > 1 and fails(shorter):
                told = shorter
    return told


@pytest.mark.timeout(0 if EXAMPLES else 300)
@settings(
    max_examples=EXAMPLES or 300,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(seeds)
def test_engine_equals_oracle(seed):
    told = story(seed)
    try:
        tell(told)
    except Exception as error:  # noqa: BLE001  whatever it is, it is cut down and told
        pytest.fail(f"{type(error).__name__}: {error}\nseed {seed}: {cut_down(told, type(error))}")
