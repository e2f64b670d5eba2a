"""The host application without a connection: datatypes, the order of messages, requests for rebirths, limits."""

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.mapping.settings import MappingLimits
from edge.sparkplug.datatypes import DATATYPES, BadMetric, command_of, datatype_of, value_of
from edge.sparkplug.host import SparkplugHost
from edge.sparkplug.payload import FLOAT, INT, LONG, STRING, Metric, decode
from edge.sparkplug.settings import SparkplugSettings
from tests.sparkplug import tahu

NOW = datetime(2026, 1, 1, tzinfo=UTC)
INTEGERS = [number for number, each in DATATYPES.items() if each.bits]


class Plant:
    """A host, and what it did."""

    def __init__(self, **settings: object) -> None:
        self.values: list[tuple[str, dict, bool]] = []
        self.refused: list[str] = []
        self.room = True
        self.host = SparkplugHost(
            SparkplugSettings(**settings),
            MappingLimits(),
            emit=self._emit,
            refuse=lambda _, reason, __, ___: self.refused.append(reason),
            born=lambda _: None,
        )

    def _emit(self, values, _) -> bool:
        self.values.append((values.topic, json.loads(values.payload), values.historical))
        return self.room

    def take(self, kind, seq, *metrics, node="n", device="", now=0.0, retained=False) -> None:
        payload = tahu.Payload(timestamp=1, seq=seq)
        for value, datatype, attributes in metrics:
            tahu.metric(payload, value, datatype, **attributes)
        topic = f"spBv1.0/g/{kind}/{node}" + (f"/{device}" if device else "")
        self.host.take(topic, payload.SerializeToString(), NOW, now, retained=retained)

    def birth(self, node="n", now=0.0, name="a") -> None:
        self.take(
            "NBIRTH",
            0,
            (0, tahu.INT64, {"name": "bdSeq"}),
            (1, tahu.INT32, {"name": name, "alias": 1}),
            node=node,
            now=now,
        )

    def readings(self) -> dict[str, str]:
        """Map all documents with the present births. Returns values by observation."""
        mapper = Mapper([self.host.births.pack()])
        return {
            reading.observation: reading.value
            for topic, document, _ in self.values
            for reading in mapper.map(topic, json.dumps(document).encode()).readings
        }

    @property
    def read(self) -> list[object]:
        return [each["value"] for _, document, _ in self.values for each in document.get("metrics", {}).values()]


def data(value: int) -> tuple[int, int, dict]:
    return value, tahu.INT32, {"alias": 1}


@given(st.sampled_from(INTEGERS), st.data())
def test_an_integer_that_is_set_is_read_as_the_same_one(number, draw):
    datatype = DATATYPES[number]
    low, high = datatype.bounds
    value = draw.draw(st.integers(low, high))
    metric = command_of(number, str(value))
    assert value_of(metric, datatype) == value
    for wrong in (low - 1, high + 1, "x", "1.5", "nan"):
        with pytest.raises(BadMetric):
            command_of(number, str(wrong))


@given(st.integers(-128, -1))
def test_both_ways_to_write_a_negative_number_are_read(value):
    for raw in (value % 2**8, value % 2**32):
        assert value_of(Metric(field=INT, value=raw), DATATYPES[1]) == value
    assert value_of(Metric(field=LONG, value=value % 2**64), DATATYPES[1]) == value


@given(st.floats(width=32))
def test_a_number_of_single_precision_is_written_shortly(number):
    found = value_of(Metric(field=FLOAT, value=number), DATATYPES[9])
    if not math.isfinite(number):
        assert found is None
    else:
        assert tahu.Payload(metrics=[{"float_value": found}]).metrics[0].float_value == number
        assert len(repr(found)) <= len(repr(number))


@pytest.mark.parametrize(
    ("number", "raw", "field", "expected"),
    [
        (13, 1_700_000_000_123, LONG, "2023-11-14T22:13:20.123Z"),
        (13, 0, LONG, "1970-01-01T00:00:00.000Z"),
        (12, "ä", STRING, "ä"),
        (8, 2**64 - 1, LONG, 2**64 - 1),
        (7, 2**32 - 1, LONG, 2**32 - 1),
    ],
    ids=["time", "first time", "text", "64 bits", "32 bits in a field of 64"],
)
def test_values(number, raw, field, expected):
    assert value_of(Metric(field=field, value=raw), DATATYPES[number]) == expected


