"""Canonical literals: the engine's canonical form is the one that Oxigraph's store produces."""

from __future__ import annotations

import calendar
import gc

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.store import terms as terms_module
from edge.engine.store.terms import IRI, LITERAL, XSD, Dictionary, canonical
from tests.support.examples import examples

NAMES = [
    "string", "integer", "decimal", "double", "float", "boolean", "dateTime", "date", "time", "duration",
    "dayTimeDuration", "yearMonthDuration", "gYear", "gMonth", "gDay", "gYearMonth", "gMonthDay", "int", "long",
    "short", "byte", "unsignedInt", "nonNegativeInteger", "positiveInteger", "anyURI", "hexBinary", "base64Binary",
    "token", "dateTimeStamp", "normalizedString",
]  # fmt: skip
DATATYPES = [XSD + name for name in NAMES] + [
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#HTML",
    "http://www.opengis.net/ont/geosparql#wktLiteral",
    "http://example.org/own",
]

digits = st.text("0123456789", max_size=22)
sign = st.sampled_from(["", "-", "+"])
number = st.builds(
    lambda s, a, p, b, e: s + a + p + b + e,
    sign,
    digits,
    st.sampled_from(["", "."]),
    digits,
    st.sampled_from(["", "e0", "E5", "E-3"]),
)
two = st.integers(0, 70).map("{:02}".format)
year = st.one_of(st.integers(0, 12_000).map("{:04}".format), st.sampled_from(["-0001", "1900", "2000", "2024"]))
fraction = st.one_of(st.just(""), st.text("0123456789", max_size=12).map(lambda text: "." + text))
zone = st.one_of(st.sampled_from(["", "Z", "+00:00", "-00:00", "+14:00", "-05:30", "z"]))
date_time = st.builds("{}-{}-{}T{}:{}:{}{}{}".format, year, two, two, two, two, two, fraction, zone)
date = st.builds("{}-{}-{}{}".format, year, two, two, zone)
other = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [
            "true",
            "false",
            "1",
            "0",
            "TRUE",
            "INF",
            "-INF",
            "NaN",
            "P1D",
            "PT1H",
            "P1Y2M",
            "-P1D",
            "PT0S",
            "P0D",
            "\u0661",
            "1\u0662",
            " 1",
            "1 ",
            "24:00:00",
        ]
    ),
)
lexical = st.one_of(number, number, date_time, date_time, date, other, st.integers().map(str), st.floats().map(repr))
literals = st.builds(
    lambda value, name: ox.Literal(value, datatype=ox.NamedNode(name)), lexical, st.sampled_from(DATATYPES)
)
languages = st.sampled_from(["en", "EN", "en-GB", "En-gb", "de-CH-1996", "zh-Hant", "x-private", "es-419", "i-KLINGON"])
tagged = st.builds(lambda value, language: ox.Literal(value, language=language), st.text(max_size=5), languages)


def in_store(term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple) -> object:
    store = ox.Store()
    name = ox.NamedNode("urn:x")
    store.add(ox.Quad(name, name, term))
    return next(iter(store)).object


@settings(max_examples=examples(1500), deadline=None)
@given(st.one_of(literals, literals, literals, tagged))
def test_canonical_literals_equal_those_of_the_store(literal):
    assert canonical(literal) == in_store(literal)
    assert canonical(canonical(literal)) == canonical(literal)


@settings(max_examples=examples(300), deadline=None)
@given(st.text("0123456789abcdefABCDEF-_", min_size=1, max_size=36))
def test_names_of_blank_nodes_stay(name):
    try:
        node = ox.BlankNode(name)
    except ValueError:
        return
    assert canonical(node) == in_store(node) == node


@settings(max_examples=examples(100), deadline=None)
@given(literals)
def test_triple_terms_hold_canonical_literals(literal):
    name = ox.NamedNode("urn:x")
    nested = ox.Triple(name, name, ox.Triple(ox.BlankNode("b"), name, literal))
    assert canonical(nested) == in_store(nested)


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (
            ox.Literal("01", datatype=ox.NamedNode(XSD + "integer")),
            ox.Literal("1", datatype=ox.NamedNode(XSD + "integer")),
        ),
        (
            ox.Literal("1.00", datatype=ox.NamedNode(XSD + "decimal")),
            ox.Literal("1", datatype=ox.NamedNode(XSD + "decimal")),
        ),
        (ox.Literal("x", language="EN"), ox.Literal("x", language="en")),
        (
            ox.Literal("abc", datatype=ox.NamedNode(XSD + "integer")),
            ox.Literal("abc", datatype=ox.NamedNode(XSD + "integer")),
        ),
        (
            ox.Literal("2024-01-01T00:00:00.0+00:00", datatype=ox.NamedNode(XSD + "dateTime")),
            ox.Literal("2024-01-01T00:00:00Z", datatype=ox.NamedNode(XSD + "dateTime")),
        ),
    ],
)
def test_canonical_form_of_literals(written, stored):
    assert canonical(written) == stored


