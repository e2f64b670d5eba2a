"""The host application without a connection: datatypes, the order of messages, requests for rebirths, limits."""

import dataclasses
import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.adapters.settings import ActuationSettings
from edge.mapping.actuators import Command
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack
from edge.mapping.settings import MappingLimits
from edge.mapping.solution import CommandError, SolutionTerm
from edge.sparkplug.births import Source
from edge.sparkplug.commands import MetricCommands
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


def test_a_metric_that_cannot_be_mapped_costs_no_other(monkeypatch):
    monkeypatch.setitem(DATATYPES, 10, dataclasses.replace(DATATYPES[10], key="xsd:gYear"))
    plant = Plant(writable=["*"])
    units = [(1, tahu.INT32, {"name": f"u{n}", "unit": "unknown"}) for n in range(5)]
    plant.take("NBIRTH", 0, *units, (1.5, tahu.DOUBLE, {"name": "bad"}), (2, tahu.INT32, {"name": "good"}))
    assert plant.readings()["urn:sepa-edge:sparkplug:g/n/good"] == "2"
    assert "urn:sepa-edge:sparkplug:g/n/bad" not in plant.readings()
    reasons = [each["reason"] for each in plant.host.faults()]
    assert "bad: it cannot be mapped" in reasons[0]
    assert reasons[-1] == "3 further problems"


def test_nodes_that_are_not_asked_yet_stay_available():
    plant = Plant(max_nodes=300, reorder_timeout=5)
    names = [f"n{number}" for number in range(120)]
    for name in names:
        plant.birth(name)
    for lost in (10.0, 30.0, 50.0, 70.0):
        plant.host.lose(lost)
        for step in range(0, 1500, 25):
            now = lost + step / 100
            for topic in plant.host.due(now):
                plant.birth(topic.rpartition("/")[2], now=now)
            plant.host.tick(now, NOW)
            assert plant.host.pause(now) >= 0
    assert all(plant.host.available.values())
    assert len(plant.host.available) == 120


def test_a_node_that_does_not_answer_is_unavailable_and_asked_again():
    plant = Plant(reorder_timeout=5, rebirth_interval=5)
    plant.birth()
    plant.host.lose(10.0)
    asked = []
    for second in range(10, 60):
        asked += [second for _ in plant.host.due(float(second))]
        plant.host.tick(float(second), NOW)
        assert list(plant.host.available.values()) == [second < 15]
    assert asked == [10, 16, 26, 46]
    plant.take("NDEATH", None, (0, tahu.INT64, {"name": "bdSeq"}), now=60.0)
    plant.host.tick(400.0, NOW)
    assert not list(plant.host.due(400.0))


def test_without_a_connection_nodes_become_unavailable_and_the_request_waits():
    plant = Plant(reorder_timeout=5)
    plant.birth()
    plant.host.lose(10.0)
    plant.host.tick(16.0, NOW, connected=False)
    assert list(plant.host.available.values()) == [False]
    assert list(plant.host.due(16.0)) == ["spBv1.0/g/NCMD/n"]


def test_a_duplicate_is_not_used_in_a_later_cycle():
    plant = Plant()
    plant.birth()
    for number in range(1, 600):
        plant.take("NDATA", number % 256, data(number), now=float(number))
        if number == 5:
            plant.take("NDATA", 5, data(5), now=5.0)
            plant.take("NDATA", 3, data(3), now=5.0)
        plant.host.tick(float(number), NOW)
    assert plant.read == [1, *range(1, 600)]
    assert not list(plant.host.due(600.0))


def test_a_gap_is_waited_for_from_its_first_successor():
    plant = Plant(reorder_timeout=5)
    plant.birth()
    plant.take("NDATA", 2, data(2), now=1.0)
    plant.take("NDATA", 4, data(4), now=3.0)
    plant.take("NDATA", 1, data(1), now=4.0)
    plant.host.tick(7.9, NOW)
    assert not list(plant.host.due(7.9))
    plant.host.tick(8.0, NOW)
    assert list(plant.host.due(8.0)) == ["spBv1.0/g/NCMD/n"]
    assert plant.read == [1, 1, 2]


def test_a_late_death_of_an_earlier_connection_cancels_no_request():
    plant = Plant()
    plant.take("NBIRTH", 0, (1, tahu.INT64, {"name": "bdSeq"}), (1, tahu.INT32, {"name": "a", "alias": 1}))
    plant.take("NDATA", 9, data(1), now=1.0)
    plant.host.tick(7.0, NOW)
    plant.take("NDEATH", None, (0, tahu.INT64, {"name": "bdSeq"}), now=7.1)
    assert list(plant.host.due(8.0)) == ["spBv1.0/g/NCMD/n"]


