"""Keys of a reading that convert its value, compiled."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Final

from edge.mapping.errors import BadKeyError, nearest, under
from edge.mapping.fault_reasons import because
from edge.mapping.inherited_keys import InheritedKeys
from edge.mapping.jsonpath import JsonPath, parse_path
from edge.mapping.model import ReadingSpec
from edge.mapping.payload_position import DOCUMENTS, PayloadPosition
from edge.mapping.reading import XSD, XSD_BOOLEAN, XSD_DATE_TIME, XSD_DECIMAL, XSD_DOUBLE, XSD_INTEGER, XSD_STRING
from edge.mapping.settings import MappingLimits
from edge.mapping.terms import constant
from edge.mapping.values import KINDS, BadValueError, Converter, json_number, literal

_KIND_IRIS: Final = {
    XSD_DECIMAL: "decimal",
    XSD_INTEGER: "integer",
    XSD_DOUBLE: "double",
    XSD_BOOLEAN: "boolean",
    XSD_STRING: "string",
}


def converter(keys: InheritedKeys, namespaces: dict[str, str], limits: MappingLimits) -> Converter:
    """Return the conversion of a value of the payload. Raises `BadKeyError`."""
    word = keys.get("datatype")
    kind, datatype = under("datatype", partial(_datatype, namespaces), str(word) if word is not None else "number")
    table = None
    values = keys.get("values")
    if isinstance(values, dict):
        table = {}
        for text, value in values.items():
            try:
                table[text] = literal(value, kind if word is not None and datatype is None else None)
            except BadValueError as error:
                raise BadKeyError(f'The value for "{text}" {error}.', key="values") from None
    absent = keys.get("absent")
    return Converter(
        kind=kind,
        datatype=datatype,
        table=table,
        absent=frozenset(absent) if isinstance(absent, list) else frozenset(),
        **{
            name: keys.get(key)  # type: ignore[arg-type]
            for name, key in (("scale", "scale"), ("offset", "offset"), ("low", "min"), ("high", "max"))
        },
        decimal_comma=bool(keys.get("decimal_comma")),
        round=keys.get("round"),  # type: ignore[arg-type]
        case=keys.get("case"),  # type: ignore[arg-type]
        max_digits=limits.digits,
        max_text=limits.text,
    )


def factors(keys: InheritedKeys, payload: str) -> tuple[tuple[JsonPath, bool], ...]:
    """Return the paths of factors in the payload, and whether each is a power of ten. Raises `BadKeyError`."""
    found = []
    for key, power in (("scale_from", False), ("scale10_from", True)):
        text = keys.get(key)
        if text is None:
            continue
        if payload not in DOCUMENTS:
            raise BadKeyError(f"A {payload} payload has no path to a number.", key=key, allowed="scale")
        if keys.reading.setter is not None and keys.reading.setter.scale is None:
            raise BadKeyError("The reading is scaled; say how a desired value becomes that of the device.", key="set")
        found.append((under(key, parse_path, str(text)), power))
    return tuple(found)


def default_value(reading: ReadingSpec, place: PayloadPosition | None) -> object:
    """Return the raw value for payloads that lack it; None without one. `place`: None if it has faults.

    Raises `BadKeyError`.
    """
    default = reading.default
    if default is None or place is None:
        return None
    if place.path is None or place.path.wild:
        raise BadKeyError("Only the value of a path without wildcards can be missing.", key="default", allowed="path")
    return json_number(default) if isinstance(default, Decimal) else default


def _datatype(namespaces: dict[str, str], word: str) -> tuple[str, str | None]:
    if word in KINDS:
        return word, None
    if ":" not in word:
        raise BadKeyError(
            because("not_a_datatype", name=word), nearest=nearest(word, KINDS), allowed=", ".join(KINDS) + ", or an IRI"
        )
    iri = constant(word, namespaces)
    if iri in _KIND_IRIS:
        return _KIND_IRIS[iri], None
    # `Converter` checks times. Other XSD datatypes: an unchecked text could be an ill-typed literal.
    if iri.startswith(XSD) and iri != XSD_DATE_TIME:
        raise BadKeyError(f'"{word}" is not offered, since its values could not be checked.', allowed=", ".join(KINDS))
    return "string", iri
