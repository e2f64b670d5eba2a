"""Functions that DuckDB lacks or defines otherwise than Spark, in Python."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def register(database: DuckDBPyConnection) -> None:
    """Add the functions to a database."""
    functions: dict[str, tuple[Callable[[Any], str], str]] = {
        "edge_double": (java_double, "DOUBLE"),
        "edge_float": (_java_float, "FLOAT"),
        "edge_upper": (str.upper, "VARCHAR"),
        "edge_lower": (str.lower, "VARCHAR"),
        "edge_sha384": (lambda data: hashlib.sha384(data).hexdigest(), "BLOB"),
        "edge_sha512": (lambda data: hashlib.sha512(data).hexdigest(), "BLOB"),
    }
    for name, (function, type_) in functions.items():
        database.create_function(name, function, [type_], "VARCHAR")


def java_double(number: float) -> str:
    """Return a double as Java writes it (`Double.toString`)."""
    return _as_java(number, repr(number))


def _java_float(number: float) -> str:
    import numpy as np

    return _as_java(number, str(np.float32(number)))


def _as_java(number: float, shortest: str) -> str:
    """Return a number from its shortest exact text. Outside of 0.001 to 10,000,000 Java writes an exponent."""
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return shortest
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    place = len(digits) + int(exponent) - 1
    text = "".join(map(str, digits))
    if -3 <= place < 7:
        whole = format(abs(Decimal(shortest)).normalize(), "f")
        return "-" * sign + (whole if "." in whole else whole + ".0")
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{place}"
