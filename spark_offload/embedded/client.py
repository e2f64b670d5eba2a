"""Stand-in for PySpark's client of Spark Connect, whose plans DuckDB evaluates."""

from __future__ import annotations

import hashlib
import json
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spark_offload import compat
from spark_offload.embedded import sql_text
from spark_offload.embedded.files import write
from spark_offload.embedded.python_functions import register
from spark_offload.embedded.relations import Rows, translated
from spark_offload.errors import EngineRefused, MissingPart, TableRefused

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ROWS: Final = 10_000
"""Number of rows of an answer that are in the memory of Python at once."""
_ROWS_OF_FILE: Final = 100_000
"""Number of rows of a group of a Parquet file."""
_UNLIMITED: Final = str(2**40)
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.session.localRelationCacheThreshold": _UNLIMITED,
    "spark.sql.session.localRelationSizeLimit": _UNLIMITED,
    "spark.sql.session.localRelationChunkSizeRows": _UNLIMITED,
    "spark.sql.session.localRelationChunkSizeBytes": _UNLIMITED,
    "spark.sql.session.localRelationBatchOfChunksSizeBytes": _UNLIMITED,
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
    "spark.sql.execution.pandas.inferPandasDictAsMap": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.sql.execution.pyspark.binaryAsBytes": "true",
    "spark.sql.pyspark.inferNestedDictAsStruct.enabled": "false",
    "spark.sql.pyspark.legacy.inferArrayTypeFromFirstElement.enabled": "false",
    "spark.sql.pyspark.legacy.inferMapTypeFromFirstPair.enabled": "false",
}
"""Settings that PySpark asks for; local rows are part of the plan, whatever their size."""


def new_database() -> DuckDBPyConnection:
    """Return a connection to a new database in memory. Raises `MissingPart`."""
    try:
        import duckdb
    except ImportError as error:
        raise missing(error) from error
    # DuckDB would spill into the working directory.
    spill = Path(tempfile.gettempdir()) / f"edge-history-{uuid.uuid4()}"
    settings: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(spill),
        "autoinstall_known_extensions": "false",
    }
    database = duckdb.connect(config=settings)
    register(database)
    # It warns of a copy of the rows. `DuckDBPyConnection.sql` would plan the query twice, which takes longer. A context
    # without warnings (`catch_warnings`) is not for several threads.
    warnings.filterwarnings("ignore", "Arrow output", UserWarning, append=True)
    return database


def missing(error: ImportError) -> MissingPart:
    """Return the error for a package that is not installed."""
    return MissingPart(
        f"{error.name} is not installed. Install the wheel of a release with its extra (pip install "
        "'./sepa_edge-VERSION-py3-none-any.whl[duckdb]'), or a clone (pip install '.[duckdb]')"
    )


