"""Binary payloads: fields become a document for readings; short or undeclared payloads are reported."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import Mapper, MappingError, explain, load_pack
from edge.mapping.binary import FLOATS, INTEGERS, layout
from edge.mapping.model import FieldSpec
from edge.mapping.payload import PayloadError


def read(fields: list[dict], payload: bytes) -> dict:
    return layout([FieldSpec.model_validate(field) for field in fields]).read(payload)


def value(number: str) -> float:
    return json.loads(number)


@given(kind=st.sampled_from(sorted(INTEGERS)), data=st.data())
def test_integers(kind, data):
    size, signed, endian = INTEGERS[kind]
    low, high = (-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1) if signed else (0, (1 << 8 * size) - 1)
    number = data.draw(st.integers(low, high))
    assert read([{"name": "n", "type": kind}], number.to_bytes(size, endian, signed=signed)) == {"n": str(number)}


@given(kind=st.sampled_from(sorted(FLOATS)), data=st.data())
def test_floats_have_the_shortest_representation(kind, data):
    wide = FLOATS[kind].size == 8
    number = data.draw(st.floats(allow_nan=False, allow_infinity=False, width=64 if wide else 32))
    found = read([{"name": "n", "type": kind}], FLOATS[kind].pack(number))["n"]
    assert FLOATS[kind].pack(float(found)) == FLOATS[kind].pack(number)


def test_a_float_has_the_decimal_value_of_the_device():
    assert read([{"name": "t", "type": "f32"}], struct.pack(">f", 21.2)) == {"t": "21.2"}


def test_bits_texts_bytes_and_places():
    fields = [
        {"name": "flags", "type": "u8", "bits": {"low": 0, "high": 7, "level": [1, 3]}},
        {"type": "skip", "size": 1},
        {"name": "length", "type": "u8"},
        {"name": "name", "type": "text", "size": "length"},
        {"name": "id", "type": "hex", "size": 2},
        {"name": "last", "type": "u8", "at": -1},
        {"name": "again", "type": "u8", "at": 0},
    ]
    assert read(fields, b"\x8b\xff\x05hall\0\xab\xcd\x01\x02") == {
        "flags": {"low": "1", "high": "1", "level": "5"},
        "length": "5",
        "name": "hall",
        "id": "abcd",
        "last": "2",
        "again": "139",
    }


def test_fields_repeat_as_often_as_there_are_bytes_or_as_is_said():
    pair = [{"name": "k", "type": "u8"}, {"name": "v", "type": "u8"}]
    assert read([{"name": "all", "fields": pair}], b"\1\2\3\4") == {"all": [{"k": "1", "v": "2"}, {"k": "3", "v": "4"}]}
    some = [{"name": "n", "type": "u8"}, {"name": "some", "fields": pair, "repeat": "n", "by": "k"}]
    assert read(some, b"\1\7\x08\x09") == {"n": "1", "some": {"7": {"k": "7", "v": "8"}}}


def test_fields_depend_on_a_tag():
    cases = {"1": [{"name": "t", "type": "i16"}], "0x02": [{"name": "h", "type": "u8"}]}
    group = [{"name": "tag", "type": "u8"}, {"on": "tag", "cases": cases}]
    assert read([{"name": "all", "fields": group}], b"\1\xff\xff\2\x32") == {
        "all": [{"tag": "1", "t": "-1"}, {"tag": "2", "h": "50"}]
    }
    with pytest.raises(PayloadError, match="tag is 3 at byte 1, which has no case"):
        read([{"name": "all", "fields": group}], b"\3\0")
    cases["*"] = [{"name": "rest", "type": "hex"}]
    assert read(group, b"\3\0\1") == {"tag": "3", "rest": "0001"}


@given(st.binary(max_size=12))
def test_any_payload_is_handled(payload):
    fields = [
        {"name": "n", "type": "u8"},
        {"name": "all", "repeat": "n", "fields": [{"name": "t", "type": "text", "size": 2}]},
        {"name": "rest", "fields": [{"name": "x", "type": "f32le"}]},
    ]
    with suppress(PayloadError):
        read(fields, payload)


PACK = """
[[mapping]]
topic = "meter/+"
when = { path = "kind", equals = 1 }
captures = { id = "id" }
fields = [{ name = "kind", type = "u8" }, { name = "id", type = "u8" }, { name = "t", type = "i16" }]
path = "t"
scale = 0.1
observation = "edge:{id}-t"

