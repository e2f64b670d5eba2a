"""Duration of questions in SPARQL, compared with the same questions written by hand on DataFrames."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge.bench.experiment import ExperimentError, steps
from edge.outbox.observation import DATE_TIME_STAMP, XSD
from spark_offload.bench.figures import HistoryFigure
from spark_offload.bench.questions import PREFIXES, Question, questions
from spark_offload.history import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATIO: Final = 1.2


def measure(spark: SparkSession, table: Path, rows: int, runs: int) -> list[HistoryFigure]:
    """Measure each question in both forms, from its text until the rows are in Python.

    A first round warms up and compares the results; a difference raises `ExperimentError`. The order of the two forms
    alternates between runs.
    """
    history = History(spark, str(table))
    observations = spark.read.format("delta").load(str(table))
    seconds: dict[str, list[float]] = defaultdict(list)
    asked = questions(rows)
    for question in asked:
        _compare(question, history.sparql(PREFIXES + question.sparql), question.by_hand(observations))
    for run in steps(range(runs), "questions"):
        for question in asked:
            # The second of two equal reads finds the files in the page cache.
            for side in ("sparql", "hand") if run % 2 else ("hand", "sparql"):
                began = time.perf_counter()
                by_hand = side == "hand"
                answer = question.by_hand(observations) if by_hand else history.sparql(PREFIXES + question.sparql)
                answer.collect()
                seconds[f"{question.name}_{side}"].append(time.perf_counter() - began)
    figures = []
    for question in asked:
        mine, plain = seconds[f"{question.name}_sparql"], seconds[f"{question.name}_hand"]
        ratios = [ours / theirs for ours, theirs in zip(mine, plain, strict=True)]
        figures += [
            HistoryFigure(f"{question.name}_s", f"{question.meaning}, seconds in SPARQL", mine),
            HistoryFigure(f"{question.name}_ratio", "… / by hand on DataFrames", ratios, RATIO),
        ]
    return figures


def _compare(question: Question, in_sparql: DataFrame, by_hand: DataFrame) -> None:
    mine, plain = (sorted(tuple(map(_value, row)) for row in rows.collect()) for rows in (in_sparql, by_hand))
    if len(mine) != len(plain):
        raise ExperimentError(f"{question.name}: SPARQL gave {len(mine)} rows, DataFrames {len(plain)}")
    for one, other in zip(mine, plain, strict=True):
        if not all(map(_equal, one, other)):
            raise ExperimentError(f"{question.name}: SPARQL gave {one}, DataFrames {other}")


def _equal(one: str | float, other: str | float) -> bool:
    """Compare two cells. Doubles may differ slightly, because a sum depends on the order in which Spark adds."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def _value(cell: object) -> str | float:
    """Return a comparable value of an N-Triples term or a DataFrame cell. Times are seconds since 1970, as text."""
    if isinstance(cell, str):
        if not (literal := _LITERAL.fullmatch(cell)):
            return cell.strip("<>")
        text, datatype = literal.groups()
        # A DataFrame has a datetime for the same time: compare both as seconds.
        if datatype == DATE_TIME_STAMP:
            return _value(datetime.fromisoformat(text))
        return float(text) if datatype in _NUMBERS else text
    if isinstance(cell, datetime):
        return f"{cell.timestamp():.6f}"
    return float(cell) if isinstance(cell, int | float) else str(cell)


_LITERAL: Final = re.compile(r'"(.*)"(?:\^\^<(.*)>)?')
_NUMBERS: Final = [XSD + name for name in ("decimal", "double", "float", "integer")]
