"""Choice of the engine that answers a query or an analysis: DuckDB in this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

import click
from click.core import ParameterSource

from spark_offload.errors import EngineRefused
from spark_offload.session import java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ENGINES: Final = ("auto", "duckdb", "spark")
LARGEST: Final = 8 * 2**30
"""Size in bytes of the largest table that DuckDB reads by default."""
TIME_LIMIT: Final = 20.0
"""Time in seconds for DuckDB to plan and to answer, before Spark answers. Only of `--engine auto`."""

engine_option: Final = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="auto",
    show_default=True,
    help="Engine that answers. duckdb needs no Java. auto: DuckDB if it is installed, the table has up to 8 GiB on this"
    " machine, and DuckDB supports all functions and answers within 20 s; else Spark.",
)

Source = TypeVar("Source")
Result = TypeVar("Result")


def embedded(engine: str, table: str) -> bool:
    """Return whether DuckDB answers. Raises `click.UsageError` for an option that only Spark has, `TableRefused`."""
    of_spark = _option_of_spark()
    if engine == "duckdb" and of_spark:
        raise click.UsageError(f"{of_spark} needs --engine spark")
    if engine != "auto":
        return engine == "duckdb"
    if of_spark or not (find_spec("duckdb") and find_spec("deltalake")):
        return False
    from spark_offload.embedded.table_files import is_elsewhere, size

    if is_elsewhere(table):
        return False
    try:
        return size(table) <= LARGEST
    except EngineRefused:  # asked again, it gives the reason
        return True


def stored(
    engine: str, table: str, result: Callable[[DataFrame], DataFrame], version: int | None = None
) -> DataFrame | None:
    """Return the rows that `result` makes of those of a table, stored by DuckDB. None and errors as in `attempted`."""

    def made(rows: DataFrame) -> DataFrame:
        from spark_offload.embedded.session import connect_mode

        with connect_mode():
            return result(rows).localCheckpoint()

    return _of_table(engine, table, made, version, TIME_LIMIT)


def done(engine: str, table: str, work: Callable[[DataFrame], None], version: int | None = None) -> bool:
    """Do something with the rows of a table that leaves nothing behind if it fails. Returns False if Spark must do it.

    It has no time limit: after one, the work might still end, while Spark does it again. Errors as in `attempted`.
    """

    def worked(rows: DataFrame) -> bool:
        from spark_offload.embedded.session import connect_mode

        with connect_mode():
            work(rows)
        return True

    return _of_table(engine, table, worked, version, None) is not None


def _of_table(
    engine: str, table: str, call: Callable[[DataFrame], Result], version: int | None, limit: float | None
) -> Result | None:
    from spark_offload.compat import connect_client
    from spark_offload.embedded.session import embedded_session
    from spark_offload.embedded.table_files import open_files

    def interrupt(rows: DataFrame) -> None:
        connect_client(rows.sparkSession).interrupt()

    return attempted(engine, lambda: open_files(embedded_session(), table, version), call, interrupt, limit)


def attempted(
    engine: str,
    opened: Callable[[], Source],
    call: Callable[[Source], Result],
    interrupt: Callable[[Source], None],
    limit: float | None,
) -> Result | None:
    """Return the result of a call with DuckDB; None if Spark must answer, which is printed with the reason.

    `opened` returns the argument of the other two. With `--engine auto`, the call must not write an output, unless it
    has no `limit` in seconds; without Java, it may take longer. Raises `EngineRefused` with `--engine duckdb`, and the
    other errors of the functions.
    """
    from spark_offload.embedded.interruptible import interruptible
    from spark_offload.embedded.session import leave_connect_mode

    can_give_up = engine == "auto" and java() is not None
    try:
        source = opened()
        return interruptible(lambda: call(source), lambda: interrupt(source), limit if can_give_up else None)
    except (EngineRefused, TimeoutError) as error:
        if engine == "duckdb":
            raise
        reason = str(error) or f"DuckDB did not answer within {limit:g} s"
        leave_connect_mode()
    click.echo(f"edge-history: Spark answers: {reason}", err=True)
    return None


def _option_of_spark() -> str:
    """Return an option of the command that needs Spark, or an empty text."""
    context = click.get_current_context()
    defaults = (ParameterSource.DEFAULT, None)  # None: the command lacks this option
    given = [name for name in ("master", "conf") if context.get_parameter_source(name) not in defaults]
    return f"--{given[0]}" if given else ""
