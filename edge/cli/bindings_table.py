"""SPARQL bindings as a table for people: short IRIs, aligned columns, no control characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from edge.cli.prefixes import OUTPUT

_PREFIXES: Final = {iri: f"{prefix}:" for prefix, iri in OUTPUT.items()}

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_PLAIN: Final = {_XSD + name for name in ("string", "integer", "decimal", "double", "float", "boolean", "dateTime")}
"""Datatypes that are obvious from the value."""

Binding = Mapping[str, Mapping[str, Any]]


def term(value: Mapping[str, Any] | None) -> str:
    """Return one RDF term of the SPARQL JSON results in short form. "" means unbound."""
    if value is None:
        return ""
    kind = value.get("type")
    if kind == "triple":
        parts = value["value"]
        return f"<< {term(parts['subject'])} {term(parts['predicate'])} {term(parts['object'])} >>"
    text = printable(str(value.get("value", "")))
    if kind == "uri":
        return _short(text)
    if kind == "bnode":
        return f"_:{text}"
    if language := value.get("xml:lang"):
        return f"{text}@{language}--{value['its:dir']}" if "its:dir" in value else f"{text}@{language}"
    datatype = value.get("datatype")
    return text if datatype is None or datatype in _PLAIN else f"{text}^^{_short(str(datatype))}"


def _short(iri: str) -> str:
    for namespace, prefix in _PREFIXES.items():
        local = iri.removeprefix(namespace)
        # Only names that need no escapes as a prefixed name (PN_LOCAL, SPARQL 1.1, 19.8).
        if local != iri and local.replace("-", "").replace("_", "").isalnum():
            return prefix + local
    return f"<{iri}>"


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that data cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def lines(variables: Sequence[str], bindings: Iterable[Binding], *, widths: list[int] | None = None) -> list[str]:
    """Return header, rule and one line for each binding. `widths` grows to fit and can be used again next time."""
    rows = [[term(binding.get(name)) for name in variables] for binding in bindings]
    header = [f"?{name}" for name in variables]
    sizes = widths if widths is not None else []
    sizes.extend([0] * (len(variables) - len(sizes)))
    for row in [header, *rows]:
        for column, cell in enumerate(row):
            sizes[column] = max(sizes[column], _width(cell))
    rule = ["-" * size for size in sizes]
    return [_aligned(row, sizes) for row in [header, rule, *rows]]


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return one line for each row with aligned cells. All rows must have the same length."""
    sizes = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    return [_aligned(row, sizes) for row in rows]


def _aligned(cells: Sequence[str], sizes: Sequence[int]) -> str:
    padded = [cell + " " * (size - _width(cell)) for cell, size in zip(cells, sizes, strict=True)]
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    # Terminals draw combining characters over the previous one, and wide ones (UAX 11) in two columns.
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
