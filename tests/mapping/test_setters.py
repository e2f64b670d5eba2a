"""Setters: the messages that set values at devices, in the packs and in files of one's own."""

from __future__ import annotations

import pytest

from edge.mapping import CommandError, Mapper, MappingError, SolutionTerm, load_builtin, load_pack
from edge.mapping.pack import builtin_names
from edge.mapping.reading import XSD_BOOLEAN, XSD_DECIMAL, XSD_STRING

PACKS = Mapper([load_builtin(name) for name in builtin_names()])
TRUE, FALSE = SolutionTerm("true", XSD_BOOLEAN), SolutionTerm("false", XSD_BOOLEAN)


def number(text: str) -> SolutionTerm:
    return SolutionTerm(text, XSD_DECIMAL)


def sent(mapper: Mapper, topic: str, observation: str, value: SolutionTerm) -> tuple[str, str]:
    found = mapper.setter(topic, f"urn:sepa-edge:{observation}")
    assert found is not None, observation
    rendered, payload = found[0].render(found[1], value)
    return rendered, payload.decode()


@pytest.mark.parametrize(
    ("topic", "observation", "value", "command"),
    [
        ("zigbee2mqtt/lamp", "zigbee2mqtt:lamp/state", TRUE, 'zigbee2mqtt/lamp/set {"state":"ON"}'),
        ("zigbee2mqtt/hall/lamp", "zigbee2mqtt:hall/lamp/state", FALSE, 'zigbee2mqtt/hall/lamp/set {"state":"OFF"}'),
        ("zigbee2mqtt/a b", "zigbee2mqtt:a%20b/brightness", number("9"), 'zigbee2mqtt/a b/set {"brightness":9}'),
        ("zigbee2mqtt/lamp", "zigbee2mqtt:lamp/color_temp", number("370"), 'zigbee2mqtt/lamp/set {"color_temp":370}'),
        ("zigbee2mqtt/twin", "zigbee2mqtt:twin/state_left", TRUE, 'zigbee2mqtt/twin/set {"state_left":"ON"}'),
        ("zigbee2mqtt/v", "zigbee2mqtt:v/position", number("5"), 'zigbee2mqtt/v/set {"position":5}'),
        ("stat/plug/POWER2", "tasmota:plug/POWER2", TRUE, "cmnd/plug/POWER2 ON"),
        ("tele/plug/STATE", "tasmota:plug/POWER1", FALSE, "cmnd/plug/POWER1 OFF"),
        ("tele/plug/STATE", "tasmota:plug/Dimmer", number("40"), "cmnd/plug/Dimmer 40"),
        ("tele/lamp/STATE", "tasmota:lamp/CT", number("370"), "cmnd/lamp/CT 370"),
        ("shellies/s1/relay/0", "shelly:s1/relay/0", TRUE, "shellies/s1/relay/0/command on"),
        ("shellies/s1/roller/0/pos", "shelly:s1/roller/0/pos", number("30"), "shellies/s1/roller/0/command/pos 30"),
        ("shelly-a/status/switch:0", "shelly:shelly-a/switch:0/output", TRUE, "shelly-a/command/switch:0 on"),
        ("kitchen/events/rpc", "shelly:kitchen/switch:1/output", FALSE, "kitchen/command/switch:1 off"),
        ("kitchen/events/rpc", "shelly:kitchen/cover:0/current_pos", number("7"), "kitchen/command/cover:0 pos,7"),
        ("node/switch/fan/state", "esphome:node/fan", TRUE, "node/switch/fan/command ON"),
        ("node/light/desk/state", "esphome:node/desk", FALSE, 'node/light/desk/command {"state":"OFF"}'),
        ("node/light/a/state", "esphome:node/a/brightness", number("9"), 'node/light/a/command {"brightness":9}'),
        ("node/light/a/state", "esphome:node/a/color_temp", number("370"), 'node/light/a/command {"color_temp":370}'),
        ("node/cover/b/position/state", "esphome:node/b", number("50"), "node/cover/b/position/command 50"),
    ],
)
def test_the_packs_know_how_to_set_values(topic, observation, value, command):
    assert " ".join(sent(PACKS, topic, observation, value)) == command
    heard = PACKS.map(*sent(PACKS, topic, observation, value)[:1], b"1")
    assert heard.matched or heard.ignored  # the gateway's own message is not unmapped
    assert heard.readings == ()


@pytest.mark.parametrize(
    ("topic", "observation"),
    [
        ("zigbee2mqtt/lamp", "urn:sepa-edge:zigbee2mqtt:other/state"),
        ("zigbee2mqtt/lamp", "urn:sepa-edge:zigbee2mqtt:lamp/temperature"),
        ("node/binary_sensor/door/state", "urn:sepa-edge:esphome:node/door"),
        ("tele/plug/STATE", "urn:sepa-edge:tasmota:plug/UptimeSec"),
        ("some/topic", "urn:x"),
    ],
)
def test_an_observation_that_cannot_be_set_has_no_setter(topic, observation):
    assert PACKS.setter(topic, observation) is None


def own(keys: str) -> Mapper:
    return Mapper([load_pack(f'[[mapping]]\ntopic = "d/{{id}}"\nobservation = "edge:{{id}}"\n{keys}\n')])


def describe(keys: str) -> dict[str, object]:
    found = own(keys).setter("d/x", "urn:sepa-edge:x")
    assert found is not None
    return found[0].describe()