@pytest.mark.parametrize("month", range(1, 13))
def test_times_of_readings_need_no_round_trip_through_oxigraph_on_any_day(month, monkeypatch):
    """Only invalid dates do, and the last day of February, which depends on the year."""
    asked = []
    monkeypatch.setattr(terms_module, "_by_oxigraph", lambda literal: asked.append(literal) or literal)
    for name in ("dateTime", "dateTimeStamp"):
        texts = [f"2026-{month:02}-{day:02}T12:00:00.5Z" for day in range(33)]
        for text in texts:
            canonical(ox.Literal(text, datatype=ox.NamedNode(XSD + name)))
        last = 28 if month == 2 else calendar.monthrange(2026, month)[1]
        assert [literal.value for literal in asked] == [texts[0], *texts[last + 1 :]]
        asked.clear()


def test_equal_terms_have_one_id_and_its_kind():
    dictionary = Dictionary()
    one = dictionary.intern(ox.Literal("1", datatype=ox.NamedNode(XSD + "integer")))
    assert dictionary.intern(ox.Literal("01", datatype=ox.NamedNode(XSD + "integer"))) == one
    assert dictionary.intern(ox.Literal("1")) != one
    assert dictionary.kinds[one] == LITERAL
    assert dictionary.kinds[dictionary.intern(ox.NamedNode("urn:1"))] == IRI
    assert len(dictionary) == 3


def test_terms_are_removed_with_their_last_reference():
    dictionary = Dictionary()
    kept, idle = dictionary.intern(ox.NamedNode("urn:kept")), dictionary.intern(ox.NamedNode("urn:idle"))
    dictionary.retain(kept)
    dictionary.retain(kept)
    assert dictionary.intern(ox.NamedNode("urn:idle")) == idle
    dictionary.sweep()
    assert len(dictionary) == 1
    assert dictionary.intern(ox.NamedNode("urn:other")) == idle, "the id is free again"
    dictionary.release(kept)
    dictionary.sweep()
    assert dictionary.terms[kept] == ox.NamedNode("urn:kept")
    dictionary.release(kept)
    dictionary.retain(kept)
    dictionary.sweep()
    assert dictionary.intern(ox.NamedNode("urn:kept")) == kept
    dictionary.release(kept)
    dictionary.sweep()
    assert len(dictionary) == 0


def test_the_further_maps_belong_to_the_objects_of_the_start():
    """An untracked dictionary would become young with its first term, and collections would visit all its terms."""
    assert all(map(gc.is_tracked, Dictionary()._further))


@given(st.lists(st.tuples(st.sampled_from(("intern", "retain", "release", "sweep")), st.integers(0, 30)), max_size=200))
def test_a_dictionary_of_several_maps_is_one(story):
    """Terms beyond the first map's limit are found, counted and removed like others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms_module, "_FIRST", 3)
        dictionary = Dictionary()
        counts: dict[ox.NamedNode, int] = {}
        for move, number in story:
            # The dictionary uses the second one itself, for ids that are free.
            term = ox.NamedNode(f"urn:{number}" if number else "urn:x-edge:forgotten")
            if move == "sweep":
                dictionary.sweep()
                counts = {each: count for each, count in counts.items() if count}
            elif move == "intern" or term not in counts:
                assert dictionary.terms[dictionary.intern_values([term])[0]] == term
                counts.setdefault(term, 0)
            elif move == "retain":
                dictionary.retain(dictionary.intern(term))
                counts[term] += 1
            elif counts[term]:
                dictionary.release(dictionary.intern_value(term))
                counts[term] -= 1
            assert len(dictionary) == len(counts)
            found = dictionary.find(term)
            assert (found is not None) == (term in counts)
            assert found is None or dictionary.terms[found] == term