def test_devices_without_metrics_and_metrics_that_are_not_read_count():
    plant = Plant(max_metrics=10)
    plant.birth()
    for number in range(20):
        plant.take("DBIRTH", number + 1, device=f"d{number}")
    assert len(plant.host.births.known) == 10
    images = [(b"", tahu.BYTES, {"name": f"i{n}", "alias": n}) for n in range(20)]
    plant.take("NBIRTH", 0, *images, node="other")
    assert "sparkplug.max_metrics" in plant.refused[-1]
    controls = [(1, tahu.INT32, {"name": f"Node Control/{n}", "alias": n}) for n in range(40)]
    plant.take("NBIRTH", 0, *controls, node="other")
    assert plant.host.alias_of(Source("g", "other"), "Node Control/0") is None


def test_a_refused_birth_is_listed_and_not_asked_for_again():
    plant = Plant(max_metrics=3)
    plant.birth(name="oven")
    many = [(1, tahu.INT32, {"name": str(n), "alias": n}) for n in range(3)]
    plant.take("DBIRTH", 1, *many, device="d")
    plant.take("DBIRTH", 2, device="oven")
    for seq in range(3, 20):
        plant.take("DDATA", seq, data(1), device="d", now=float(seq))
    assert not list(plant.host.due(20.0))
    assert [(each["file"], each["reason"].partition(": ")[2][:14]) for each in plant.host.faults()] == [
        ("g/n/d", "all nodes woul"),
        ("g/n/oven", "its node has a"),
    ]
    plant.take("DBIRTH", 20, many[0], device="d", now=21.0)
    assert [each["file"] for each in plant.host.faults()] == ["g/n/oven"]
    plant.birth(name="oven", now=22.0)
    assert plant.host.faults() == []


def test_faults_follow_the_last_birth_also_after_a_restart():
    plant = Plant()
    good = (1, tahu.INT32, {"name": "a"})
    plant.take("NBIRTH", 0, good)
    plant.take("NBIRTH", 0, good, (b"", tahu.BYTES, {"name": "image"}))
    assert "Bytes" in plant.host.faults()[0]["reason"]
    again = Plant()
    again.host.restore(json.loads(json.dumps(plant.host.births.dump())), 0.0)
    assert [each["reason"] for each in again.host.faults()] == [each["reason"] for each in plant.host.faults()]
    plant.take("NBIRTH", 0, good)
    assert plant.host.faults() == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"max_nodes": 2}, ["a", "b"]), ({"max_metrics": 1}, ["a"]), ({"groups": ["other"]}, []), ({}, ["a", "b", "c"])],
)
def test_births_of_an_earlier_run_are_limited_by_the_present_settings(settings, expected):
    plant = Plant()
    for name in "abc":
        plant.birth(name)
    again = Plant(**settings)
    again.host.restore(plant.host.births.dump(), 0.0)
    assert [each.node for each in again.host.births.known] == expected
    assert again.host.nodes == len(expected)


def test_a_file_of_births_with_a_fault_is_not_half_used():
    plant = Plant()
    plant.birth("a")
    again = Plant()
    with pytest.raises(ValueError, match="unpack"):
        again.host.restore([*plant.host.births.dump(), ["g"]], 0.0)
    assert again.host.births.known == {}
    assert again.host.nodes == 0


def test_the_values_that_a_float_can_be_set_to_are_bounded():
    plant = Plant(writable=["*"])
    plant.take("NBIRTH", 0, (1.0, tahu.FLOAT, {"name": "f"}))
    setter = plant.host.births.pack().mappings[0].rules[1].setter
    assert setter.describe()["kind"] == "number"
    assert setter.render({}, SolutionTerm("3.4028234e38"))[1] == b"3.4028234e38"
    with pytest.raises(CommandError, match="above the maximum"):
        setter.render({}, SolutionTerm("1e300"))


@pytest.mark.parametrize("topic", ["spBv1.0/x", "spBv1.0/STATE/x", "spBv1.0/g/NCMD", "spBv1.0/g/NCMD/n", "spBv1.0"])
def test_a_command_for_another_topic_is_refused_with_a_reason(topic):
    commands = MetricCommands(Plant().host, ActuationSettings())
    command = Command("a", topic, b"1", 0, retain=False)
    assert "not one of a metric" in commands.put(command, 0.0)
    assert commands.message(command, 0) is None


def test_a_command_whose_metric_has_another_datatype_now_is_an_error():
    plant = Plant(writable=["*"])
    plant.birth()
    command = Command("a", "spBv1.0/g/NCMD/n/a", b"-5", 0, retain=False)
    commands = MetricCommands(plant.host, ActuationSettings())
    assert commands.put(command, 0.0) == ""
    plant.take("NBIRTH", 0, (True, tahu.BOOLEAN, {"name": "a"}))
    with pytest.raises(BadMetric, match="not true or false"):
        commands.message(command, 0)
