"""A day of the history in Dagster: ingest, maintain, verify, and export the observations of that day as Parquet.

    pip install dagster 'sepa_edge-0.1.0-py3-none-any.whl[spark]'
    export HISTORY_LANDING=landing HISTORY_TABLE=history HISTORY_EXPORTS=exports
    dagster dev -f dagster_day.py

Each asset runs `edge-history`, so that Dagster needs no Spark of its own. `edge-history ingest --every 5m` may run at
the same time. The schedule runs at 03:00 UTC for the day that has ended.
"""

import os
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import dagster as dg

LANDING = os.environ.get("HISTORY_LANDING", "landing")
TABLE = os.environ.get("HISTORY_TABLE", "history")
EXPORTS = Path(os.environ.get("HISTORY_EXPORTS", "exports"))

DAYS = dg.DailyPartitionsDefinition(start_date=os.environ.get("HISTORY_START", "2026-01-01"), timezone="UTC")
# Each command starts Spark, so limit them: dagster instance concurrency set edge-history 1
POOL = "edge-history"


def edge_history(context: dg.AssetExecutionContext, *arguments: str) -> str:
    """Run a command of the history and return its output. Raises `dagster.Failure` with its last words."""
    done = subprocess.run(["edge-history", *arguments], capture_output=True, text=True, check=False)
    context.log.info("edge-history %s\n%s%s", " ".join(arguments), done.stdout, done.stderr)
    if done.returncode:
        raise dg.Failure(f"edge-history {arguments[0]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


@dg.asset(pool=POOL)
def ingested(context: dg.AssetExecutionContext) -> None:
    """Observations of the landing zone in the table."""
    edge_history(context, "ingest", "--landing", LANDING, "--table", TABLE)


@dg.asset(pool=POOL, deps=[ingested])
def maintained(context: dg.AssetExecutionContext) -> None:
    """Table with few large files."""
    edge_history(context, "maintain", "--table", TABLE)


@dg.asset(pool=POOL, deps=[maintained])
def verified(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Each row comes from a segment of a gateway, exactly once. Exit code 3 (faults) ends the run here."""
    return dg.MaterializeResult(metadata={"report": edge_history(context, "verify", "--table", TABLE, "--json")})


@dg.asset(pool=POOL, deps=[verified], partitions_def=DAYS)
def exported(context: dg.AssetExecutionContext) -> dg.MaterializeResult[None]:
    """Observations of a day as Parquet. A second run replaces them, for observations that came late."""
    day = context.partition_time_window
    out, new = EXPORTS / f"{day.start:%Y-%m-%d}", EXPORTS / f".{day.start:%Y-%m-%d}"
    shutil.rmtree(new, ignore_errors=True)
    times = ("--from", f"{day.start:%Y-%m-%d}", "--to", f"{day.start + timedelta(days=1):%Y-%m-%d}")
    edge_history(context, "export", "--table", TABLE, "--out", str(new), "--format", "parquet", *times)
    shutil.rmtree(out, ignore_errors=True)
    new.rename(out)
    return dg.MaterializeResult(metadata={"directory": dg.MetadataValue.path(str(out.absolute()))})


job = dg.define_asset_job("day", selection="*", partitions_def=DAYS)
defs = dg.Definitions(
    assets=[ingested, maintained, verified, exported],
    schedules=[dg.build_schedule_from_partitioned_job(job, hour_of_day=3)],
)
