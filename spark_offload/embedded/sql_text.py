"""Names, literals and types in DuckDB's SQL."""

from __future__ import annotations

import math
import re
from typing import Final

_TYPES: Final = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "long": "BIGINT",
    "int": "INTEGER",
    "integer": "INTEGER",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "void": "VARCHAR",
}


_CASES: Final = "\x1f"
"""Mark between a name and the places of its capital letters."""


def name(text: str) -> str:
    """Return a quoted name. DuckDB does not distinguish cases, so capitals add their places to the name."""
    return _quoted(coded(text))


def coded(text: str) -> str:
    """Return a name that differs from others in more than the case of letters."""
    if text == text.lower():
        return text
    capitals = sum(1 << place for place, letter in enumerate(text) if letter != letter.lower())
    return f"{text}{_CASES}{capitals:x}"


def decoded(text: str) -> str:
    """Return the name from the result of `coded`."""
    return text.partition(_CASES)[0]


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def string(text: str) -> str:
    """Return a text literal. DuckDB's parser ends a query at the character NUL."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else "(" + " || chr(0) || ".join(parts) + ")"


def double(number: float) -> str:
    """Return a literal of a double."""
    return f"{number!r}::DOUBLE" if math.isfinite(number) else f"'{number}'::DOUBLE"


def type_name(spark: str) -> str:
    """Return the type for one of Spark's SQL types."""
    if found := re.fullmatch(r"array<(.*)>", spark):
        return type_name(found[1]) + "[]"
    if found := re.fullmatch(r"struct<(.*)>", spark):
        members = (member.split(":") for member in found[1].split(","))
        return "STRUCT(" + ", ".join(f"{name(key.strip())} {type_name(type_.strip())}" for key, type_ in members) + ")"
    return _TYPES.get(spark, spark.upper())


def path(identifier: str) -> list[str]:
    """Return the parts of a name, which dots separate outside of back quotes."""
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", identifier)
    return [quoted.replace("``", "`") if quoted else plain for quoted, plain in parts]
