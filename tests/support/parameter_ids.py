"""Readable ids of parametrised tests, for values that pytest would only number (`arguments0`)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Final

import pyoxigraph as ox

LONGEST: Final = 60
"""Characters of a value in an id."""
LONGEST_TEXT: Final = 200
"""Characters of a text or of bytes that are an id as a whole."""

_PLAIN: Final = (str, bytes, int, float, bool, type(None), date, datetime, timedelta, ox.NamedNode, ox.Literal)


def parameter_id(value: object) -> str | None:
    """Return the id of a list, a mapping, a set, a time, an RDF term or a long text; None leaves the value to pytest.

    pytest would use a text of megabytes as a whole, in each message between pytest-xdist and its workers.

    All workers of a run must make the same ids. Therefore values whose text can differ between processes, such as those
    with a memory address, have no id here.
    """
    text: str | None
    if isinstance(value, str | bytes) and len(value) > LONGEST_TEXT:
        start = value[: LONGEST + 1]
        text = start if isinstance(start, str) else start.decode("latin-1")
    elif isinstance(value, str | bytes | int | float | bool | None):
        return None
    else:
        text = _text(value)
    if not text:
        return None
    # pytest separates the parts of a test's id with "::".
    text = text.encode("unicode_escape").decode("ascii").replace("::", ":")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.hex(" ")
    if isinstance(value, _PLAIN):
        return str(value)
    if isinstance(value, Mapping):
        return _joined([*value.values()], [f"{key}=" for key in value])
    if isinstance(value, set | frozenset):
        return _joined(sorted(value, key=str))
    return _joined(value) if isinstance(value, list | tuple) else None


def _joined(values: list[object] | tuple[object, ...], labels: list[str] | None = None) -> str | None:
    texts = [_text(value) for value in values]
    if None in texts:
        return None
    return " ".join(f"{label}{text}" for label, text in zip(labels or [""] * len(texts), texts, strict=True))
