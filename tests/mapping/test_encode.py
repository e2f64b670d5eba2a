"""Bytes within the JSON of a message to a device, as the network servers of LoRaWAN take them."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import CommandError, Mapper, MappingError, SolutionTerm, load_pack
from edge.mapping.reading import XSD_BOOLEAN, XSD_DECIMAL, XSD_STRING

CHIRPSTACK = """
[[mapping]]
topic = "application/{{application}}/device/{{eui}}/event/up"
payload = "json"
observation = "edge:{{eui}}/{{member}}"
{keys}

[[mapping.readings]]
path = "{path}"
{reading}
[mapping.readings.set]
topic = "application/{{application}}/device/{{eui}}/command/down"
payload = {{ devEui = "{{eui}}", fPort = 10, data = "{data}" }}
encode = {{ path = "data", encoding = "{encoding}" }}
{limits}
"""
UP = "application/c0/device/0102030405060708/event/up"


def mapper(data: str, reading: str = "", limits: str = "", encoding: str = "base64", **more: str) -> Mapper:
    values = {"keys": "", "path": "object.value", **more}
    text = CHIRPSTACK.format(data=data, reading=reading, limits=limits, encoding=encoding, **values)
    return Mapper([load_pack(text)])


def downlink(mapper: Mapper, value: str, datatype: str = XSD_DECIMAL) -> dict[str, object]:
    found = mapper.setter(UP, "urn:sepa-edge:0102030405060708/value")
    assert found is not None
    topic, payload = found[0].render(found[1], SolutionTerm(value, datatype))
    assert topic == "application/c0/device/0102030405060708/command/down"
    return json.loads(payload)


@pytest.mark.parametrize(
    ("data", "reading", "limits", "value", "datatype", "sent"),
    [
        ("03 {value|u8}", 'datatype = "boolean"', "", "true", XSD_BOOLEAN, "0301"),
        ("03{value|u8}", 'datatype = "boolean"', "", "false", XSD_BOOLEAN, "0300"),
        ("01 {value|u16}", "", "min = 1\nmax = 1440", "300", XSD_DECIMAL, "01012c"),
        ("01 {value|u16le}", "", "", "300", XSD_DECIMAL, "012c01"),
        ("{value|i16}", "scale = 0.1", "scale = 10", "-21.5", XSD_DECIMAL, "ff29"),
        ("{value|f32}", "", "", "1.5", XSD_DECIMAL, "3fc00000"),
        (
            "ff {value} 00",
            'datatype = "boolean"',
            'values = { true = "0A", false = "0B" }',
            "true",
            XSD_BOOLEAN,
            "ff0a00",
        ),
        ("{value|u8}", "", "values = { low = 1, high = 2 }", "high", XSD_STRING, "02"),
        ("{value}", 'datatype = "string"', "", "A0 b1", XSD_STRING, "a0b1"),
        ("{eui} {value|u8}", "", "", "7", XSD_DECIMAL, "010203040506070807"),
    ],
)
def test_bytes_are_written_in_hexadecimal_and_sent_as_base64(data, reading, limits, value, datatype, sent):
    found = downlink(mapper(data, reading, limits), value, datatype)
    assert base64.b64decode(str(found.pop("data")), validate=True).hex() == sent
    assert found == {"devEui": "0102030405060708", "fPort": 10}
    assert downlink(mapper(data, reading, limits, "hex"), value, datatype)["data"] == sent


@given(st.integers(-(2**31), 2**31 - 1))
def test_decode_reads_what_encode_writes(number):
    decode = 'decode = { path = "data", encoding = "base64", fields = [{ name = "value", type = "i32le" }] }'
    both = mapper("{value|i32le}", keys=decode, path="data.value")
    (reading,) = both.map(UP, json.dumps(downlink(both, str(number))).encode()).readings
    assert reading.value == str(number)


def test_the_things_stack_takes_the_bytes_within_a_list():
    pack = load_pack(
        '[[mapping]]\ntopic = "v3/{app}/devices/{id}/up"\npayload = "json"\nobservation = "edge:{id}/valve"\n'
        'path = "uplink_message.decoded_payload.valve"\ndatatype = "boolean"\n'
        'set = { topic = "v3/{app}/devices/{id}/down/replace", encode = { path = "downlinks[0].frm_payload", '
        'encoding = "base64" }, payload = { downlinks = [{ f_port = 10, frm_payload = "03 {value|u8}" }] } }\n'
    )
    found = Mapper([pack]).setter("v3/city@ttn/devices/bench-12/up", "urn:sepa-edge:bench-12/valve")
    assert found is not None
    topic, payload = found[0].render(found[1], SolutionTerm("true", XSD_BOOLEAN))
    assert topic == "v3/city@ttn/devices/bench-12/down/replace"
    assert json.loads(payload) == {"downlinks": [{"f_port": 10, "frm_payload": "AwE="}]}


@pytest.mark.parametrize(("value", "words"), [("256", "cannot be written as u8"), ("1.5", "not an integer")])
def test_a_number_that_does_not_fit_is_not_sent(value, words):
    with pytest.raises(CommandError, match=words):
        downlink(mapper("{value|u8}"), value)


def test_half_a_byte_is_not_sent():
    with pytest.raises(CommandError, match="not hexadecimal"):
        downlink(mapper("{value}", 'datatype = "string"'), "abc", XSD_STRING)


@pytest.mark.parametrize(
    ("data", "reading", "limits", "words"),
    [
        ("03 {value}", "", "", "{value|u8}"),
        ("03 {value}", 'datatype = "boolean"', "", "would be read as hexadecimal"),
        ("{ value | upper }", "", "", "would be read as hexadecimal"),
        ("{value}", 'datatype = "boolean"', 'values = { true = "ON", false = "OFF" }', '"ON" is not hexadecimal'),
        ("valve {value|u8}", "", "", "is not hexadecimal"),
        ("{value|u9}", "", "", '"u9" is not a filter'),
        ("0{value|u8}0", "", "", '"0" is not hexadecimal, with two digits for each byte'),
        ("A0 1", "", "", "two digits for each byte"),
        ("A {value|u8}", 'datatype = "string"', "", "two digits for each byte"),
        ("{value|f32}", 'datatype = "boolean"', "", '"true" can never be sent: "true" cannot be written as f32'),
        ("{value|u8}", "", 'values = { low = 1, high = "x" }', '"high" can never be sent: "x" cannot be written as u8'),
        ("{value}", "", 'values = { low = "1", high = "02" }', '"low" can never be sent'),
    ],
)
def test_a_text_that_is_not_bytes_is_a_fault(data, reading, limits, words):
    with pytest.raises(MappingError) as error:
        mapper(data, reading, limits)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('payload = { dta = "00" }, encode = { path = "data", encoding = "hex" }', "has no data to encode"),
        ('payload = { data = 5 }, encode = { path = "data", encoding = "hex" }', "must be a text in hexadecimal"),
        ('payload = { data = "00" }, encode = { path = "{key}", encoding = "hex" }', "may lead to several places"),
        ('payload = "00", encode = { path = "data", encoding = "hex" }', 'set.encode: The payload is the text "00"'),
        ('encode = { path = "data", encoding = "hex" }', 'The payload is the text "{value}"'),
        ('payload = [["00"]], encode = { path = "[0][1]", encoding = "hex" }', "has no [0][1] to encode"),
        ('payload = { data = "00" }, encode = { path = "data" }', "encoding"),
        ('payload = { data = "00" }, encode = { path = "data", encoding = "base32" }', "base64"),
    ],
)
def test_a_path_that_leads_to_no_text_is_a_fault(keys, words):
    with pytest.raises(MappingError) as error:
        load_pack(f'[[mapping]]\ntopic = "d/{{id}}"\nobservation = "edge:{{id}}"\nset = {{ topic = "d/x", {keys} }}\n')
    assert words in str(error.value)


def test_an_actuator_encodes_bytes_and_its_removed_message_does_too():
    actuator = (
        '[[actuator]]\nquery = "SELECT ?eui ?level { ?s <urn:eui> ?eui ; <urn:level> ?level }"\n'
        'topic = "application/a/device/{eui}/command/down"\npayload = { fPort = 1, data = "A0 {level|u8}" }\n'
        'encode = { path = "data", encoding = "base64" }\nremoved = { payload = { fPort = 1, data = "A0 00" } }\n'
    )
    (compiled,) = load_pack(actuator).actuators
    row = compiled.solution({"eui": SolutionTerm("01"), "level": SolutionTerm("255", XSD_DECIMAL)})
    assert compiled.added.render(row).payload == b'{"fPort":1,"data":"oP8="}'
    assert compiled.removed is not None
    assert compiled.removed.render(row).payload == b'{"fPort":1,"data":"oAA="}'


@pytest.mark.timeout(20)
@pytest.mark.parametrize("value", ["1e1000000", "-1e999999999", "1e309", "1" * 5000, "1_0", "NaN", "inf", "\u0661", ""])
@pytest.mark.parametrize("kind", ["u8", "i64le", "f32", "f64"])
def test_a_number_of_unusual_size_or_form_is_refused_at_once(kind, value):
    """Python computes the integer of 1e1000000 for minutes, and no other thread runs meanwhile."""
    string = mapper(f"{{value|{kind}}}", 'datatype = "string"')
    for datatype in (XSD_DECIMAL, XSD_STRING):
        with pytest.raises(CommandError):
            downlink(string, value, datatype)


@pytest.mark.parametrize(("value", "sent"), [("1e2", "64"), (" 7 ", "07"), ("0e999999999", "00"), ("5.00", "05")])
def test_a_whole_number_may_have_any_usual_form(value, sent):
    assert downlink(mapper("{value|u8}", 'datatype = "string"', encoding="hex"), value, XSD_STRING)["data"] == sent


LEVEL = (
    '[[actuator]]\nname = "level"\nquery = "SELECT ?eui ?level {{ ?s <urn:eui> ?eui ; <urn:level> ?level }}"\n'
    'topic = "device/{{eui}}"\n{}\n'
)
ENCODE = 'encode = { path = "data", encoding = "hex" }'


@pytest.mark.parametrize(
    "keys", ['payload = { data = "A0 {level}" }\n' + ENCODE, 'payload = "A0 {level}"\nencoding = "hex"']
)
def test_the_decimal_digits_of_a_number_are_not_sent_as_hexadecimal(keys):
    (actuator,) = load_pack(LEVEL.format(keys)).actuators
    for term in (SolutionTerm("10", XSD_DECIMAL), SolutionTerm("true", XSD_BOOLEAN)):
        with pytest.raises(CommandError, match=r"name its type, such as \{level\|u8\}"):
            actuator.added.render(actuator.solution({"eui": SolutionTerm("01"), "level": term}))
    sent = actuator.added.render(actuator.solution({"eui": SolutionTerm("01"), "level": SolutionTerm("0a")}))
    assert sent.payload in (b'{"data":"a00a"}', b"\xa0\x0a")


def test_a_removed_message_without_the_text_that_the_actuator_encodes_is_a_fault():
    with pytest.raises(MappingError) as error:
        load_pack(LEVEL.format('payload = { data = "00" }\nremoved = { payload = { off = true } }\n' + ENCODE))
    assert "removed.payload: The `encode` of the actuator applies to this payload too, which has no data" in str(
        error.value
    )


def test_a_type_in_a_text_of_json_that_is_not_encoded_is_a_warning():
    pack = load_pack(
        LEVEL.format('payload = { data = ["A0 {level|u8}"] }\nremoved = { payload = { data = "{level|u8}" } }')
    )
    assert [str(each).partition(": {")[0].rpartition(": ")[2] for each in pack.warnings] == [
        "payload",
        "removed.payload",
    ]
    assert "`encode` does not name this text" in str(pack.warnings[0])
    both = 'payload = { data = "{level|u8}", other = "{level|u16}" }\n' + ENCODE
    assert ["{level|u16} stays" in str(each) for each in load_pack(LEVEL.format(both)).warnings] == [True]
    pack = load_pack(
        '[[mapping]]\ntopic = "d/{id}"\nobservation = "edge:{id}"\n'
        'set = { topic = "d/x", payload = { data = "{value|u8}" } }\n'
    )
    assert "set.payload: {value|u8} stays" in str(pack.warnings[0])
