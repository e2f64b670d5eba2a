"""Download and verification of the jars of the Delta connector.

PySpark contains Spark but not Delta Lake. The two jars are downloaded once, verified with the checksums below, and
stored in a cache directory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import urllib.request
from pathlib import Path
from typing import Final, NamedTuple

from spark_offload.errors import MissingPart

MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
TIMEOUT: Final = 60.0
"""Seconds without data after which a download fails."""


class Jar(NamedTuple):
    """A file of Maven Central."""

    path: str
    sha256: str

    @property
    def name(self) -> str:
        """File name, without the directories of the repository."""
        return self.path.rpartition("/")[2]


JARS: Final = (
    Jar(
        "io/delta/delta-spark_4.2_2.13/4.4.0/delta-spark_4.2_2.13-4.4.0.jar",
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar",
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)
"""Jars for the PySpark version in pyproject.toml. Change both together."""


def folder() -> Path:
    """Return the directory of the jars: $EDGE_HISTORY_JARS, or a directory in the user's cache."""
    given = os.environ.get("EDGE_HISTORY_JARS")
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "sepa-edge" / "jars"


def missing() -> list[Jar]:
    """Return the jars that do not exist or have a wrong checksum."""
    return [jar for jar in JARS if not _right(folder() / jar.name, jar)]


def fetch(source: str = MAVEN_CENTRAL) -> list[Path]:
    """Return the paths of the jars, after downloading missing ones from `source`. Raises `MissingPart`."""
    place = folder()
    for jar in missing():
        url = f"{source.rstrip('/')}/{jar.path}"
        try:
            place.mkdir(parents=True, exist_ok=True)
            _fetch(url, place / jar.name, jar)
        except OSError as error:
            raise MissingPart(
                f"{url} cannot be downloaded ({error}). Copy the file into {place},"
                " or use another Maven repository: edge-history jars --from URL"
            ) from error
    return [place / jar.name for jar in JARS]


def _fetch(url: str, target: Path, jar: Jar) -> None:
    if not url.startswith(("https://", "http://", "file:")):
        raise MissingPart(f"{url} is not a URL of a Maven repository: use https://, http:// or file:")
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{jar.name}.", delete=False) as draft:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:  # noqa: S310  the scheme is checked above
                shutil.copyfileobj(answer, draft)
            draft.flush()
            if not _right(Path(draft.name), jar):
                raise MissingPart(f"{url} is not the released file: its SHA-256 is not {jar.sha256}")
            Path(draft.name).chmod(0o644)  # temporary files have mode 0600, and other users may run Spark
            Path(draft.name).replace(target)
        except BaseException:
            Path(draft.name).unlink(missing_ok=True)
            raise


def _right(path: Path, jar: Jar) -> bool:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False
