"""An RDF term as a column: a struct, null where nothing is bound. Equal structs are equal terms.

In a struct nothing is null: an IRI has the empty text for a datatype, and what has no language has it for a language.
Texts are as they are, nothing is escaped. Language tags are in lower case (RDF 1.1, section 3.3).
"""

from __future__ import annotations

from typing import Final

import rdflib
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from edge.outbox.observation import RDF, STRING

IRI: Final = "iri"
BLANK: Final = "blank"
LITERAL: Final = "literal"

LANG_STRING: Final = RDF + "langString"

TERM: Final = StructType(
    [
        StructField("kind", StringType(), nullable=False),  # IRI, BLANK or LITERAL
        StructField("text", StringType(), nullable=False),  # the IRI, the label, or the lexical form
        StructField("datatype", StringType(), nullable=False),  # of a literal
        StructField("lang", StringType(), nullable=False),
    ]
)


def iri(text: Column) -> Column:
    """A term from an IRI; null where that is null."""
    return _term(IRI, text, F.lit(""), F.lit(""))


def blank(label: Column) -> Column:
    """A term from the label of a blank node; null where that is null."""
    return _term(BLANK, label, F.lit(""), F.lit(""))


def literal(text: Column, datatype: Column | str = STRING) -> Column:
    """A term from a lexical form and the IRI of its datatype; null where one is null."""
    return _term(LITERAL, text, F.lit(datatype) if isinstance(datatype, str) else datatype, F.lit(""))


def tagged(text: Column, lang: Column) -> Column:
    """A term from a text in a language; null where one is null."""
    return _term(LITERAL, text, F.lit(LANG_STRING), F.lower(lang))


def constant(term: rdflib.term.Identifier) -> Column:
    """A term from rdflib's."""
    if isinstance(term, rdflib.URIRef):
        return iri(F.lit(str(term)))
    if isinstance(term, rdflib.BNode):
        return blank(F.lit(str(term)))
    assert isinstance(term, rdflib.Literal)  # noqa: S101  there is no other
    if term.language:
        return tagged(F.lit(str(term)), F.lit(term.language))
    return literal(F.lit(str(term)), str(term.datatype or STRING))


def _term(kind: str, text: Column, datatype: Column, lang: Column) -> Column:
    term = F.struct(F.lit(kind).alias("kind"), text.alias("text"), datatype.alias("datatype"), lang.alias("lang"))
    return F.when(text.isNotNull() & datatype.isNotNull() & lang.isNotNull(), term)
