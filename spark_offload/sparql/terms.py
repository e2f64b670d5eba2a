"""Functions on terms in columns of N-Triples texts (see `spark_offload.triples`); null means unbound.

Equal texts are equal terms. Language tags are in lower case (RDF 1.1 Concepts, section 3.3).
"""

from __future__ import annotations

from typing import Final

import rdflib
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox import observation
from edge.outbox.observation import RDF, STRING

LANG_STRING: Final = RDF + "langString"


def written(term: rdflib.term.Identifier) -> str:
    """Return the N-Triples text of an rdflib term."""
    if isinstance(term, rdflib.URIRef):
        return f"<{term}>"
    if isinstance(term, rdflib.BNode):
        return f"_:{term}"
    assert isinstance(term, rdflib.Literal)  # noqa: S101  there is no other
    if term.language:
        return f"{observation.literal(str(term))}@{term.language.lower()}"
    return observation.literal(str(term), str(term.datatype or STRING))


def datatype_of(literal: rdflib.Literal) -> str:
    """Return the datatype IRI of a literal."""
    if literal.language:
        return LANG_STRING
    return STRING if literal.datatype is None else str(literal.datatype)


def is_iri(term: Column) -> Column:
    """Whether it is one."""
    return term.startswith("<")


def is_blank(term: Column) -> Column:
    """Return whether a term is a blank node."""
    return term.startswith("_")


def is_literal(term: Column) -> Column:
    """Whether it is one."""
    return term.startswith('"')


def iri_text(term: Column) -> Column:
    """Return the text of an IRI; null for other terms."""
    return F.when(is_iri(term), F.substring(term, F.lit(2), F.length(term) - 2))


def literal_text(term: Column) -> Column:
    """Return the lexical form of a literal; null for other terms."""
    text = F.substring(term, F.lit(2), F.length(term) - F.length(_after(term)) - 2)
    return F.when(is_literal(term), F.when(text.contains("\\"), _unescaped(text)).otherwise(text))


def datatype(term: Column) -> Column:
    """Return the datatype IRI of a literal as text; null for other terms."""
    after = _after(term)
    known = F.when(after == "", STRING).when(after.startswith("@"), LANG_STRING)
    return F.when(is_literal(term), known.otherwise(F.substring(after, F.lit(4), F.length(after) - 4)))


def lang(term: Column) -> Column:
    """Return the language of a literal, empty without one; null for other terms."""
    after = _after(term)
    return F.when(is_literal(term), F.when(after.startswith("@"), F.substring(after, 2, 64)).otherwise(""))


def _after(term: Column) -> Column:
    """Return the text after the closing quote of a literal."""
    return F.substring_index(term, '"', -1)


def _unescaped(text: Column) -> Column:
    """The reverse of `spark_offload.triples.escaped`: what N-Triples escapes means the same in JSON."""
    return F.get_json_object(F.concat(F.lit('{"t":"'), text, F.lit('"}')), "$.t")
