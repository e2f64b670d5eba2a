"""The engine against the naive engine, over generated stories of data, updates and subscriptions.

CI runs a fixed set of stories. `ORACLE_EXAMPLES=5000 pytest tests/engine/test_oracle.py` runs as many new ones, and
`ORACLE_SEED=17 pytest tests/engine/test_oracle.py` repeats one. A failing story is reduced to a minimal one.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Sequence, Set

import pytest
from features import features
from shrink import as_test, shrunk
from story import Story, draw, limited, tell

from edge.engine.subscriptions import broad_changes, delta_evaluation

EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "0"))
STORIES = 300
SEED = os.environ.get("ORACLE_SEED")
OPERATORS = ("OPTIONAL", "MINUS", "UNION", "GRAPH ?g", "EXISTS", "NOT EXISTS", "sub-select", "FILTER", "BIND")
GROUPED = ("GROUP BY", "HAVING", "COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT", "grouped sub-select")
OTHERS = ("VALUES", "UNDEF", "path", "DISTINCT", "LIMIT", "GRAPH", "FROM", "FROM NAMED", "ASK", "CONSTRUCT", "DESCRIBE")
WITHIN = ("OPTIONAL", "MINUS", "UNION")


def seeds() -> Sequence[int]:
    if SEED is not None:
        return [int(SEED)]
    first = random.randrange(2**40) if EXAMPLES else 0
    return range(first, first + (EXAMPLES or STORIES))


SEEDS = seeds()
PARTS = [tuple(SEEDS[at : at + 10]) for at in range(0, len(SEEDS), 10)]


@functools.lru_cache(STORIES)
def drawn(seed: int) -> Story:
    """Draw the story of a seed. Several tests run the same stories, and the rehearsal takes a fifth of the time."""
    return draw(seed)


@functools.cache
def notified(part: Sequence[int]) -> Set[str]:
    """Run stories on both engines. Return the features of the queries whose subscribers were notified."""
    found: set[str] = set()
    for seed in part:
        story = drawn(seed)
        try:
            for query in tell(story):
                found |= features(query.text)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever it is, the story is cut down
            pytest.fail(f"{type(error).__name__}: {error}\nORACLE_SEED={seed}\n\n{as_test(shrunk(story))}")
    return found


@pytest.mark.parametrize("part", PARTS, ids=lambda part: f"{part[0]}-{part[-1]}")
def test_engine_equals_oracle(part):
    notified(part)


@pytest.mark.parametrize("part", PARTS[:10], ids=lambda part: f"{part[0]}-{part[-1]}")
def test_clients_with_permissions_see_their_graphs_only(part):
    for seed in part:
        story = limited(drawn(seed), seed)
        try:
            tell(story)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever it is, the story is cut down
            pytest.fail(f"{type(error).__name__}: {error}\nORACLE_SEED={seed}\n\n{as_test(shrunk(story))}")


@pytest.mark.parametrize("part", PARTS[10:20], ids=lambda part: f"{part[0]}-{part[-1]}")
@pytest.mark.parametrize("steps", [3, 30])
def test_broad_changes_are_evaluated_as_a_whole(part, steps, monkeypatch):
    """Also if an attempt ends early, in either state."""
    monkeypatch.setattr(delta_evaluation, "BROAD", 1)
    monkeypatch.setattr(broad_changes, "_STEPS", steps)
    monkeypatch.setattr(broad_changes, "_LONGEST_PAUSE", 0)
    for seed in part:
        tell(drawn(seed))


@pytest.mark.timeout(0 if EXAMPLES else 300)  # it runs all stories if it is selected alone
@pytest.mark.skipif(SEED is not None or 0 < EXAMPLES < STORIES, reason="a few stories do not contain everything")
def test_the_stories_contain_every_feature():
    """A feature is not tested if no subscriber of it gets a notification."""
    matter = {*OPERATORS, *GROUPED, *OTHERS, *(f"{inner} in {outer}" for inner in OPERATORS for outer in WITHIN)}
    assert matter - set().union(*map(notified, PARTS)) == set()