class Client:
    """The methods of the client that DataFrames of this program use, on a connection to a database."""

    session: SparkSession

    def __init__(self, database: DuckDBPyConnection) -> None:
        self.is_closed = False
        self._is_interrupted = False
        self.database = database
        self.database.execute("SET TimeZone = 'UTC'")
        # The progress bar would be written among the answers.
        self.database.execute("SET enable_progress_bar = false")

    def to_table(self, plan: Any, observations: object = None) -> tuple[pa.Table, None, None]:  # noqa: ANN401
        """Return the rows of a plan. Raises `EngineRefused`."""
        rows = translated(plan.root, self._source)
        with _refusals():
            return _named(self._queried(rows.sql).to_arrow_table(), rows), None, None

    def to_pandas(self, plan: Any, observations: object = None) -> tuple[pd.DataFrame, None]:  # noqa: ANN401
        """Return the rows of a plan, with times in UTC without a zone, as Spark does. Raises `EngineRefused`."""
        frame = self.to_table(plan)[0].to_pandas()
        for name in frame.select_dtypes("datetimetz"):
            frame[name] = frame[name].dt.tz_convert("UTC").dt.tz_localize(None)
        return frame, None

    def to_table_as_iterator(self, plan: Any, observations: object = None) -> Iterator[pa.Table]:  # noqa: ANN401
        """Yield the rows of a plan in pieces. Raises `EngineRefused`."""
        yield from self._pieces(translated(plan.root, self._source), _ROWS)

    def schema(self, plan: Any) -> StructType:  # noqa: ANN401
        """Return the columns of a plan. Raises `EngineRefused`."""
        from pyspark.sql import types

        known = {
            "VARCHAR": types.StringType(),
            "INTEGER": types.IntegerType(),
            "BIGINT": types.LongType(),
            "DOUBLE": types.DoubleType(),
            "DATE": types.DateType(),
            "TIMESTAMP WITH TIME ZONE": types.TimestampType(),
        }
        rows = translated(plan.root, self._source)
        described = self._queried(f"DESCRIBE {rows.sql}").fetchall()
        return types.StructType(
            [
                types.StructField(name, known.get(one[1], types.StringType()))
                for name, one in zip(rows.columns, described, strict=False)
            ]
        )

    def translate(self, frame: DataFrame) -> str:
        """Return the SQL of a frame. Raises `EngineRefused` if DuckDB lacks one of its functions."""
        return translated(compat.connect_relation(frame, self), self._source).sql

    def explain_string(self, plan: Any, explain_mode: str = "") -> str:  # noqa: ANN401
        """Return DuckDB's plan. Raises `EngineRefused`."""
        rows = translated(plan.root, self._source)
        return str(self._queried(f"EXPLAIN {rows.sql}").fetchall()[0][1])

    def execute_command(self, plan: Any, observations: object = None) -> tuple[None, Mapping[str, DataFrame], None]:  # noqa: ANN401
        """Store the rows of a plan (`DataFrame.localCheckpoint`), or write them to files.

        Raises `EngineRefused`, `OutputRefused`.
        """
        if plan.WhichOneof("command_type") == "write_operation":
            write(
                plan.write_operation, self._pieces(translated(plan.write_operation.input, self._source), _ROWS_OF_FILE)
            )
            return None, {}, None
        rows = translated(plan.checkpoint_command.relation, self._source)
        name = f"stored {uuid.uuid4()}"
        self._queried(f"CREATE TEMP TABLE {sql_text.name(name)} AS {rows.sql}")
        return None, {"checkpoint_command_result": compat.connect_checkpoint(self.session, name)}, None

    def get_config_dict(self, *keys: str) -> Mapping[str, str | None]:
        """Return settings of Spark."""
        return {key: _SETTINGS.get(key) for key in keys}

    def config(self, operation: Any) -> Any:  # noqa: ANN401
        """Return settings of Spark, as pairs."""
        from pyspark.sql.connect.client.core import ConfigResult

        pairs = [(key, _SETTINGS.get(key)) for key in operation.get.keys]
        pairs += [(one.key, _SETTINGS.get(one.key, one.value)) for one in operation.get_with_default.pairs]
        return ConfigResult(pairs=pairs, warnings=[])

    def interrupt(self) -> None:
        """Let the current query and later ones raise `EngineRefused`. Another thread may call this."""
        self._is_interrupted = True
        self.database.interrupt()

    def close(self) -> None:
        """Close the connection, which frees a database without others."""
        self.is_closed = True
        self.database.close()

    # PySpark's plans call these two.
    def _set_relation_in_plan(self, plan: Any, relation: Any) -> None:  # noqa: ANN401
        plan.root.CopyFrom(relation)

    def _set_command_in_plan(self, plan: Any, command: Any) -> None:  # noqa: ANN401
        plan.command.CopyFrom(command)

    def _queried(self, sql: str) -> DuckDBPyConnection:
        with _refusals():
            self._check()
            return self.database.execute(sql)

    def _pieces(self, rows: Rows, most: int) -> Iterator[pa.Table]:
        """Yield tables of at most so many rows; the first one may be empty."""
        import pyarrow as pa

        with _refusals():
            self._check()
            reader = self.database.sql(rows.sql).to_arrow_reader(most)
            yield _named(reader.schema.empty_table(), rows)
            for batch in reader:
                yield _named(pa.Table.from_batches([batch]), rows)

    def _check(self) -> None:
        if self._is_interrupted:
            raise EngineRefused("the query was interrupted")

    def _source(self, relation: Any) -> Rows:  # noqa: ANN401
        """Return a table, a stored result, or rows that are part of the plan."""
        match relation.WhichOneof("rel_type"):
            case "read":
                name = relation.read.named_table.unparsed_identifier
            case "cached_remote_relation":
                name = relation.cached_remote_relation.relation_id
            case _:
                name = self._local(relation.local_relation)
        described = self._queried(f"DESCRIBE {sql_text.name(name)}").fetchall()
        return Rows(f"FROM {sql_text.name(name)}", [sql_text.decoded(column[0]) for column in described])

    def _local(self, local: Any) -> str:  # noqa: ANN401
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType

        name = "local " + hashlib.sha256(local.data + local.schema.encode()).hexdigest()
        if local.data:
            with pa.ipc.open_stream(local.data) as reader:
                rows = reader.read_all()
        else:
            rows = to_arrow_schema(StructType.fromJson(json.loads(local.schema)), timezone="UTC").empty_table()
        self.database.register(name, rows.rename_columns(list(map(sql_text.coded, rows.column_names))))
        return name


class _refusals:  # noqa: N801  used as a context manager
    """Convert errors of DuckDB into `EngineRefused`."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        import duckdb

        if isinstance(error, duckdb.Error):
            reason = str(error).strip().partition("\n")[0]
            if isinstance(error, duckdb.IOException):
                raise TableRefused(f"a file of the table cannot be read ({reason})") from error
            raise EngineRefused(f"DuckDB cannot do this ({reason}): use --engine spark") from error


def _named(table: pa.Table, rows: Rows) -> pa.Table:
    """Return only the columns of the plan, with their names: those of DuckDB do not distinguish cases."""
    return table.select(range(len(rows.columns))).rename_columns(rows.columns)
