"""The decoder against the protobuf library, and against hostile bytes."""

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from edge.sparkplug import payload as ours
from edge.sparkplug.payload import BadPayload, Metric, decode, encode
from tests.sparkplug import tahu

LONG = st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
    st.tuples(st.just("int_value"), st.integers(0, 2**32 - 1)),
    st.tuples(st.just("long_value"), LONG),
    st.tuples(st.just("float_value"), FLOATS),
    st.tuples(st.just("double_value"), st.floats(allow_nan=False)),
    st.tuples(st.just("boolean_value"), st.booleans()),
    st.tuples(st.just("string_value"), TEXT),
)
OTHERS = st.tuples(st.sampled_from(["bytes_value", "dataset_value", "template_value"]), st.binary(max_size=20))
ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXT,
        "alias": LONG,
        "timestamp": LONG,
        "datatype": st.integers(0, 2**32 - 1),
        "is_historical": st.booleans(),
        "is_transient": st.booleans(),
        "is_null": st.booleans(),
    },
)
PROPERTIES = st.lists(st.tuples(TEXT, st.none() | VALUES), max_size=3)


@st.composite
def payloads(draw):
    """Return a payload of the library."""
    found = tahu.Payload()
    for name in draw(st.sets(st.sampled_from(["timestamp", "seq"]))):
        setattr(found, name, draw(LONG))
    for attributes, value, properties in draw(
        st.lists(st.tuples(ATTRIBUTES, st.none() | VALUES | OTHERS, PROPERTIES), max_size=4)
    ):
        metric = found.metrics.add(**attributes)
        if value is not None:
            setattr(metric, *value)
        for key, each in properties:
            metric.properties.keys.append(key)
            metric.properties.values.add(**({"is_null": True} if each is None else dict([each])))
    return found


def is_same(found: ours.Payload, theirs) -> bool:
    def optional(message, name):
        return getattr(message, name) if message.HasField(name) else None

    assert found.timestamp == optional(theirs, "timestamp")
    assert found.seq == optional(theirs, "seq")
    assert len(found.metrics) == len(theirs.metrics)
    for mine, metric in zip(found.metrics, theirs.metrics, strict=True):
        assert [mine.name, mine.alias, mine.timestamp, mine.datatype] == [
            optional(metric, name) for name in ("name", "alias", "timestamp", "datatype")
        ]
        assert (mine.historical, mine.null) == (metric.is_historical, metric.is_null)
        field = metric.WhichOneof("value")
        assert mine.field == (0 if field is None else metric.DESCRIPTOR.fields_by_name[field].number)
        assert field is None or repr(mine.value) == repr(getattr(metric, field))
        pairs = zip(metric.properties.keys, metric.properties.values, strict=False)
        known = {key: getattr(each, each.WhichOneof("value")) for key, each in pairs if each.WhichOneof("value")}
        null = {key for key, each in pairs if each.is_null}
        assert repr(mine.properties) == repr({key: value for key, value in known.items() if key not in null})
    return True


@given(payloads())
def test_every_payload_is_read_as_by_the_library(theirs):
    assert is_same(decode(theirs.SerializeToString()), theirs)


@given(payloads(), st.data())
def test_damaged_bytes_are_refused_or_read_as_by_the_library(theirs, data):
    content = bytearray(theirs.SerializeToString() or b"\x08\x01")
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        found = decode(content)
    except BadPayload:
        return
    try:
        expected = tahu.Payload.FromString(content)
    except DecodeError:
        return  # also because of parts that the decoder skips
    assert is_same(found, expected)


@given(st.binary(max_size=200))
def test_no_bytes_cause_another_error(content):
    with suppress(BadPayload):
        decode(content)


@given(
    st.one_of(
        st.builds(Metric, datatype=st.just(7), field=st.just(ours.INT), value=st.integers(0, 2**32 - 1)),
        st.builds(Metric, datatype=st.just(8), field=st.just(ours.LONG), value=LONG),
        st.builds(Metric, datatype=st.just(9), field=st.just(ours.FLOAT), value=FLOATS),
        st.builds(Metric, datatype=st.just(10), field=st.just(ours.DOUBLE), value=st.floats(allow_nan=False)),
        st.builds(Metric, datatype=st.just(11), field=st.just(ours.BOOLEAN), value=st.booleans()),
        st.builds(Metric, datatype=st.just(12), field=st.just(ours.STRING), value=TEXT),
    ),
    st.none() | TEXT,
    st.none() | LONG,
    LONG,
)
def test_the_library_reads_every_command(metric, name, alias, timestamp):
    metric.name, metric.alias = name, alias
    content = encode(timestamp, metric, seq=3)
    metric.timestamp = timestamp
    assert is_same(ours.Payload(timestamp, 3, [metric]), tahu.Payload.FromString(content))
    assert decode(content) == ours.Payload(timestamp, 3, [metric])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x12\xff\xff\xff\xff\x0f", "ends after the payload"),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends after the payload"),
        (b"\x08" + b"\xff" * 11, "incomplete or too long"),
        (b"\x08\x80", "incomplete or too long"),
        (b"\x03", "invalid number"),
        (b"\x13", "wire type 3"),
        (b"\x12\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x12\x00" * 20_001, "more than 20000 metrics"),
        (b"\x12\x04\x69\x00\x00\x00", "ends after the payload"),
    ],
    ids=["length", "64 bits", "long integer", "end", "number 0", "group", "text", "many metrics", "double"],
)
def test_hostile_payloads_are_refused_with_a_reason(content, reason):
    with pytest.raises(BadPayload, match=reason):
        decode(content)


def test_a_deeply_nested_payload_is_not_followed():
    nested = b""
    for _ in range(5000):  # templates in metrics in templates
        metric = b"\x92\x01" + ours._varint(len(nested)) + nested
        nested = b"\x12" + ours._varint(len(metric)) + metric
        if len(nested) > 60_000:
            break
    found = decode(nested)
    assert [metric.field for metric in found.metrics] == [ours.TEMPLATE]


def test_a_number_of_32_bits_is_cut_as_by_the_library():
    metric = b"\x50" + ours._varint(2**40 + 5)
    assert decode(b"\x12" + bytes([len(metric)]) + metric).metrics[0].value == 5
