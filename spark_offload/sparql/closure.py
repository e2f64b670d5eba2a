"""Paths of one or more steps (SPARQL 1.1 Query, section 18.4, ALP), by iteration until all pairs are found.

The steps are evaluated once. A graph of up to `MAX_LOCAL_STEPS` steps is searched in this process, because a round
of Spark jobs takes longer. Larger ones are joined in Spark, where each round continues only from the newest pairs, and
its result is a checkpoint, so that the plan does not grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from edge.sparql.algebra import Variable
from spark_offload import compat
from spark_offload.errors import QueryRefused
from spark_offload.local_rows import local_frame
from spark_offload.sparql import terms
from spark_offload.sparql.frames import Frame, frame
from spark_offload.sparql.relational import TransitiveClosure
from spark_offload.sparql.values import TermValue, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_LOCAL_STEPS: Final = 50_000
"""Number of different steps up to which this process searches them."""
MAX_PAIRS: Final = 10_000_000
"""Number of pairs that a path may connect."""
MAX_LOCAL_PAIRS: Final = 500_000
"""Number of pairs that this process may find; more are joined in Spark."""
MAX_ROUNDS: Final = 100
"""Number of rounds of joins. A round without a given end doubles the length of the paths."""

Step = tuple[str, str, str]
"""Graph, begin and end, as N-Triples texts."""
_COLUMNS: Final = ("graph", "begin", "end")


def closure(spark: SparkSession, steps: Frame, path: TransitiveClosure) -> Frame:
    """Return the distinct pairs of nodes that the steps connect. Runs Spark jobs.

    Raises `QueryRefused` beyond the limits.
    """
    graph = steps.values[path.graph.name].term() if isinstance(path.graph, Variable) else F.lit("")
    columns = (graph, steps.values[path.begin].term(), steps.values[path.end].term())
    named = (column.alias(name) for name, column in zip(_COLUMNS, columns, strict=True))
    with _Checkpoints() as made:
        known = made.add(steps.rows.select(*named).distinct())
        pairs = _searched(spark, known, path)
        if pairs is None:
            pairs = _iterated(known, path, made)
        made.keep(pairs)
    return _bound(pairs, path)


class _Checkpoints:
    """Local checkpoints of an iteration. At its end those that are not kept are freed, also after an error.

    Spark itself would free them only when Java collects its garbage, which a large heap delays for long.
    """

    def __init__(self) -> None:
        self._made: list[DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.free_except()

    def add(self, rows: DataFrame) -> DataFrame:
        """Make a checkpoint."""
        self._made.append(made := rows.localCheckpoint())
        return made

    def keep(self, kept: DataFrame) -> None:
        """Leave a checkpoint to its reader."""
        self._made = [one for one in self._made if one is not kept]

    def free_except(self, *used: DataFrame) -> None:
        """Free all checkpoints but these."""
        unused = [one for one in self._made if not any(one is other for other in used)]
        self._made = [one for one in self._made if any(one is other for other in used)]
        for one in unused:
            compat.release(one)


def _searched(spark: SparkSession, steps: DataFrame, path: TransitiveClosure) -> DataFrame | None:
    """Search the pairs in this process. Returns None if there are too many."""
    rows = steps.limit(MAX_LOCAL_STEPS + 1).collect()
    if len(rows) > MAX_LOCAL_STEPS:
        return None
    found: list[Step] = []
    for one in _reachable([(row[0], row[1], row[2]) for row in rows], path):
        found.append(one)
        if len(found) > MAX_LOCAL_PAIRS:
            return None
    return local_frame(spark, found, StructType([StructField(name, StringType()) for name in _COLUMNS]))


def _reachable(steps: Iterable[Step], path: TransitiveClosure) -> Iterator[Step]:
    """Yield the pairs, from the given end of the path if there is one."""
    back = isinstance(path.subject, Variable) and not isinstance(path.object, Variable)
    given = path.object if back else path.subject
    following: dict[tuple[str, str], list[str]] = defaultdict(list)
    for graph, begin, end in steps:
        one, other = (end, begin) if back else (begin, end)
        following[graph, one].append(other)
    start = None if isinstance(given, Variable) else terms.written(given)
    for graph, first in list(following):
        if start is not None and first != start:
            continue
        waiting, seen = [first], set[str]()
        while waiting:
            for node in following.get((graph, waiting.pop()), ()):
                if node not in seen:
                    seen.add(node)
                    waiting.append(node)
                    yield (graph, node, first) if back else (graph, first, node)


def _iterated(steps: DataFrame, path: TransitiveClosure, made: _Checkpoints) -> DataFrame:
    """Find the pairs by joins."""
    ends = [(name, node) for name, node in (("begin", path.subject), ("end", path.object))
            if not isinstance(node, Variable)]  # fmt: skip
    pairs = steps
    if ends:
        name, node = ends[0]
        pairs = made.add(steps.where(F.col(name) == terms.written(node)))
    newest = pairs
    for _ in range(MAX_ROUNDS):
        if not ends:
            longer = _composed(newest, pairs)
        elif ends[0][0] == "begin":
            longer = _composed(newest, steps)
        else:
            longer = _composed(steps, newest)
        newest = made.add(longer.join(pairs, list(_COLUMNS), "left_anti").limit(MAX_PAIRS + 1))
        if newest.isEmpty():
            return pairs
        pairs = made.add(pairs.unionByName(newest))
        made.free_except(steps, newest, pairs)
        if pairs.count() > MAX_PAIRS:
            raise QueryRefused(
                f"a path with * or + connects more than {MAX_PAIRS:,} pairs of nodes. Begin it at an IRI, "
                "or follow fewer predicates"
            )
    raise QueryRefused(f"a path with * or + needs more than {MAX_ROUNDS} rounds. Use a shorter path")


def _composed(first: DataFrame, second: DataFrame) -> DataFrame:
    """Return the distinct paths that consist of one of `first` and then one of `second`."""
    after = second.select(*(F.col(name).alias(f"next {name}") for name in _COLUMNS))
    joined = first.join(after, (F.col("graph") == F.col("next graph")) & (F.col("end") == F.col("next begin")))
    return joined.select("graph", "begin", F.col("next end").alias("end")).distinct()


def _bound(pairs: DataFrame, path: TransitiveClosure) -> Frame:
    """Return the pairs whose ends are those of the path."""
    conditions: list[Column] = []
    values: dict[str, Value] = {}
    for name, node in (("begin", path.subject), ("end", path.object), ("graph", path.graph)):
        if name != "graph" and not isinstance(node, Variable | tuple) and node is not None:
            conditions.append(F.col(name) == terms.written(node))
        elif isinstance(node, Variable):
            if node.name in values:
                conditions.append(F.col(name) == values[node.name].term())
            values.setdefault(node.name, TermValue(F.col(name)))
    rows = pairs.where(reduce(Column.__and__, conditions)) if conditions else pairs
    return frame(rows, values, values)
