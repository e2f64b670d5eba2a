"""Resolution of IRI references in columns (RFC 3986, section 5.2)."""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

_BASE: Final = re.compile(r"([^:/?#]*:)(//[^/?#]*)?([^?#]*)(\?[^#]*)?")
_REFERENCE: Final = r"(?s)\A(//[^/?#]*)?([^?#]*)(\?[^#]*)?(#.*)?\z"
_SCHEME: Final = "^[A-Za-z][A-Za-z0-9+.-]*:"


def resolved(reference: Column, base: str) -> Column:
    """Return the absolute IRI of a reference. `base`: an absolute IRI."""
    found = _BASE.match(base)
    if found is None:
        return reference
    scheme, host, root, asked = (part or "" for part in found.groups())
    authority, path, query, fragment = (F.regexp_extract(reference, _REFERENCE, group) for group in range(1, 5))
    begin = root[: root.rfind("/") + 1] or "/" * bool(host)
    beside = F.when(path.startswith("/"), path).otherwise(F.concat(F.lit(begin), path))
    whole = (
        F.when(authority != "", F.concat(authority, _without_dots(path), query))
        .when(path != "", F.concat(F.lit(host), _without_dots(beside), query))
        .otherwise(F.concat(F.lit(host + root), F.when(query == "", asked).otherwise(query)))
    )
    return F.when(reference.rlike(_SCHEME), reference).otherwise(F.concat(F.lit(scheme), whole, fragment))


def _without_dots(path: Column) -> Column:
    """Return a path without its segments `.` and `..`."""
    segments = F.split(path, "/")

    def next_path(before: Column, segment: Column) -> Column:
        up = F.when(F.size(before) > 1, F.slice(before, F.lit(1), F.size(before) - 1)).otherwise(before)
        return F.when(segment == ".", before).when(segment == "..", up).otherwise(F.array_append(before, segment))

    kept = F.aggregate(segments, F.array().cast("array<string>"), next_path)
    last = F.element_at(segments, -1)
    return F.concat(F.array_join(kept, "/"), F.when(last.isin(".", ".."), "/").otherwise(""))