def test_setters_say_how_people_set_them():
    topic = 'topic = "d/{id}/set"'
    assert describe(f"values = {{ on = true, off = false, auto = false }}\nset = {{ {topic} }}") == {"kind": "switch"}
    assert describe(f'datatype = "boolean"\nset = {{ {topic} }}') == {"kind": "switch"}
    assert describe(f'datatype = "string"\nset = {{ {topic} }}') == {"kind": "text"}
    limits = {"kind": "number", "min": 5.0, "max": 30.0, "step": 0.5}
    assert describe(f"set = {{ {topic}, min = 5, max = 30, step = 0.5 }}") == limits
    modes = f'datatype = "string"\nset = {{ {topic}, values = {{ heat = "1", off = "0" }} }}'
    assert describe(modes) == {"kind": "choice", "choices": ["heat", "off"]}


def test_values_outside_the_limits_are_refused():
    mapper = own('set = { topic = "d/{id}/set", min = 0, max = 100 }')
    for wrong in ("-1", "100.5", "NaN", "much"):
        with pytest.raises(CommandError):
            sent(mapper, "d/x", "x", number(wrong))
    mapper = own('values = { on = true, off = false }\nset = { topic = "d/{id}/set" }')
    with pytest.raises(CommandError, match="perhaps"):
        sent(mapper, "d/x", "x", SolutionTerm("perhaps", XSD_STRING))


def test_a_scaled_reading_says_how_it_is_set():
    mapper = own('scale = 0.1\nset = { topic = "d/{id}/set", scale = 10, min = 0, max = 50 }')
    assert sent(mapper, "d/x", "x", number("21.5")) == ("d/x/set", "215.0")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('scale = 0.1\nset = { topic = "d/{id}/set" }', "The reading is scaled"),
        ('set = { topic = "d/{i}/set" }', "Did you mean"),
        ('set = { topic = "{id}" }', "a part of it must be fixed"),
        ('set = { topic = "d/#" }', "no wildcards"),
        ('set = { topic = "d/{id}", payload = "{valu}" }', "valu"),
        ('set = { topic = "d/{id}", min = 3, max = 3 }', "not below"),
        ('set = { topic = "d/{id}", values = { a = 1 }, scale = 2 }', "not scaled"),
        ('set = { topic = "d/{id}", payloads = 1 }', 'Did you mean "payload"?'),
        ("set = { }", "topic"),
        ('ignore = true\nset = { topic = "d/{id}" }', "observation: A mapping that ignores its topic"),
        ('payload = "json"\ncaptures = { room = "room" }\npath = "v"\nset = { topic = "d/{room}/set" }', "{room}"),
        ('sett = { topic = "d/{id}" }', 'Did you mean "set"?'),
    ],
)
def test_faults_name_key_and_remedy(keys, words):
    with pytest.raises(MappingError) as error:
        own(keys)
    assert words in str(error.value)
    assert "mapping:2" in str(error.value) or "mappings:" in str(error.value)


def test_a_long_value_is_not_sent():
    mapper = own('datatype = "string"\nset = { topic = "d/{id}/set" }')
    with pytest.raises(CommandError, match="the limit is"):
        sent(mapper, "d/x", "x", SolutionTerm("x" * 300_000, XSD_STRING))


@pytest.mark.parametrize("wrong", ["5", "ON", "truee", ""])
def test_a_switch_accepts_only_truth_values(wrong):
    mapper = own('datatype = "boolean"\nset = { topic = "d/{id}/set" }')
    assert sent(mapper, "d/x", "x", SolutionTerm("1", XSD_BOOLEAN)) == ("d/x/set", "true")
    with pytest.raises(CommandError, match="is not a truth value"):
        sent(mapper, "d/x", "x", SolutionTerm(wrong, XSD_STRING))


@pytest.mark.parametrize(
    "given",
    [TRUE, SolutionTerm("1", XSD_BOOLEAN), SolutionTerm("1", XSD_STRING), SolutionTerm("true"), number("1")],
)
def test_a_switch_sends_a_truth_value_of_json_whatever_the_graph_has(given):
    mapper = own('datatype = "boolean"\nset = { topic = "d/{id}/set", payload = { on = "{value}" } }')
    assert sent(mapper, "d/x", "x", given) == ("d/x/set", '{"on":true}')


@pytest.mark.timeout(20)
@pytest.mark.parametrize("value", ["1e1000000", "-1e999999999", "9" * 100_000])
def test_numbers_of_unusual_size_are_refused_at_once(value):
    for keys in ('set = { topic = "d/{id}/set", min = 0, max = 100 }', 'set = { topic = "d/{id}/set", scale = 10 }'):
        with pytest.raises(CommandError) as error:
            sent(own(keys), "d/x", "x", number(value))
        assert len(str(error.value)) < 200


@pytest.mark.timeout(20)
def test_constants_of_a_file_are_not_written_with_a_hundred_million_digits():
    text = '[[mapping]]\ntopic = "d"\npayload = "json"\nobservation = "urn:x"\npath = "v"\n'
    assert Mapper([load_pack(text + "default = 1e99999999")]).map("d", b"{}").readings == ()
    with pytest.raises(MappingError, match="too large") as error:
        load_pack(text + "values = { a = 1e99999999 }")
    assert len(str(error.value)) < 500
