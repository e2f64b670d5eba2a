"""Entities of observations: their announcements are those that Home Assistant documents, and their states fit."""

from __future__ import annotations

import json

import pyoxigraph as ox
import pytest
from home_assistant_schema import check
from hypothesis import given
from hypothesis import strategies as st

from edge.announce.classes import binary_class, measure
from edge.announce.device_entities import DeviceEntities
from edge.announce.entities import Device, Entity, EntityMaker, Observed, StateOf
from edge.announce.topics import Place, identifier, node_of
from edge.discovery.device_classes import NUMERIC, unit_of

UNIT = "http://qudt.org/1.1/vocab/unit#"
XSD = "http://www.w3.org/2001/XMLSchema#"
PLACE = Place("homeassistant", "sepa/home-assistant", "gw")
KITCHEN = Device("urn:x:kitchen", "kitchen")
SWITCH = {"kind": "switch"}


def literal(text: str, datatype: str = "decimal") -> ox.Literal:
    return ox.Literal(text, datatype=ox.NamedNode(XSD + datatype))


def made(*observed: Observed, device: Device = KITCHEN) -> list[Entity]:
    changed = DeviceEntities(EntityMaker(PLACE), device).change({each.iri: each for each in observed})
    found = [entity for entity in changed.values() if entity is not None]
    for entity in found:
        config = json.loads(entity.payload())
        assert check(PLACE.config(entity.component, entity.object_id), config) == entity.component
        assert config == entity.config
    return found


def of(iri: str, value: ox.Literal | None, **more: object) -> Observed:
    return Observed(f"urn:x:{iri}", iri, value, **more)


def test_a_temperature_is_a_sensor_of_its_device():
    (entity,) = made(
        Observed(
            "urn:x:kitchen/temperature",
            "temperature of kitchen",
            literal("21.5"),
            f"{UNIT}DegreeCelsius",
            "temperature",
        ),
        device=Device("urn:x:kitchen", "kitchen", "Example T1"),
    )
    assert entity.component == "sensor"
    object_id = entity.object_id
    assert object_id.startswith("kitchen_temperature_")
    assert entity.config == {
        "name": "temperature",
        "unique_id": f"gw_{object_id}",
        "state_topic": f"sepa/home-assistant/gw/{object_id}/state",
        "qos": 1,
        "device_class": "temperature",
        "unit_of_measurement": "°C",
        "state_class": "measurement",
        "availability": [{"topic": "sepa/home-assistant/gw/status"}],
        "availability_mode": "all",
        "device": {
            "identifiers": [f"gw_{identifier('urn:x:kitchen')}"],
            "name": "kitchen",
            "model": "Example T1",
            "via_device": "gw",
        },
        "origin": entity.config["origin"],
    }


@pytest.mark.parametrize(
    ("observed", "component", "options", "state"),
    [
        (of("door", literal("true", "boolean"), property_name="door"), "binary_sensor", {"device_class": "door"}, "ON"),
        (of("count", literal("3", "integer")), "sensor", {"state_class": "measurement"}, "3"),
        (of("large", literal("1.5E3", "double")), "sensor", {"state_class": "measurement"}, "1500"),
        (of("text", ox.Literal("a\nb")), "sensor", {}, "a b"),
        (of("long", ox.Literal("ä" * 300)), "sensor", {}, "ä" * 255),
        (
            of("seen", literal("2026-01-02T03:04:05Z", "dateTime")),
            "sensor",
            {"device_class": "timestamp"},
            "2026-01-02T03:04:05Z",
        ),
        (of("local", literal("2026-01-02T03:04:05", "dateTime")), "sensor", {}, "2026-01-02T03:04:05"),
        (
            of("meter", literal("7"), unit=f"{UNIT}Kilowatthour", property_name="energy"),
            "sensor",
            {"device_class": "energy", "unit_of_measurement": "kWh", "state_class": "total_increasing"},
            "7",
        ),
        (of("new", None, unit="lx"), "sensor", {"unit_of_measurement": "lx", "state_class": "measurement"}, "None"),
        (of("fan", literal("false", "boolean"), settable=SWITCH), "switch", {}, "OFF"),
        (of("unknown", None, settable=SWITCH), "switch", {}, "None"),
        (
            of(
                "target",
                literal("20"),
                unit=f"{UNIT}DegreeCelsius",
                property_name="temperature",
                settable={"kind": "number", "min": 5.0, "max": 30.0, "step": 0.5},
            ),
            "number",
            {"min": 5.0, "max": 30.0, "step": 0.5, "device_class": "temperature", "unit_of_measurement": "°C"},
            "20",
        ),
        (
            of("mode", ox.Literal("auto"), settable={"kind": "choice", "choices": ["auto", "off"]}),
            "select",
            {"options": ["auto", "off"]},
            "auto",
        ),
        (of("note", None, settable={"kind": "text"}), "text", {"max": 255}, ""),
    ],
    ids=lambda value: value.iri if isinstance(value, Observed) else None,
)
def test_the_kind_of_a_value_decides_the_component(observed, component, options, state):
    (entity,) = made(observed)
    assert entity.component == component
    assert entity.config.items() >= options.items()
    assert ("state_class" in entity.config) == ("state_class" in options)
    assert ("device_class" in entity.config) == ("device_class" in options)
    assert entity.states[observed.iri].payload(observed.value).decode() == state
    assert ("command_topic" in entity.config) == (observed.settable is not None)


