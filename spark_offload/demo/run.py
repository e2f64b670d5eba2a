"""Run of the demonstration: generate, ingest, ask, report."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spark_offload.demo.city import write_segments
from spark_offload.demo.questions import PREFIXES, QUESTIONS
from spark_offload.demo.report import Answer, report
from spark_offload.history import History
from spark_offload.ingest import ingest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(spark: SparkSession, folder: Path, days: int, seed: int, say: Callable[[str], None]) -> str:
    """Make a landing zone and a table in a directory, ask the questions, and return the report in HTML.

    `say` receives a line for each step.
    """
    landing, table = folder / "landing", folder / "table"
    start = time.monotonic()
    count = write_segments(landing, days, seed)
    made = time.monotonic()
    say(f"generated {count:,} synthetic observations of {days:,} days in {made - start:.1f} s")
    done = ingest(spark, landing, table)
    ingested = time.monotonic()
    say(f"ingested {sum(one.observations for one in done):,} observations in {ingested - made:.1f} s")
    history = History(spark, table)
    answers = []
    for question in QUESTIONS:
        before = time.monotonic()
        solutions = [row.asDict() for row in history.sparql(PREFIXES + question.sparql).collect()]
        answers.append(Answer(question, solutions, time.monotonic() - before))
        say(f"{question.title} {len(solutions):,} solutions in {answers[-1].seconds:.1f} s")
    facts = {
        "observations": f"{count:,}",
        "days": f"{days:,}",
        "seed": str(seed),
        "ingestion": f"{ingested - made:.1f} s",
    }
    return report(answers, facts)
