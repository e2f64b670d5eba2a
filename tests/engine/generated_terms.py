"""RDF terms of every kind that Oxigraph can make, and SPARQL expressions that make them."""

from __future__ import annotations

from collections.abc import Callable

import pyoxigraph as ox
from hypothesis import strategies as st

XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
DATATYPES = (
    *(XSD + name for name in ("string", "integer", "decimal", "double", "float", "boolean", "dateTime", "date")),
    *(XSD + name for name in ("time", "gYear", "gYearMonth", "gMonth", "gMonthDay", "gDay", "duration")),
    *(
        XSD + name
        for name in ("dayTimeDuration", "yearMonthDuration", "dateTimeStamp", "byte", "unsignedLong", "anyURI")
    ),
    *(RDF + "langString", RDF + "dirLangString", "urn:x:'()*+,;=@!$&%20", "http://[::1]/é?#", "a:"),
)
LEXICAL = (
    *("", " 1 ", "01", "-0", "+1", "1.50", ".5", "1e3", "1e400", "1E-400", "NaN", "INF", "+INF", "-INF", "-0.0", "0x1"),
    *("99999999999999999999999999", "0.0000000000000000001", "123456789012345678.9", "true", "1", "TRUE", "0FB7"),
    *("2020-01-01T24:00:00Z", "2020-02-30T00:00:00Z", "0000-01-01T00:00:00Z", "2020-01-01T00:00:00+14:00"),
    *("2020-01-01T00:00:00.1234567890123456789Z", "2020-01-01T00:00:00", "2020-01-01", "-0001-01-01+00:00"),
    *("24:00:00", "12:00:00.50", "2020Z", "2020-01+01:00", "--02-29", "---31", "--02", "P1Y", "P13M", "-P0D"),
)
ODD = ("\0", "\x01\x1f\x7f\x80\x85\x9f", "\r\n\t", '"\\"', "\\u0041", "\u2028\ufeff\ufffe\uffff", "\U0010ffff")
TEXTS = st.text(max_size=12) | st.sampled_from(ODD + LEXICAL)


def possible(make: Callable[..., ox.NamedNode | ox.BlankNode | ox.Literal]) -> Callable[..., object]:
    """Return Oxigraph's result for these arguments, or None if it refuses them."""

    def made(*arguments: object) -> object:
        try:
            return make(*arguments)
        except ValueError:
            return None

    return made


def built(make: Callable[..., object], *parts: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.builds(possible(make), *parts).filter(lambda term: term is not None)


IRIS = built(lambda start, end: ox.NamedNode(start + end), st.sampled_from(("urn:x:", "http://é.org/", "a:")), TEXTS)
LABELS = st.text("ab01.-:_·é²\u203f\u0300", min_size=1, max_size=6) | st.text(min_size=1, max_size=3)
BLANKS = built(ox.BlankNode, LABELS)
LANGUAGES = st.sampled_from(("en", "EN-us", "zh-Hant-tw", "de-1996-x-a"))
DIRECTIONS = st.sampled_from((ox.BaseDirection.LTR, ox.BaseDirection.RTL))
LITERALS = st.one_of(
    built(ox.Literal, TEXTS),
    built(lambda text, language: ox.Literal(text, language=language), TEXTS, LANGUAGES),
    built(lambda text, tag, way: ox.Literal(text, language=tag, direction=way), TEXTS, LANGUAGES, DIRECTIONS),
    built(
        lambda text, datatype: ox.Literal(text, datatype=ox.NamedNode(datatype)),
        st.sampled_from(LEXICAL) | TEXTS,
        st.sampled_from(DATATYPES),
    ),
    built(lambda text: ox.Literal(text * 3_000_000), st.sampled_from("aé\0")),
)
SIMPLE = IRIS | BLANKS | LITERALS
TRIPLES = st.recursive(SIMPLE, lambda inner: st.builds(ox.Triple, IRIS | BLANKS, IRIS, inner), max_leaves=3)
TERMS = SIMPLE | TRIPLES


def quoted(text: str) -> str:
    return str(ox.Literal(text))


EXPRESSIONS = st.one_of(
    st.sampled_from(
        (
            *("NOW()", "UUID()", "STRUUID()", "RAND()", "BNODE()", "1/3", "-1e0/0e0", "0.0/1", "1e400", "7 - 7.0"),
            *("xsd:date(NOW())", "xsd:time(NOW())", "NOW() - NOW()", "xsd:float('1e-40')", "SHA512('a')"),
            *("TRIPLE(<urn:a>, <urn:b>, <urn:c>)", "TRIPLE(BNODE(), <urn:b>, TRIPLE(<urn:a>, <urn:b>, 1))"),
            *("SUBJECT(TRIPLE(<urn:a>, <urn:b>, 1))", "LANGDIR('x'@en--ltr)", "'x'@en--rtl", "<<( <urn:a> a 1 )>>"),
        )
    ),
    TEXTS.map(lambda text: f"IRI({quoted(text)})"),
    TEXTS.map(lambda text: f"IRI({quoted('urn:x:' + text)})"),
    LABELS.map(lambda text: f"BNODE({quoted(text)})"),
    st.builds(lambda text, tag: f"STRLANG({quoted(text)}, {quoted(tag)})", TEXTS, LANGUAGES | TEXTS),
    st.builds(
        lambda text, tag, way: f"STRLANGDIR({quoted(text)}, {quoted(tag)}, {quoted(way)})",
        TEXTS,
        LANGUAGES | TEXTS,
        st.sampled_from(("ltr", "rtl", "up")),
    ),
    st.builds(
        lambda text, datatype: f"STRDT({quoted(text)}, IRI({quoted(datatype)}))", TEXTS, st.sampled_from(DATATYPES)
    ),
    st.builds(lambda text, other: f"CONCAT({quoted(text)}, {quoted(other)})", TEXTS, TEXTS),
    TEXTS.map(lambda text: f"ENCODE_FOR_URI({quoted(text)})"),
    TEXTS.map(lambda text: f"REPLACE('axa', 'x', {quoted(text)})"),
)