def test_a_value_of_unknown_kind_is_announced_only_as_before():
    assert made(of("silent", None)) == []
    assert [each.component for each in made(of("silent", None, hint="binary_sensor"))] == ["binary_sensor"]


@pytest.mark.parametrize(
    ("lamp", "dimmer"),
    [
        ("lamp/state", "lamp/brightness"),
        ("lamp", "lamp/brightness"),
        ("lamp/POWER", "lamp/Dimmer"),
    ],
)
def test_a_switch_with_a_brightness_is_a_light(lamp, dimmer):
    name = dimmer.rpartition("/")[2].lower()
    level = {"kind": "number", "min": 0.0, "max": 254.0, "step": 1.0}
    (light,) = made(
        of(lamp, literal("true", "boolean"), settable=SWITCH),
        of(dimmer, literal("100"), settable=level, property_name=name),
    )
    assert light.component == "light"
    assert light.config["brightness_scale"] == 254
    topics = {
        light.config["command_topic"]: f"urn:x:{lamp}",
        light.config["brightness_command_topic"]: f"urn:x:{dimmer}",
    }
    assert {topic: command.iri for topic, command in light.commands.items()} == topics
    assert light.states[f"urn:x:{dimmer}"].payload(None) == b""


def test_a_brightness_that_cannot_be_one_of_a_light_is_a_number():
    level = {"kind": "number", "min": 10.0, "max": 254.5, "step": 1.0}
    found = made(
        of("lamp/state", literal("true", "boolean"), settable=SWITCH),
        of("lamp/brightness", literal("100"), settable=level, property_name="brightness"),
    )
    assert [each.component for each in found] == ["switch", "number"]


def test_limits_that_home_assistant_refuses_are_left_out():
    (number,) = made(of("n", literal("1"), settable={"kind": "number", "min": 1.0, "max": None, "step": 0.0}))
    assert {"max", "step"} & number.config.keys() == set()
    infinite = {"kind": "number", "min": 5.0, "max": float("inf"), "step": float("inf")}
    (number,) = made(of("n", literal("1"), settable=infinite))
    assert {"min", "max", "step"} & number.config.keys() == {"min"}


def test_the_availability_of_a_device_is_that_of_its_entities():
    available = of("kitchen/available", literal("true", "boolean"), property_name="available")
    entities = {each.object_id: each.config for each in made(available, of("kitchen/t", literal("1")))}
    gateway = {"topic": PLACE.status}
    own = {
        "topic": PLACE.state(available.object_id),
        "payload_available": "ON",
        "payload_not_available": "OFF",
    }
    assert entities.pop(available.object_id)["availability"] == [gateway]
    ((other),) = entities.values()
    assert other["availability"] == [gateway, own]


def test_observations_without_a_sensor_belong_to_the_gateway():
    (entity,) = made(of("alone", literal("1")), device=Device())
    assert entity.config["device"] == EntityMaker(PLACE).gateway().config["device"]
    gateway = EntityMaker(PLACE).gateway()
    assert check(PLACE.config(gateway.component, gateway.object_id), gateway.config) == "binary_sensor"


@pytest.mark.parametrize("label", ["t of kitchen", "kitchen t", "kitchen/t", "t"])
def test_the_name_does_not_repeat_that_of_the_device(label):
    (entity,) = made(Observed("urn:x:1", label, literal("1")))
    assert entity.config["name"] == "t"
    (entity,) = made(Observed("urn:x:1", "kitchens", literal("1")))
    assert entity.config["name"] == "kitchens"


