"""Prefixes that the commands know: SPARQL may use them without a declaration, and output is shortened with them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

OUTPUT: Final = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "time": "http://www.w3.org/2006/time#",
    "sosa": "http://www.w3.org/ns/sosa/",
    "ssn": "http://www.w3.org/ns/ssn/",
    "qudt": "http://qudt.org/1.1/schema/qudt#",
    "unit": "http://qudt.org/1.1/vocab/unit#",
    "qudt-2": "http://qudt.org/schema/qudt/",
    "qudt-unit-2": "http://qudt.org/vocab/unit/",
    "arces-monitor": "http://mml.arces.unibo.it/monitor#",
}
"""IRI by prefix in tables and Turtle. Those of observations are the ones that the gateway writes."""

KNOWN: Final = {
    **OUTPUT,
    "qudt-1-1": "http://qudt.org/1.1/schema/qudt#",
    "qudt-unit-1-1": "http://qudt.org/1.1/vocab/unit#",
    "dcterms": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "saref": "https://saref.etsi.org/core/",
    "schema": "https://schema.org/",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "wot": "https://www.w3.org/2019/wot/td#",
}
"""IRI by prefix that SPARQL may use without a declaration."""

_LONG: Final = 100_000
"""Characters from which the text is searched without its tokens."""
_LARGEST: Final = 4 * 1024 * 1024
"""Characters of a text that is searched for undeclared prefixes."""


def declarations(sparql: str) -> str:
    """Return PREFIX declarations, on one line, for the known prefixes that a text uses and does not declare.

    "" for a text that is not a query or update, whose errors the gateway explains, and for a continuous query over
    streams, which begins with REGISTER. Texts of more than 4 MiB are not searched.
    """
    # The tokenizer takes a second for a megabyte. Long texts are generated, so what looks like a declaration is one.
    candidates = [
        prefix
        for prefix in KNOWN
        if f"{prefix}:" in sparql
        and not (len(sparql) > _LONG and re.search(rf"\bprefix\s+{prefix}:", sparql, re.IGNORECASE))
    ]
    if not candidates or len(sparql) > _LARGEST:
        return ""
    from edge.sparql.errors import SparqlError
    from edge.sparql.tokens import tokenize

    try:
        tokens = tokenize(sparql)
    except SparqlError:
        return ""
    used: dict[str, None] = {}
    declared = set()
    declaring = False
    for token in tokens:
        word = token.text.upper() if token.kind == "word" else ""
        if word == "REGISTER":
            return ""
        if token.kind == "name":
            prefix = token.text.partition(":")[0]
            if declaring:
                declared.add(prefix)
            else:
                used[prefix] = None
        declaring = word == "PREFIX"
    return "".join(
        f"PREFIX {prefix}: <{KNOWN[prefix]}> " for prefix in used if prefix in candidates and prefix not in declared
    )


def used_in(text: str, prefixes: Mapping[str, str] = OUTPUT) -> dict[str, str]:
    """Return the prefixes whose IRIs occur in a text."""
    return {prefix: iri for prefix, iri in prefixes.items() if iri in text}
