"""The files of a version of the table, from its Delta log, as rows of DuckDB."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from spark_offload.compat import connect_client
from spark_offload.embedded import sql_text
from spark_offload.errors import EngineRefused, TableRefused
from spark_offload.table import PARTITION, SCHEMA, why_none

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_VIEW: Final = "observations"
_ELSEWHERE: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+-]+:|^\w+(\.\w+)+$", re.ASCII)
"""A URL, or the name of a table in a catalog."""
_READER: Final = 1
"""Version of Delta's protocol for readers. Later ones may have deleted rows and renamed columns within files."""


def open_files(session: SparkSession, table: str | os.PathLike[str], version: int | None = None) -> DataFrame:
    """Return the rows of a version of a table. Raises `TableRefused`, and `EngineRefused` for features of Delta."""
    import duckdb

    opened = _opened(table, version)
    reader = opened.protocol().min_reader_version
    if reader > _READER:
        raise EngineRefused(f"the table {table} has features of Delta (reader {reader}) that need --engine spark")
    if not {"gateway", "epoch", "seq"} <= {field.name for field in opened.schema().fields}:
        raise TableRefused(f"the table at {table} is not a history: it has other columns")
    database = connect_client(session).database
    try:
        database.execute(f"CREATE OR REPLACE TEMP VIEW {_VIEW} AS {_rows(database, _files(Path(table), opened))}")
    except duckdb.Error as error:
        reason = str(error).strip().partition("\n")[0]
        raise TableRefused(
            f"a file of the table {table} cannot be read ({reason}): edge-history verify checks the table"
        ) from error
    return session.read.table(_VIEW)


def is_elsewhere(table: str | os.PathLike[str]) -> bool:
    """Return whether a table is not a path of this machine, but a URL or a name in a catalog."""
    return not Path(table).exists() and _ELSEWHERE.search(os.fspath(table)) is not None


def size(table: str | os.PathLike[str]) -> int:
    """Return the bytes of the newest version of a table. Raises `TableRefused`."""
    import pyarrow as pa

    return int(sum(pa.table(_opened(table, None).get_add_actions(flatten=True))["size_bytes"].to_pylist()))


def _opened(table: str | os.PathLike[str], version: int | None) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    path = Path(table)
    if is_elsewhere(table):
        raise EngineRefused(f"DuckDB reads only directories of this machine, not {table}: use --engine spark")
    if not path.is_dir():
        raise TableRefused(why_none(str(path)))
    if "%" in str(path.absolute()):
        # The library decodes the path twice, and would read another table.
        raise EngineRefused(f"DuckDB cannot read a table whose path contains % ({table}): use --engine spark")
    try:
        newest = DeltaTable(path.absolute().as_uri())
        if version is None or version == newest.version():
            return newest
        if version > newest.version():  # the library would look for all versions between them
            raise TableRefused(f"the table {path} has no version {version}: edge-history status shows the newest")
        return DeltaTable(path.absolute().as_uri(), version=version)
    except TableNotFoundError as error:
        if version is not None:
            raise TableRefused(f"the table {path} has no version {version}: edge-history status shows it") from error
        raise TableRefused(why_none(str(path))) from error
    except DeltaError as error:
        if version is not None:
            raise TableRefused(
                f"the table {path} has no version {version}: edge-history status shows the newest"
            ) from error
        reason = str(error).strip().partition("\n")[0]
        raise TableRefused(
            f"the log of the table {path} cannot be read ({reason}): edge-history verify checks the table"
        ) from error


def _files(table: Path, opened: DeltaTable) -> list[str]:
    """Return patterns that match only the files of a table. The log has their paths relative to it, as URIs."""
    import pyarrow as pa

    found = pa.table(opened.get_add_actions(flatten=True))["path"].to_pylist()
    paths = (str(table.absolute() / unquote(path.removeprefix("file:"))) for path in found)
    return [re.sub(r"([*?\[])", r"[\1]", path) for path in paths]


def _rows(database: Any, files: list[str]) -> str:  # noqa: ANN401
    """Return a query with all columns of the table; files that are older than a column lack it."""
    types = {field.name: sql_text.type_name(field.dataType.simpleString()) for field in SCHEMA}
    source, there = "", set[str]()
    if files:
        listed = ", ".join(map(sql_text.string, files))
        source = (
            f" FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = true,"
            f" hive_types = {{'{PARTITION}': DATE}})"
        )
        there = {column[0] for column in database.execute(f"DESCRIBE SELECT *{source}").fetchall()}
    columns = (sql_text.name(name) if name in there else f"NULL::{type_} AS {name}" for name, type_ in types.items())
    return f"SELECT {', '.join(columns)}{source or ' WHERE false'}"