@pytest.mark.parametrize(
    ("number", "raw", "field", "reason"),
    [
        (5, 256, INT, "not a value of UInt8"),
        (1, 0x7FFF, INT, "not a value of Int8"),
        (13, 2**64 - 1, LONG, "not a time"),
        (12, "x" * 20_000, STRING, "the limit is"),
        (12, 1, INT, "not one of String"),
    ],
    ids=["large", "small", "time", "text", "kind"],
)
def test_values_out_of_range_are_refused(number, raw, field, reason):
    with pytest.raises(BadMetric, match=reason):
        value_of(Metric(field=field, value=raw), DATATYPES[number])


@pytest.mark.parametrize("number", [None, 0, 16, 17, 18, 19, 22, 99])
def test_other_datatypes_are_refused_with_a_reason(number):
    with pytest.raises(BadMetric, match="datatype"):
        datatype_of(number)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=6, unique=True).flatmap(st.permutations))
def test_messages_are_used_in_their_order_up_to_a_gap(order):
    plant = Plant()
    plant.birth()
    for number in order:
        plant.take("NDATA", number + 1, data(number))
    present = [n for n in range(6) if set(range(n + 1)) <= set(order)]
    assert plant.read == [1, *present]
    plant.host.tick(5.0, NOW)
    missing = len(present) < len(order)
    assert list(plant.host.due(5.0)) == (["spBv1.0/g/NCMD/n"] if missing else [])


def test_the_sequence_begins_again_after_255():
    plant = Plant()
    plant.birth()
    for number in range(1, 600):
        plant.take("NDATA", number % 256, data(number))
    assert plant.read == [1, *range(1, 600)]
    assert not list(plant.host.due(9.0))


def test_requests_for_rebirths_are_rare_and_become_rarer():
    plant = Plant(rebirth_interval=5)
    times = []
    for second in range(200):
        plant.take("NDATA", 7, data(1), now=float(second))
        times += [second for _ in plant.host.due(float(second))]
    assert times == [0, 5, 15, 35, 75, 155]
    assert not plant.values
    plant.birth(now=200.0)
    assert not list(plant.host.due(400.0))


def test_many_nodes_are_asked_one_after_the_other():
    plant = Plant(max_nodes=30)
    for number in range(40):
        plant.take("NDATA", 1, data(1), node=f"n{number}")
    assert plant.host.nodes == 30
    assert [len(list(plant.host.due(tenth / 10))) for tenth in range(10)] == [1] * 10


def test_nodes_that_are_born_are_not_replaced_by_others():
    plant = Plant(max_nodes=2, max_metrics=2)
    plant.birth("a")
    plant.birth("b")
    plant.birth("c")
    assert "there are 2 edge nodes already" in plant.refused[-1]
    plant.take("NBIRTH", 0, *((1, tahu.INT32, {"name": str(n)}) for n in range(3)), node="a")
    assert "sparkplug.max_metrics" in plant.refused[-1]


def test_messages_for_a_missing_one_are_bounded():
    plant = Plant()
    plant.birth()
    for number in range(2, 100):
        plant.take("NDATA", number, data(number))
    assert plant.read == [1]
    assert list(plant.host.due(0.0)) == ["spBv1.0/g/NCMD/n"]


def test_a_retained_message_is_not_used():
    plant = Plant()
    plant.birth()
    plant.take("NDATA", 1, data(8), retained=True)
    plant.take("NDATA", 1, data(9))
    assert plant.read == [1, 9]
    assert "retained" in plant.refused[0]


def test_values_without_room_are_asked_for_again():
    plant = Plant()
    plant.birth()
    plant.room = False
    plant.take("NDATA", 1, data(8))
    plant.room = True
    plant.take("NDATA", 2, data(9))
    assert plant.read == [1, 8]
    assert list(plant.host.due(0.0)) == ["spBv1.0/g/NCMD/n"]


