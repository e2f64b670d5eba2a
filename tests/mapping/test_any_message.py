"""Property-based tests: mapping never raises, every IRI is valid, and decimal arithmetic is exact."""

import json
import re
from decimal import Decimal
from fractions import Fraction

import pyoxigraph
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edge.mapping import Mapper, MappingLimits, builtin_names, load_builtin, load_pack
from edge.mapping.jsonpath import parse_path
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.terms import is_iri
from edge.mapping.values import BadValueError, Converter, JsonNumber
from tests.support.examples import examples

OWN = """
[[mapping]]
topic = "h/{a}/{b...}"
also = true
observation = "http://example.org/{a}/x/{b}?q={b}#{topic}"
location = "urn:place:{a|lower}-{b}"
label = "{a} {b}"
datatype = "auto"
[[mapping]]
topic = "h/{a}/{b...}"
payload = "json"
observation = "http://example.org/{key}"
path = "{key}"
label = "{key}"
datatype = "auto"
[[mapping]]
topic = "p-{a:*}/+"
pattern = '(?P<word>\\S+) (?P<value>.*)'
observation = "urn:w:{a}:{word}"
datatype = "string"
[[mapping]]
topic = "s/#"
payload = "senml"
observation = "urn:s:{name}"
property = "http://example.org/p/{name}"
datatype = "auto"
"""
MAPPER = Mapper([load_pack(OWN, "own")] + [load_builtin(name) for name in builtin_names()], MappingLimits(readings=20))
# Nothing that RFC 3987 forbids, whatever a grammar library may accept.
STRICT = re.compile(r"[a-z][a-z0-9+.-]*:[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]*(#[A-Za-z0-9\-._~!$&'()*+,;=:@/?%]*)?")

LEVELS = st.text(max_size=12) | st.sampled_from(
    ["..", ".", "", "#", "+", "<x>", 'a"b', "a b", "%2e%2e", "//", "\\", "{a}", "\ud800", "\x00", "é", "\u202e", "^`|"]
)
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join)
ROOTS = st.sampled_from(
    ["h/", "p-1/", "s/", "zigbee2mqtt/", "tele/x/SENSOR", "senml/", "shellies/", "shelly1/status/", "n/sensor/", ""]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["n", "v", "bt", "bn", "u", "e", "t", "bv", "vs", "temperature", "state", "params", "x:0"])
            | st.text(max_size=8),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)
PAYLOADS = (
    st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | JSON.map(lambda document: json.dumps(document).encode())
)


@settings(max_examples=examples(400), deadline=None)
@given(ROOTS, TOPICS, PAYLOADS)
@example("h/", "../..", b"1")
@example("h/", "x/\ud800", b"1")
@example("h/", "a//b//", b"1")
@example("h/", "x/y", b'{"\\ud800": 1, "..": 2, "": 3, "a/b": 4}')
@example("s/", "x", b'[{"n": "> <", "v": 1}, {"n": "//", "v": 2}]')
@example("s/", "x", b'[{"bt": 1e308, "bv": 1e308, "n": "a", "v": 1e308}]')
def test_any_message_maps_without_raising_to_valid_terms(root, rest, payload):
    mapped = MAPPER.map(root + rest, payload)
    assert len(mapped.readings) <= 20
    for reading in mapped.readings:
        for iri in (reading.observation, reading.location, reading.property, reading.sensor, reading.unit):
            if iri is not None:
                pyoxigraph.NamedNode(iri)
                assert STRICT.fullmatch(iri), iri
                assert is_iri(iri)
        literal = pyoxigraph.Literal(reading.value, datatype=pyoxigraph.NamedNode(reading.datatype))
        assert str(literal)
        for text in (reading.label, reading.comment, reading.topic):
            assert text is None or text.encode()
    for problem in mapped.problems:
        assert str(problem).isprintable()
        assert len(str(problem)) < 1000


@given(LEVELS, LEVELS)
def test_no_capture_breaks_out_of_its_place(first, second):
    mapped = MAPPER.map(f"h/{first}/{second}", b"1")
    for reading in mapped.readings:
        if reading.observation.startswith("http://example.org/"):
            assert "/../" not in reading.observation
            assert not reading.observation.endswith("/..")
            assert reading.observation.count("#") <= 1


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9)
FACTORS = st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-1000, max_value=1000)


@settings(max_examples=examples(100), deadline=None)
@given(NUMBERS, FACTORS, FACTORS)
@example(Decimal(223), Decimal("0.1"), Decimal(0))
@example(Decimal("0.1"), Decimal(3), Decimal("0.2"))
def test_scale_and_offset_are_exact(number, scale, offset):
    text = f'[[mapping]]\ntopic = "a"\nobservation = "urn:a"\nscale = {scale:f}\noffset = "{offset:f}"\n'
    (reading,) = Mapper([load_pack(text, "x")]).map("a", format(number, "f").encode()).readings
    assert reading.datatype.endswith("#decimal")
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", reading.value)
    assert Fraction(reading.value) == Fraction(number) * Fraction(scale) + Fraction(offset)


@pytest.mark.parametrize(
    "text", ["http://a/b", "http://a:80/x?y#z", "urn:a:b", "http://[::1]/x", "http://é/ü", "tag:a,b:c"]
)
def test_iris(text):
    assert is_iri(text)
    pyoxigraph.NamedNode(text)


@pytest.mark.parametrize(
    "text", ["", "a", "/a", "http:// a", "http://a/<", "urn:a b", "http://a/%zz", "http://a/#b#c", "http://a:b/", "1:a"]
)
def test_invalid_iris_are_refused(text):
    assert not is_iri(text)


NUMBERS = st.from_regex(r"-?[0-9]{1,70}(\.[0-9]{1,9})?([eE][-+]?[0-9]{1,3})?", fullmatch=True) | st.text(max_size=5)


@given(NUMBERS, st.sampled_from(("number", "decimal")))
@example("0" * 65, "number")
@example("-0", "decimal")
def test_the_fast_path_for_plain_numbers_equals_the_general_one(text, kind):
    def converted(converter: Converter) -> object:
        try:
            return converter(JsonNumber(text))
        except BadValueError as error:
            return str(error)

    assert converted(Converter(kind)) == converted(Converter(kind, absent=frozenset({"absent"})))


@given(st.sampled_from(["", " ", "\t\n"]), st.text('[]{},:"1.-e \\a', max_size=12), st.sampled_from(["", " ", "x"]))
@example("", '{"a": 1}', " ")
@example(" ", "", "")
def test_a_document_is_parsed_as_by_the_library(before, text, after):
    payload = f"{before}{text}{after}".encode()
    try:
        expected = json.loads(payload, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber)
    except json.JSONDecodeError:
        message = PayloadMessage("t", payload)
        for _ in range(2):
            with pytest.raises(PayloadError):
                message.document  # noqa: B018
    else:
        assert PayloadMessage("t", payload).document == expected


@given(
    st.sampled_from(("a", "a.b", "*", "{x}", "$", "a[0]", "[*]", '"a"')),
    st.recursive(
        st.none() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner)
    ),
)
def test_a_path_leads_somewhere_if_it_has_positions(text, document):
    path = parse_path(text)
    assert path.leads_somewhere(document) == any(True for _ in path.walk(document))
