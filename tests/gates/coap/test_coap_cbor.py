"""CBOR payloads of devices in the mapping language: RFC 8949, RFC 8428, section 6."""

import contextlib
import json
import math
import struct
from datetime import UTC, datetime

import cbor2
import pytest
from aiocoap import POST, Code
from hypothesis import given
from hypothesis import strategies as st

from edge.gates.coap.cbor import read_cbor
from edge.gates.coap.senml import as_json
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_builtin
from edge.protocol.errors import InvalidRequest, TooLarge

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
SINGLES = st.floats(width=32)


@given(PLAIN)
def test_json_values_are_read_from_cbor_unchanged(content):
    assert read_cbor(cbor2.dumps(content)) == content


@given(st.lists(SINGLES | st.binary() | st.text(), max_size=5))
def test_a_float_of_four_bytes_has_the_digits_that_it_needs(content):
    encoded = b"".join(
        b"\xfa" + struct.pack(">f", item) if isinstance(item, float) else cbor2.dumps(item) for item in content
    )
    read = read_cbor(bytes([0x80 + len(content)]) + encoded)
    for item, found in zip(content, read, strict=True):
        if isinstance(item, str):
            assert found == item
        elif isinstance(item, float):
            assert struct.pack(">f", found) == struct.pack(">f", item)
            assert math.isnan(item) or len(repr(found)) <= len(repr(item))


@pytest.mark.parametrize(
    ("encoded", "wanted"),
    [
        ("fa41accccd", 21.6),
        ("fb4035999999999999", 21.599999999999998),
        ("f94d66", 21.59375),
        ("fa7f7fffff", 3.4028234663852886e38),
        ("fa4ceb79a3", 123456792.0),
        ("fa4b80000000", 16777216.0),
        ("d9d9f7a1617601", {"v": 1}),
        ("d9d9f782a10102a10304", [{1: 2}, {3: 4}]),
        ("43616263", "YWJj"),
        ("41ff", "_w"),
        ("f7", None),
        ("f8ff", None),
        ("da12345678187b", 123),
        ("c48221196ab3", 273.15),
        ("d81e820102", 0.5),
        ("9f01ff", [1]),
        ("7f61616162ff", "ab"),
        ("a1f501", {"True": 1}),
    ],
)
def test_other_cbor_values_are_read(encoded, wanted):
    assert read_cbor(bytes.fromhex(encoded)) == wanted


def test_times_are_those_of_iso_8601():
    moment = datetime(2024, 5, 1, 12, 0, tzinfo=UTC)
    assert read_cbor(cbor2.dumps(moment, timezone=UTC)) == "2024-05-01T12:00:00+00:00"


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(payload):
    with contextlib.suppress(InvalidRequest, TooLarge):
        json.dumps(read_cbor(payload))


def readings(pack):
    mapper = Mapper([load_builtin("senml")])
    mapped = mapper.map("senml/kitchen", as_json(pack), datetime(2024, 5, 1, tzinfo=UTC))
    return sorted(reading.value for reading in mapped.readings)


@pytest.mark.parametrize(
    "odd", [{0: "a", 2: math.nan}, {0: "a", 8: b"abc"}, {0: "a", 2: cbor2.CBORSimpleValue(99)}, {0: "a", 2: [1]}]
)
def test_invalid_record_does_not_affect_other_records(odd):
    good = {0: "temperature", 1: "Cel", 2: 21.5}
    assert "21.5" in readings(cbor2.dumps([odd, good]))
    assert "21.5" in readings(cbor2.dumps(cbor2.CBORTag(55799, [good, odd])))


async def test_data_of_a_record_is_base64url(gate, client):
    pack = cbor2.dumps([{-2: "urn:dev:", 0: "d", 8: b"\xff\xfe"}])
    assert (await client.ask(POST, "/reading/senml/x", pack, content_format=112)).code == Code.CHANGED
    ((_, payload),) = gate.came
    assert json.loads(payload) == [{"bn": "urn:dev:", "n": "d", "vd": "__4"}]


def test_a_number_that_python_does_not_write_is_refused():
    large = 2**20_000
    for record in ({"n": "urn:x", "v": large}, {large: 1}):
        with pytest.raises(InvalidRequest, match="the limit is 1024"):
            as_json(cbor2.dumps([record]))
