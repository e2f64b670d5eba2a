"""IRIs in mapping files: prefixes, CURIEs, and validation of absolute IRIs (RFC 3987)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

from edge.mapping.errors import BadKeyError, FaultsOfTable, nearest
from edge.mapping.fault_reasons import because

NAMESPACES: Final[dict[str, str]] = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "sosa": "http://www.w3.org/ns/sosa/",
    "ssn": "http://www.w3.org/ns/ssn/",
    "time": "http://www.w3.org/2006/time#",
    "qudt-1-1": "http://qudt.org/1.1/schema/qudt#",
    "qudt-unit-1-1": "http://qudt.org/1.1/vocab/unit#",
    "unit": "http://qudt.org/1.1/vocab/unit#",
    "qudt-unit-2": "http://qudt.org/vocab/unit/",
    "arces-monitor": "http://mml.arces.unibo.it/monitor#",
    "edge": "urn:sepa-edge:",
}
"""Predeclared prefixes: those of the paper's Listing 18, and the gateway's own."""

_PREFIX = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
# Schemes without "//" that are accepted without a declaration. Any other word before a colon must be a prefix, so that
# a misspelt prefix is a fault.
_URI_SCHEMES = frozenset({"urn", "tag", "mailto", "did", "info", "geo"})
_UCS = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd\U00020000-\U0002fffd\U00030000-\U0003fffd"


@cache
def _iri(ascii_only: bool) -> re.Pattern[str]:
    """Return the pattern of an IRI. `ascii_only`: for texts without other characters; it compiles much faster."""
    ucs = "" if ascii_only else _UCS
    char = rf"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/{ucs}]|%[0-9A-Fa-f]{{2}})"
    return re.compile(
        rf"[A-Za-z][A-Za-z0-9+.\-]*:(?://(?:[A-Za-z0-9\-._~!$&'()*+,;=@%:{ucs}]*@)?"
        rf"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9\-._~{ucs}]+)(?::[0-9]*)?(?=[/?#]|$)|(?!//))"
        rf"{char}*(?:\?(?:{char}|\?)*)?(?:#(?:{char}|\?)*)?"
    )


def is_iri(text: str) -> bool:
    """Whether `text` is an absolute IRI by the grammar of RFC 3987 (hosts: registered names and IP literals)."""
    return _iri(text.isascii()).fullmatch(text) is not None


def expand(text: str, namespaces: Mapping[str, str]) -> str:
    """`text`, a CURIE, an absolute IRI or an IRI in angle brackets, as an IRI. Braces (captures) are left alone.

    Raises `BadKeyError` for an unknown prefix or a text that is neither.
    """
    if text.startswith("<") and text.endswith(">"):
        return text[1:-1]
    prefix, colon, local = text.partition(":")
    if not colon:
        raise BadKeyError(because("not_an_iri", name=text), allowed="http://host/name, urn:name, prefix:name")
    if prefix in namespaces and not local.startswith("//"):
        return namespaces[prefix] + local
    if local.startswith("//") or prefix in _URI_SCHEMES:
        return text
    raise BadKeyError(
        because("prefix_unknown", name=prefix, text=text),
        nearest=nearest(prefix, namespaces),
        allowed=", ".join(sorted(namespaces)),
    )


def constant(text: str, namespaces: Mapping[str, str]) -> str:
    """Return `text` as a checked IRI without captures. Raises `BadKeyError`."""
    iri = expand(text, namespaces)
    if not is_iri(iri):
        raise BadKeyError(because("not_absolute", name=iri))
    return iri


def namespace_table(declared: Mapping[str, str], faults: FaultsOfTable) -> dict[str, str]:
    """Return the predeclared prefixes and those of a file, which may refer to predeclared ones (`z2m =
    "edge:zigbee:"`).

    Faults go to `faults`.
    """
    table = dict(NAMESPACES)
    for prefix, value in declared.items():
        if not _PREFIX.fullmatch(prefix):
            key = f"namespaces.{prefix}"
            faults.add(BadKeyError(because("not_a_prefix", name=prefix), key=key, allowed="letters, digits, _ . -"))
            continue
        try:
            table[prefix] = constant(value, table)
        except BadKeyError as error:
            faults.add(error.under(f"namespaces.{prefix}"))
    return table
