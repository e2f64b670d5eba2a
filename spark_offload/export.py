"""Export of the history: as the stored RDF, without loss, or as Parquet for other programs.

Each worker writes a part, so all workers must see the output directory under the same path, like the table.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from spark_offload import triples
from spark_offload.errors import OutputRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

FILES: Final = (".nq", ".nq.gz")
"""Suffixes of a single N-Quads file. Any other name is a directory."""


def lines(rows: DataFrame) -> DataFrame:
    """Return the RDF of table rows: a column `line` of canonical N-Quads, which may contain duplicates."""
    cells = triples.of_cells(rows).select(F.concat_ws(" ", *triples.COLUMNS, F.lit(".")).alias("line"))
    return cells.union(triples.lines(rows))


def write_nquads(rows: DataFrame, out: str | os.PathLike[str]) -> None:
    """Write the RDF of table rows to one file (`FILES`), or to a directory of gzipped files. Raises `OutputRefused`."""
    out = os.fspath(out)
    if not out.endswith(FILES):
        _write(lines(rows).write.format("text").option("compression", "gzip"), out)
        return
    if Path(out).exists():
        raise _there(out)
    target = Path(out).absolute()
    try:
        # Next to the target: the rename at the end works only within one file system.
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            parts = f"{folder}/parts"
            compression = "gzip" if out.endswith(".gz") else "none"
            _write(lines(rows).write.format("text").option("compression", compression), parts)
            _join(sorted(Path(parts).glob("part-*")), Path(folder) / "whole")
            (Path(folder) / "whole").rename(target)
    except OSError as error:
        raise OutputRefused(f"{out} cannot be written: {error}") from error


def write_parquet(rows: DataFrame, out: str | os.PathLike[str]) -> None:
    """Write table rows or triples to a directory of Parquet files. Raises `OutputRefused`."""
    _write(rows.write.format("parquet"), os.fspath(out))


def _write(writer: DataFrameWriter, out: str) -> None:
    try:
        # Spark would resolve a relative path in its default file system, which may be that of a cluster.
        writer.save(out if ":" in out else str(Path(out).absolute()))
    except AnalysisException as error:
        if error.getCondition() == "PATH_ALREADY_EXISTS":
            raise _there(out) from error
        raise


def _there(out: str) -> OutputRefused:
    return OutputRefused(f"{out} already exists: remove it, or choose another name")


def _join(parts: list[Path], whole: Path) -> None:
    """Concatenate files. Gzipped files may be concatenated as well (RFC 1952, section 2.2)."""
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
