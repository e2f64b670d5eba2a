"""Continuous queries of the operator: a directory of SPARQL queries, `NAME.rq`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_LARGEST = 256 * 1024
_NO_NAME = frozenset("+#\0")
"""Characters that a topic level cannot contain."""


class QueryFiles(NamedTuple):
    """Content of a directory."""

    queries: dict[str, str]
    """Name to SPARQL text."""
    faults: dict[Path, str]
    """Unreadable files, or the directory itself, with the reason."""


def read_queries(directory: Path) -> QueryFiles:
    """Read the queries of a directory; none if it does not exist. The suffix follows SPARQL 1.1 Query, appendix D."""
    found = QueryFiles({}, {})
    try:
        files = sorted(file for file in directory.iterdir() if file.suffix == ".rq" and not file.name.startswith("."))
    except FileNotFoundError:
        return found
    except OSError as error:
        found.faults[directory] = error.strerror or str(error)
        return found
    for file in files:
        try:
            found.queries[_name(file)] = _text(file)
        except FileNotFoundError:
            continue
        except UnicodeError:
            found.faults[file] = "the file is not UTF-8 text"
        except OSError as error:
            found.faults[file] = error.strerror or str(error)
        except ValueError as error:
            found.faults[file] = str(error)
    return found


def _name(file: Path) -> str:
    name = file.name.removesuffix(".rq")
    # A file name that is not UTF-8 has surrogates here, and raises UnicodeError.
    name.encode()
    if set(name) & _NO_NAME:
        raise ValueError("the name is a level of a topic, which holds no + and no #")
    return name


def _text(file: Path) -> str:
    with file.open("rb") as stream:
        # Bounded while it is read: a size that is read before may change.
        text = stream.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise ValueError(f"the file is larger than {_LARGEST} bytes")
    return text.decode("utf-8-sig")