def test_the_place_is_the_area_unless_it_is_the_device_itself():
    (entity,) = made(of("t", literal("1"), area="Attic"))
    assert entity.config["device"]["suggested_area"] == "Attic"
    (entity,) = made(of("t", literal("1"), area="kitchen"))
    assert "suggested_area" not in entity.config["device"]


@pytest.mark.parametrize("control", ["\u202e", "\u2066", "\u200f", "\u061c"])
def test_names_do_not_turn_the_text_around_them(control):
    turned = f"lamp{control}"
    (entity,) = made(Observed("urn:x:t", f"{turned} level", literal("1"), area=turned), device=Device("urn:d", turned))
    device = entity.config["device"]
    assert (entity.config["name"], device["name"]) == ("level", "lamp")
    assert control not in entity.payload().decode()


@given(st.text(min_size=1), st.text(), st.text())
def test_hostile_names_give_valid_announcements(iri, label, client):
    place = Place("homeassistant", "sepa", node_of(client))
    observed = Observed(f"urn:x:{iri}", label, literal("1"), settable={"kind": "text"})
    for entity in DeviceEntities(EntityMaker(place), Device("urn:d", label, label)).change({iri: observed}).values():
        config = json.loads(entity.payload())
        check(place.config(entity.component, entity.object_id), config)
        assert place.announced(place.config(entity.component, entity.object_id)) == (
            entity.component,
            entity.object_id,
        )


def test_identifiers_do_not_collide_and_do_not_change():
    assert Observed("urn:x:a/b", "", None).object_id != Observed("urn:x:a_b", "", None).object_id
    assert Observed("urn:x:Küche", "", None).object_id == Observed("urn:x:Küche", "other", literal("1")).object_id
    assert node_of("sepa-edge-1") == "sepa-edge-1"
    assert len({node_of("a b"), node_of("a_b"), node_of("a/b"), node_of("")}) == 4


@pytest.mark.parametrize("name", NUMERIC)
def test_device_classes_and_units_are_those_of_the_other_direction(name):
    known = NUMERIC[name]
    for text in known.units:
        scaled = unit_of(text, name)
        if scaled is None or scaled.scale != "1":
            continue
        found = measure(known.property, scaled.iri)
        assert unit_of(found.unit, found.device_class) == scaled
        assert NUMERIC[found.device_class].property == known.property


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("motion", "motion"),
        ("battery", ""),
        ("battery_state", "battery"),
        ("battery_low", "battery"),
        ("available", "connectivity"),
        ("contact", ""),
        ("lock", ""),
    ],
)
def test_classes_of_truth_values(name, expected):
    assert binary_class(name) == expected


def test_values_that_do_not_fit_an_announcement_are_unknown():
    assert StateOf("t", "number").payload(ox.Literal("n/a")) == b"None"
    assert StateOf("t", "number").payload(literal("NaN", "double")) == b"None"
    assert StateOf("t", "binary").payload(literal("1")) == b"None"
    assert StateOf("t", "text").payload(ox.Literal("")) == b"None"
    assert not StateOf("t", "number").fits(ox.Literal("n/a"))
    assert StateOf("t", "number").fits(literal("NaN", "double"))
    assert StateOf("t", "number").fits(None)


@pytest.mark.parametrize("text", ["NaN", "INF", "-INF"])
def test_a_number_that_is_not_finite_does_not_change_the_announcement(text):
    unit = f"{UNIT}DegreeCelsius"
    (before,) = made(of("t", literal("1"), unit=unit, property_name="temperature"))
    (entity,) = made(of("t", literal(text, "double"), unit=unit, property_name="temperature"))
    assert (entity.component, entity.config) == (before.component, before.config)
    assert entity.states["urn:x:t"].payload(literal(text, "double")) == b"None"


def test_a_number_that_is_longer_than_a_state_has_an_exponent():
    state = StateOf("t", "number")
    assert state.payload(literal("1e299", "double")) == b"1.000000000000000e+299"
    assert state.payload(literal("3" * 299 + ".5")) == b"3.333333333333333e+298"
    assert state.payload(literal("1e-290", "double")) == b"1.000000000000000e-290"
    assert state.payload(literal("1" * 255)) == b"1" * 255
