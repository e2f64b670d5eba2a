"""Choice of the engine that answers a query."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from spark_offload.errors import EngineRefused

ENGINES: Final = ("auto", "duckdb", "spark")
LARGEST: Final = 8 * 2**30
"""Size in bytes of the largest table that DuckDB reads by default."""
TIME_LIMIT: Final = 20.0
"""Time in seconds for DuckDB to plan and to answer a query, before Spark answers. Only of `--engine auto`."""


def embedded(engine: str, table: str, form: str | None) -> bool:
    """Return whether DuckDB answers. Raises `click.UsageError` for an option that only Spark has, `TableRefused`."""
    of_spark = _options_of_spark(form)
    if engine == "duckdb" and of_spark:
        raise click.UsageError(f"{of_spark} needs --engine spark")
    if engine != "auto":
        return engine == "duckdb"
    if of_spark or not Path(table).is_dir() or not (find_spec("duckdb") and find_spec("deltalake")):
        return False
    from spark_offload.embedded.table_files import size

    try:
        return size(table) <= LARGEST
    except EngineRefused:  # asked again, it gives the reason
        return True


def _options_of_spark(form: str | None) -> str:
    """Return an option of the command that needs Spark, or an empty text."""
    context = click.get_current_context()
    defaults = (ParameterSource.DEFAULT, None)  # None: the command lacks this option
    given = [name for name in ("master", "conf") if context.get_parameter_source(name) not in defaults]
    return f"--{given[0]}" if given else "--format parquet" if form == "parquet" else ""