[[mapping]]
topic = "meter/+"
when = { path = "kind", equals = 2 }
fields = [{ name = "kind", type = "u8" }, { name = "on", type = "u8" }]
path = "on"
datatype = "boolean"
observation = "edge:on"

[[mapping]]
topic = "meter/+"
observation = "edge:text"
"""


def test_mappings_of_one_topic_read_it_each_in_its_own_way():
    mapper = Mapper([load_pack(PACK, "meters")])

    def values(payload: bytes) -> list[tuple[str, str]]:
        return [(each.observation, each.value) for each in mapper.map("meter/a", payload).readings]

    assert values(b"\1\7\xff\x38") == [("urn:sepa-edge:7-t", "-20.0")]
    assert values(b"\2\1") == [("urn:sepa-edge:on", "true")]
    assert values(b"21.5") == [("urn:sepa-edge:text", "21.5")]
    assert values(b"\x31\x32") == [("urn:sepa-edge:text", "12")]
    assert mapper.map("meter/a", b"\1").mappings == ("meters/meter/+",), "what is too short fulfils no condition"


def test_a_payload_that_is_too_short_is_a_problem():
    pack = '[[mapping]]\ntopic = "a"\npath = "t"\nobservation = "edge:t"\nfields = [{ name = "t", type = "u32" }]'
    (problem,) = Mapper([load_pack(pack, "p")]).map("a", b"\1\2").problems
    assert str(problem) == "p/a: payload: the payload has 2 bytes and ends within t"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ("[]", "fields: A binary payload has fields."),
        ('[{ name = "t", type = "u166" }]', 'fields[0].type: "u166" is not a type. Did you mean "u16"?'),
        ('[{ name = "t" }]', "fields[0]: A field has a type, fields that repeat, or cases."),
        ('[{ type = "u8" }]', "fields[0].name: A field has a name"),
        ('[{ name = "t", type = "u8" }, { name = "t", type = "u8" }]', "fields[1].name: Another field has that name."),
        ('[{ name = "t", type = "u8", size = 2 }]', "fields[0].size: A field u8 has no such key."),
        ('[{ name = "t", type = "hex", size = "n" }]', 'fields[0].size: No integer field "n" comes before.'),
        ('[{ name = "t", type = "hex", size = -1 }]', "fields[0].size: must not be negative."),
        ('[{ name = "t", type = "u8", bits = { a = 8 } }]', 'fields[0].bits: "a" is beyond the 8 bits'),
        ('[{ name = "t", type = "f32", bits = { a = 8 } }]', "fields[0].bits: Only integers have bits."),
        ('[{ on = "t", cases.1 = [] }]', "fields[0].on: Cases depend on an integer field before them."),
        ('[{ name = "t", type = "u8" }, { on = "t", cases.a = [] }]', 'fields[1].cases: "a" is not a number.'),
        ('[{ name = "g", by = "x", fields = [{ name = "y", type = "u8" }] }]', "fields[0].by: No field of the group"),
        ('[{ name = "g", fields = [{ name = "y", type = "u8", at = 1 }] }]', "fields[0].fields[0].at: Only a field"),
        ('[{ name = "t", tipe = "u8" }]', "fields[0].tipe: Unknown key."),
    ],
)
def test_faults(fields, fault):
    text = f'[[mapping]]\ntopic = "a"\npath = "t"\nobservation = "edge:t"\nfields = {fields}\n'
    with pytest.raises(MappingError) as caught:
        load_pack(text, "f")
    assert f'f:5: mapping "a": {fault}' in str(caught.value)


@pytest.mark.parametrize("keys", ['payload = "binary"', 'payload = "json"\nfields = [{ name = "t", type = "u8" }]'])
def test_binary_and_fields_go_together(keys):
    with pytest.raises(MappingError, match="Binary payloads have fields, and no others do"):
        load_pack(f'[[mapping]]\ntopic = "a"\nobservation = "edge:t"\n{keys}\n', "f")


def test_an_unmapped_binary_payload_gets_a_suggested_binary_mapping():
    suggestion = explain(Mapper(), "serial/a", b"\xff\xfe").suggestion
    assert suggestion is not None
    (reading,) = Mapper([load_pack(suggestion, "s")]).map("serial/a", b"\xff\xfe").readings
    assert reading.value == "65534"