def test_several_past_values_of_a_metric_are_all_kept():
    plant = Plant()
    plant.birth()
    late = [(n, tahu.INT32, {"alias": 1, "is_historical": True, "timestamp": n}) for n in range(3)]
    plant.take("NDATA", 1, data(9), *late)
    assert [
        (each["a"]["value"], past) for each, past in [(d.get("metrics"), h) for _, d, h in plant.values] if each
    ] == [
        (1, False),
        *((n, True) for n in range(3)),
        (9, False),
    ]


def test_a_birth_with_each_datatype_becomes_observations():
    plant = Plant(writable=["*"])
    values = {9: 1.5, 10: 2.5, 11: True, 12: "a", 13: 1_700_000_000_123, 14: "b", 15: "c"}
    metrics = [(values.get(number, 1), number, {"name": f"m{number}"}) for number in DATATYPES]
    plant.take("NBIRTH", 0, *metrics)
    assert plant.host.births.faults() == []
    found = plant.readings()
    assert {iri.rpartition("/")[2] for iri in found} == {"n", *(f"m{number}" for number in DATATYPES)}
    assert found["urn:sepa-edge:sparkplug:g/n/m13"] == "2023-11-14T22:13:20.123Z"


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), st.sampled_from(["", "device"]))
def test_any_name_becomes_an_observation_or_a_fault(names, device):
    plant = Plant(writable=["*"])
    plant.take("NBIRTH", 0)
    kind = "DBIRTH" if device else "NBIRTH"
    metrics = [(n, tahu.INT32, {"name": name}) for n, name in enumerate(names)]
    plant.take(kind, 1 if device else 0, *metrics, device=device)
    pack = plant.host.births.pack()
    mapper = Mapper([pack])
    read = [
        reading
        for topic, document, _ in plant.values
        for reading in mapper.map(topic, json.dumps(document).encode()).readings
    ]
    observed = [reading for reading in read if reading.value not in ("true", "false")]
    faults = plant.host.births.faults()
    assert len({reading.observation for reading in observed}) == len(observed)
    assert sorted(int(reading.value) for reading in observed) == list(range(len(names))) or faults


def test_the_births_of_an_earlier_run_are_the_same():
    plant = Plant(writable=["g/n/*"])
    plant.birth(name="a/b")
    again = Plant(writable=["g/n/*"])
    again.host.restore(json.loads(json.dumps(plant.host.births.dump())), 0.0)
    assert again.host.births.dump() == plant.host.births.dump()
    (mapping,) = again.host.births.pack().mappings
    assert [rule.setter is not None for rule in mapping.rules] == [False, True]
    assert list(again.host.due(0.0)) == ["spBv1.0/g/NCMD/n"]
    again.take("NDATA", 4, data(5))  # the alias may have another meaning by now
    assert again.read == []


@given(st.binary(max_size=60), st.sampled_from(["NBIRTH", "NDATA", "NDEATH", "DBIRTH/n/d", "DDATA/n/d"]))
def test_no_message_causes_an_error(content, kind):
    plant = Plant()
    plant.birth()
    levels = kind if "/" in kind else f"{kind}/n"
    plant.host.take(f"spBv1.0/g/{levels}", content, NOW, 1.0)
    plant.host.tick(100.0, NOW)
    assert plant.host.pause(100.0) >= 0
    assert decode(b"").metrics == []


def test_a_file_of_the_operator_takes_one_observation_and_leaves_the_others():
    plant = Plant()
    plant.take("NBIRTH", 0, (1, tahu.INT32, {"name": "a"}), (2, tahu.INT32, {"name": "b"}))
    own = load_pack(
        """[[mapping]]
        topic = "other"
        observation = "urn:sepa-edge:sparkplug:g/n/a"
        """
    )
    mapper = Mapper([own, plant.host.births.pack()])
    document = b'{"metrics": {"a": {"value": 1}, "b": {"value": 2}}}'
    found = [(each.observation, each.value) for each in mapper.map("spBv1.0/g/NDATA/n", document).readings]
    assert found == [("urn:sepa-edge:sparkplug:g/n/b", "2")]
    assert {each.observation for each in mapper.declared()} == {
        "urn:sepa-edge:sparkplug:g/n/a",
        "urn:sepa-edge:sparkplug:g/n/b",
        "urn:sepa-edge:sparkplug-available:g/n",
    }
