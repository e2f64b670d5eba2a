"""The engine against the naive engine, over generated stories of data, updates and subscriptions.

CI tells a fixed number of fixed stories. By hand: `ORACLE_EXAMPLES=5000 pytest tests/engine/test_oracle.py` tells as
many new ones, `ORACLE_SEED=17 pytest tests/engine/test_oracle.py` one again. What fails is cut down to what it takes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest
from features import features
from shrink import as_test, shrunk
from story import draw, tell

EXAMPLES = int(os.environ.get("ORACLE_EXAMPLES", "0"))
STORIES = 300
SEED = os.environ.get("ORACLE_SEED")
OPERATORS = ("OPTIONAL", "MINUS", "UNION", "GRAPH ?g", "EXISTS", "NOT EXISTS", "sub-select", "FILTER", "BIND")
GROUPED = ("GROUP BY", "HAVING", "COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT", "grouped sub-select")
OTHERS = ("VALUES", "UNDEF", "path", "DISTINCT", "LIMIT", "GRAPH", "FROM", "FROM NAMED", "ASK", "CONSTRUCT", "DESCRIBE")
WITHIN = ("OPTIONAL", "MINUS", "UNION")


def seeds() -> Iterable[int]:
    if SEED is not None:
        return [int(SEED)]
    first = random.randrange(2**40) if EXAMPLES else 0
    return range(first, first + (EXAMPLES or STORIES))


@pytest.mark.timeout(0 if EXAMPLES else 300)
def test_engine_equals_oracle():
    told: set[str] = set()
    for seed in seeds():
        story = draw(seed)
        try:
            for query in tell(story):
                told |= features(query.text)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  whatever it is, it is cut down and told
            pytest.fail(f"{type(error).__name__}: {error}\nORACLE_SEED={seed}\n\n{as_test(shrunk(story))}")
    if SEED is None and not 0 < EXAMPLES < STORIES:
        matter = {*OPERATORS, *GROUPED, *OTHERS, *(f"{inner} in {outer}" for inner in OPERATORS for outer in WITHIN)}
        assert matter - told == set(), "stories in which nobody is told of these prove nothing about them"
