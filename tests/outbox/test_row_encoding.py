"""Row encoding: from quads to stored observations and back without change, compact if they have the usual shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyoxigraph as ox
from hypothesis import given
from hypothesis import strategies as st

from edge.outbox.observation import DCTERMS, MONITOR, OWL_TIME, QUDT, RDF, SOSA, XSD, Cells, ObservationContext, quads
from edge.outbox.row_encoding import observations
from edge.outbox.segment import body, cells

NOW = 1_700_000_000_000_000
HISTORY = "urn:edge:history"
NAME = "0123456789abcdef:7"

Statement = tuple[object, ox.NamedNode, object, object]


def iri(text: str) -> ox.NamedNode:
    return ox.NamedNode(text)


SUBJECTS = [iri(f"urn:x:{letter}") for letter in "abcd"]
PREDICATES = [
    SOSA + "hasResult",
    SOSA + "hasFeatureOfInterest",
    SOSA + "observedProperty",
    SOSA + "madeBySensor",
    MONITOR + "hasMqttTopic",
    DCTERMS + "isVersionOf",
    QUDT + "unit",
    QUDT + "numericValue",
    OWL_TIME + "hasTime",
    OWL_TIME + "inXSDDateTimeStamp",
    "urn:x:other",
]
TYPES = [SOSA + "Observation", QUDT + "QuantityValue", OWL_TIME + "Instant", "urn:x:Thing"]
TIMES = ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.5+01:00", "2026-02-30T00:00:00Z", "yesterday", ""]

literals = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(ox.Literal),
    st.sampled_from(TIMES).map(lambda text: ox.Literal(text, datatype=iri(XSD + "dateTimeStamp"))),
    st.sampled_from(TIMES).map(ox.Literal),
    st.text('\t\n\r\\"a', max_size=4).map(lambda text: ox.Literal(text, language="en")),
    st.integers().map(ox.Literal),
    st.text("05.-", max_size=4).map(lambda text: ox.Literal(text, datatype=iri(XSD + "decimal"))),
)
blanks = st.sampled_from([ox.BlankNode("x"), ox.BlankNode("y")])
nodes = st.one_of(st.sampled_from(SUBJECTS), blanks)
triples = st.one_of(
    st.tuples(nodes, st.just(iri(RDF + "type")), st.sampled_from(TYPES).map(iri)),
    st.tuples(nodes, st.sampled_from(PREDICATES).map(iri), st.one_of(nodes, literals)),
)
graphs = st.sampled_from([None, iri(HISTORY), iri("urn:x:g"), ox.BlankNode("g")])


@st.composite
def whole(draw: st.DrawFn) -> list[Statement]:
    """Return an observation of the shape, possibly with extra or missing quads."""
    observation, result, instant = draw(st.permutations(SUBJECTS))[:3]
    graph = draw(graphs)
    said = [
        (observation, RDF + "type", iri(SOSA + "Observation")),
        (observation, SOSA + "hasResult", result),
        (result, RDF + "type", iri(QUDT + "QuantityValue")),
        (result, QUDT + "unit", iri("urn:x:unit")),
        (result, QUDT + "numericValue", draw(literals)),
        (result, OWL_TIME + "hasTime", instant),
        (instant, RDF + "type", iri(OWL_TIME + "Instant")),
        (instant, OWL_TIME + "inXSDDateTimeStamp", draw(literals)),
        (observation, MONITOR + "hasMqttTopic", draw(literals)),
        (observation, SOSA + "madeBySensor", iri("urn:x:sensor")),
    ]
    left = draw(st.integers(0, 12))
    return [(s, iri(p), o, graph) for at, (s, p, o) in enumerate(said) if at != left]


several = st.lists(
    st.one_of(whole(), st.tuples(triples, graphs).map(lambda each: [(*each[0], each[1])])), min_size=1, max_size=6
).map(lambda parts: [statement for part in parts for statement in part])


def expected(statements: Iterable[Statement]) -> set[ox.Quad]:
    """Return the expected quads, with blank nodes numbered in order."""
    names: dict[str, ox.NamedNode] = {}

    def named(term):
        if isinstance(term, ox.BlankNode):
            return names.setdefault(term.value, iri(f"urn:edge:{NAME}:{len(names) + 1}"))
        return term

    found = set()
    for s, p, o, g in statements:
        graph = named(g)
        graph = ox.DefaultGraph() if graph is None or graph == iri(HISTORY) else graph
        found.add(ox.Quad(named(s), p, named(o), graph))
    return found


def stored(statements: Sequence[Statement]) -> list[tuple[ObservationContext, Cells]]:
    """Return the quads as read from the outbox."""
    return [(context, cells(body(own))) for context, own in observations(statements, HISTORY, NAME, NOW)]


@given(several)
def test_stored_rows_expand_to_the_original_quads(statements):
    lines = [line for found in stored(statements) for line in quads(*found, "0123456789abcdef", 1)]
    again = list(ox.parse("\n".join(lines), ox.RdfFormat.N_QUADS, lenient=True)) if lines else []
    assert set(again) == expected(statements)
    assert len(lines) == len(set(lines)) == len(expected(statements))


def shaped(**other: object) -> list[Statement]:
    """Return `STORE_OBSERVATION` of Listing 18, with a quantity of 22.5."""
    o, q, i = iri("urn:o:1"), iri("urn:q:1"), iri("urn:i:1")
    said: dict[str, tuple[object, str, object]] = {
        "type": (o, RDF + "type", iri(SOSA + "Observation")),
        "result": (o, SOSA + "hasResult", q),
        "quantity": (q, RDF + "type", iri(QUDT + "QuantityValue")),
        "unit": (q, QUDT + "unit", iri("urn:unit:C")),
        "value": (q, QUDT + "numericValue", ox.Literal("22.5", datatype=iri(XSD + "decimal"))),
        "has_time": (q, OWL_TIME + "hasTime", i),
        "instant": (i, RDF + "type", iri(OWL_TIME + "Instant")),
        "time": (i, OWL_TIME + "inXSDDateTimeStamp", ox.Literal("2026-01-02T03:04:05.000006Z")),
    }
    return [(s, iri(p), o, None) for s, p, o in {**said, **other}.values() if s is not None]  # type: ignore[misc]


def test_listing_18_is_a_few_cells():
    ((context, own),) = stored(shaped())
    assert context == ObservationContext(unit="urn:unit:C", datatype=XSD + "decimal", time_datatype=XSD + "string")
    assert own == Cells(1_767_323_045_000_006, "22.5", observation="urn:o:1", result="urn:q:1", instant="urn:i:1")


def test_additional_properties_of_an_observation_are_cells():
    o = iri("urn:o:1")
    more = {
        "topic": (o, MONITOR + "hasMqttTopic", ox.Literal("a/b")),
        "place": (o, SOSA + "hasFeatureOfInterest", iri("urn:place:1")),
        "property": (o, SOSA + "observedProperty", iri("urn:property:1")),
        "sensor": (o, SOSA + "madeBySensor", iri("urn:sensor:1")),
        "unit": (None, "", None),
    }
    ((context, own),) = stored(shaped(**more))
    assert (context.topic, context.feature, context.property) == ("a/b", "urn:place:1", "urn:property:1")
    assert (context.sensor, context.unit, own.quads) == ("urn:sensor:1", None, None)


def test_anything_else_is_stored_as_quads_at_its_time():
    ((context, own),) = stored(shaped(label=(iri("urn:o:1"), "urn:x:label", ox.Literal("a"))))
    assert (context, own.time, own.value) == (ObservationContext(), 1_767_323_045_000_006, None)
    assert len(own.quads.split("\n")) == 9


def test_a_foreign_version_is_not_an_observation():
    ((context, own),) = stored(shaped(version=(iri("urn:o:1"), DCTERMS + "isVersionOf", iri("urn:o:live"))))
    assert context.series is None
    assert own.quads


def test_observations_and_other_quads_are_separated():
    other = [
        (iri("urn:x:a"), iri("urn:x:p"), ox.Literal("1"), None),
        (ox.BlankNode(), iri("urn:x:p"), iri("urn:x:a"), None),
    ]
    found = stored([*other, *shaped()])
    assert [own.quads is None for _, own in found] == [True, False, False]
    assert [own.time == NOW for _, own in found] == [False, True, True]


def test_a_context_that_is_too_large_for_a_manifest_is_stored_as_quads():
    """A manifest has at most 1 MiB, and a segment of one observation cannot be divided."""
    large = iri("urn:x:" + "a" * (64 << 10))
    ((context, own),) = stored(shaped(sensor=(iri("urn:o:1"), SOSA + "madeBySensor", large)))
    assert context == ObservationContext()
    assert large.value in own.quads
