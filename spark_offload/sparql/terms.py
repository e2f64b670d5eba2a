"""Functions on terms in columns of N-Triples texts (see `spark_offload.triples`); null means unbound.

Equal texts are equal terms. Language tags are in lower case (RDF 1.1 Concepts, section 3.3).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from edge.outbox import observation
from edge.outbox.observation import RDF, STRING
from edge.sparql import terms as rdf

LANG_STRING: Final = RDF + "langString"


def written(term: rdf.Iri | rdf.Literal | rdf.BlankNode) -> str:
    """Return the N-Triples text of a term."""
    if isinstance(term, rdf.Iri):
        return f"<{term.value}>"
    if isinstance(term, rdf.BlankNode):
        return f"_:{term.value}"
    if term.language:
        return f"{observation.literal(term.value)}@{term.language.lower()}"
    return observation.literal(term.value, term.datatype.value)


def datatype_of(literal: rdf.Literal) -> str:
    """Return the datatype IRI of a literal."""
    return literal.datatype.value


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
