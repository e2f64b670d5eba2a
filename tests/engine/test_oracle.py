"""The engine against the naive engine, over generated data, updates and queries.

By hand: `ORACLE_EXAMPLES=5000 pytest tests/engine/test_oracle.py` runs for longer, `ORACLE_SHRINK=1` looks for the
smallest example of what it found, which can take minutes.
"""

from __future__ import annotations

import os

import pytest
from engine_world import World
from generated_sparql import PREFIX, query, seed, update
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

_EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "0"))
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if os.environ.get("ORACLE_SHRINK") else [])]


def budget(examples: int) -> settings:
    return settings(
        max_examples=_EXAMPLES or examples,
        phases=_PHASES,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.timeout(0 if _EXAMPLES or len(_PHASES) > 3 else 120)
@budget(200)
@given(st.lists(query(), min_size=1, max_size=4), seed, st.lists(update, min_size=1, max_size=6))
def test_engine_equals_oracle(queries, first, updates):
    world = World()
    world.update(first, PREFIX)
    for each in queries:
        world.subscribe(each)
    for operations in updates:
        world.update(operations, PREFIX)
    for each in queries:
        world.check_query(each)
    world.check_restored()
    world.check_no_leak()
