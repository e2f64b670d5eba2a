"""Announcements are replaced, removed and limited, and cannot take what others map. Hostile ones do no harm."""

import json
import random
from decimal import Decimal

import pytest
from announcing import DISCOVERED, Announcing

from edge.adapters.desired_values import DesiredValues
from edge.discovery import registry
from edge.discovery.mappings import AnnouncementCompiler
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_builtin, load_pack
from edge.mapping.reading import XSD_DECIMAL
from edge.mapping.solution import Solution, SolutionTerm
from edge.mapping.terms import is_iri
from tests.support.waiting import wait_for

SENSOR = {"name": "T", "uniq_id": "a", "stat_t": "room/t", "unit_of_meas": "°C", "dev": {"ids": "d", "name": "Room"}}


@pytest.fixture
def home(tmp_path):
    return Announcing(tmp_path / "announcements.json")


def other(number: int, **config: object) -> dict:
    return {**SENSOR, "uniq_id": f"a{number}", "stat_t": f"room/t{number}", **config}


def test_a_changed_announcement_replaces_the_first_and_an_empty_one_removes_it(home):
    home.announce("sensor/a/config", SENSOR)
    home.announce("sensor/a/config", {**SENSOR, "stat_t": "other/t"})
    assert not home.mapper.map("room/t", b"1").matched
    assert home.values("other/t", "20") == {"sensor/a": "20"}
    home.announce("sensor/a/config", None)
    assert not home.mapper.map("other/t", b"1").matched
    assert home.discovery.entities == 0


def test_the_faults_have_codes_for_other_languages(home):
    switch = {"name": "Fan", "uniq_id": "s", "stat_t": "room/s", "cmd_t": "home/+/set"}
    home.announce("switch/s/config", switch)
    home.announce("sensor/t/config", {**SENSOR, "uniq_id": "t", "val_tpl": "{{ value | regex_replace('a') }}"})
    home.announce("sensor/b/config", b"[]")
    found = [part for fault in home.discovery.faults() for part in fault["faults"]]
    assert [(each["key"], each["reason_code"], each["reason_values"].get("name")) for each in found] == [
        ("switch/Fan: set", "topic_not_of_commands", "home/+/set"),
        ("sensor/T", "template", "{{ value | regex_replace('a') }}"),
        (None, "payload_not_object", None),
    ]
    assert [each["text"] for each in found] == home.reasons()


FAULTY = {
    "cut": b"{",
    "list": b"[]",
    "bytes": b"\xff",
    "too long": b" " * 70_000,
    "identifier": b'{"uniq_id": "' + b"x" * 201 + b'"}',
}


@pytest.mark.parametrize("payload", FAULTY.values(), ids=FAULTY)
def test_a_faulty_change_keeps_the_earlier_announcement(home, payload):
    home.announce("sensor/a/config", SENSOR)
    home.announce("sensor/a/config", payload)
    assert home.values("room/t", "20") == {"sensor/a": "20"}
    home.announce("sensor/b/config", payload)
    assert [each["previous_version_applies"] for each in home.discovery.faults()] == [True, False]
    assert home.rebuilt == 1
    home.announce("sensor/a/config", SENSOR)
    home.announce("sensor/b/config", None)
    assert home.reasons() == []
    home.announce("sensor/a/config", payload)
    home.announce("sensor/a/config", None)
    assert not home.mapper.map("room/t", b"20").matched
    assert home.reasons() == []
    home.announce("sensor/a/config", payload)
    assert [each["previous_version_applies"] for each in home.discovery.faults()] == [False]


def test_a_fault_that_the_earlier_announcement_has_itself_is_listed_again(home):
    home.announce("sensor/a/config", {**SENSOR, "stat_t": "#"})
    before = home.discovery.faults()
    home.announce("sensor/a/config", b"{")
    assert home.discovery.faults() != before
    home.announce("sensor/a/config", {**SENSOR, "stat_t": "#"})
    assert home.discovery.faults() == before


def test_a_repeated_announcement_changes_nothing(home):
    for _ in range(3):
        home.announce("sensor/a/config", SENSOR)
    assert home.rebuilt == 1


def test_many_announcements_of_one_read_are_one_change(home):
    for number in range(50):
        home.announce(f"sensor/a{number}/config", other(number), apply=False)
    home.discovery.apply()
    assert home.rebuilt == 1
    assert home.discovery.entities == 50


@pytest.mark.parametrize(
    "topic", ["status", "sensor/a/state", "sensor/config", "sensor/a/b/c/config", "sensor/a b/config", "sensor//config"]
)
def test_other_topics_below_the_prefix_are_no_announcements(home, topic):
    assert not home.announce(topic, SENSOR)


def test_announcements_apply_after_a_restart(home, tmp_path):
    home.announce("sensor/a/config", SENSOR)
    home.announce("sensor/b/config", other(2))
    home.announce("sensor/b/config", None)
    home.discovery.start()
    home.discovery.stop()
    again = Announcing(tmp_path / "announcements.json")
    assert again.values("room/t", "20") == {"sensor/a": "20"}
    assert not again.mapper.map("room/t2", b"1").matched


@pytest.mark.parametrize("content", ["", "[]", '{"announcements": 5}', '{"announcements": {"x": 5}}', "\0"])
def test_a_damaged_file_of_announcements_is_left_out(tmp_path, content):
    file = tmp_path / "announcements.json"
    file.write_text(content)
    assert Announcing(file).discovery.entities == 0


def test_a_file_of_the_operator_and_a_pack_keep_their_topics(tmp_path):
    own = load_pack('[[mapping]]\ntopic = "room/{x}"\nobservation = "urn:x:{x}"', "own")
    home = Announcing(tmp_path / "a.json", own, load_builtin("esphome"))
    home.announce("sensor/a/config", SENSOR)
    home.announce("sensor/b/config", other(2, stat_t="node/sensor/x_temperature/state"))
    assert [each.observation for each in home.readings("room/t", "20")] == ["urn:x:t"]
    found = home.readings("node/sensor/x_temperature/state", "20")
    assert [each.observation for each in found] == ["urn:sepa-edge:esphome:node/x_temperature"]


def test_a_topic_that_a_pack_ignores_can_be_announced_but_not_one_that_the_operator_ignores(tmp_path):
    own = load_pack('[[mapping]]\ntopic = "homeassistant/sensor/b/#"\nignore = true', "own")
    home = Announcing(tmp_path / "a.json", own, load_builtin("esphome"))
    home.announce("sensor/a/config", {**SENSOR, "stat_t": "homeassistant/sensor/a/state"})
    home.announce("sensor/b/config", other(2, stat_t="homeassistant/sensor/b/state"))
    assert home.values("homeassistant/sensor/a/state", "20") == {"sensor/a": "20"}
    assert home.mapper.map("homeassistant/sensor/b/state", b"20").ignored


@pytest.mark.parametrize("iri", [f"{DISCOVERED}sensor/a", DISCOVERED + "{x}/a", DISCOVERED + "sensor/{x}"])
def test_an_observation_of_a_file_cannot_be_announced(tmp_path, iri):
    own = load_pack(f'[[mapping]]\ntopic = "{{x}}/own"\nobservation = "{iri}"', "own")
    home = Announcing(tmp_path / "a.json", own)
    home.announce("sensor/a/config", SENSOR)
    assert not home.mapper.map("room/t", b"20").matched


def test_topics_on_which_the_gateway_sends_are_not_read(tmp_path):
    actuator = 'query = "SELECT ?id ?value { ?o <urn:id> ?id ; <urn:v> ?value }"\ntopic = "sepa-edge/{id}"'
    own = load_pack(f'[[actuator]]\n{actuator}\npayload = "{{value}}"', "own")
    home = Announcing(tmp_path / "a.json", own)
    home.announce("sensor/a/config", {**SENSOR, "stat_t": "sepa-edge/x"})
    assert home.discovery.entities == 0
    home.announce("sensor/b/config", other(2, stat_t="+/x"))
    assert home.mapper.map("sepa-edge/x", b"20").readings == ()
    assert home.values("room/x", "20") == {"sensor/a2": "20"}
    assert home.mapper.declared() == ()


def test_one_topic_of_many_entities_is_routed_in_one_look_at_the_setters(home, monkeypatch):
    parts = {f"p{n}": {"p": "switch", "unique_id": f"p{n}", "stat_t": "room/t", "cmd_t": f"p/{n}"} for n in range(50)}
    home.announce("device/d/config", {"dev": {"ids": "d"}, "cmps": parts})
    looks = []
    look = Mapper.sends_on
    monkeypatch.setattr(Mapper, "sends_on", lambda *call: looks.append(call) or look(*call))
    assert len(home.readings("room/t", "ON")) == 50
    assert len(looks) == 1


def test_the_first_device_keeps_an_observation(home):
    home.announce("sensor/a/config", SENSOR)
    home.announce("sensor/b/config", {**SENSOR, "stat_t": "evil/t"})
    assert not home.mapper.map("evil/t", b"20").matched
    assert home.reasons() == [f"homeassistant/sensor/a/config has announced {DISCOVERED}sensor/a before"]
    home.announce("sensor/a/config", None)
    assert home.values("evil/t", "20") == {"sensor/a": "20"}
    assert home.reasons() == []


@pytest.mark.parametrize(
    "topic", ["#", "+", "a/#", "a/+", "a/b+/c", "$SYS/x", "sepa/x", "a\0b", "a\nb", "x" * 2000, "/+"]
)
def test_topics_that_cannot_be_announced(home, topic):
    home.announce("sensor/a/config", {**SENSOR, "stat_t": topic})
    assert home.discovery.entities == 1
    assert len(home.reasons()) == 1
    for name in ("a/b", "sepa/x", "a/bx/c", "/x"):
        assert not home.mapper.map(name, b"1").matched


@pytest.mark.parametrize(
    "topic",
    ["serial/x", "modbus/x/relay", "sepa/update/x", "$SYS/x", "a/+/set", "homeassistant/sensor/x/config", "a\0", "#"],
)
def test_topics_to_which_nothing_is_sent(home, topic):
    home.announce("switch/a/config", {**SENSOR, "cmd_t": topic})
    assert home.values("room/t", "ON") == {"switch/a": "true"}
    assert home.mapper.setter("room/t", f"{DISCOVERED}switch/a") is None
    assert len(home.reasons()) == 1


@pytest.mark.parametrize(
    "topic", ["x" * 900, "a/+/status", "#", "sepa/x", "", "//", "../.", "a\0b", "{x}/{{y}}", "a\ud800/b"]
)
def test_availability_topics(home, topic):
    home.announce("sensor/a/config", {**SENSOR, "avty_t": topic})
    assert home.values("room/t", "20") == {"sensor/a": "20"}
    usable = topic in ("//", "../.", "{x}/{{y}}")
    found = home.mapper.map(topic or "x", b"online").readings
    assert [each.value for each in found] == ["true"] * usable
    assert len(home.reasons()) == (not usable and topic != "")
    assert json.dumps(home.discovery.faults(), ensure_ascii=False).encode()
    assert all(is_iri(each.observation) for each in found)


def test_an_availability_template_outside_of_the_subset_is_listed(home):
    home.announce("sensor/a/config", {**SENSOR, "avty_t": "room/s", "avty_tpl": "{{ value | bool }}"})
    assert ["'bool'" in each for each in home.reasons()] == [True]
    home.announce("sensor/a/config", {**SENSOR, "avty_t": "room/s"})
    assert home.reasons() == []


def test_an_availability_topic_that_fails_does_not_stop_others(home, tmp_path, monkeypatch):
    home.announce("sensor/b/config", other(1))
    deep = "int(" * 197 + "value" + ")" * 197
    home.announce("sensor/a/config", {**SENSOR, "avty_t": "room/s", "avty_tpl": f"{{{{{deep}}}}}"})
    assert ["parentheses" in each for each in home.reasons()] == [True]
    # Also where the compiler itself has a defect.
    monkeypatch.setattr(AnnouncementCompiler, "availability", _defective)
    home.announce("sensor/c/config", other(2, avty_t="room/s2"))
    assert "RecursionError" in home.reasons()[-1]
    home.discovery.start()
    home.discovery.stop()
    for each in (home, Announcing(tmp_path / "announcements.json")):
        assert each.values("room/t1", "20") == {"sensor/a1": "20"}
        each.announce("sensor/d/config", other(3))
        assert each.values("room/t3", "20") == {"sensor/a3": "20"}


def _defective(*_: object) -> None:
    raise RecursionError


def test_an_announcement_has_few_availability_topics(home):
    topics = [{"topic": f"room/s{n}"} for n in range(8)]
    home.announce("sensor/a/config", {**SENSOR, "availability": topics})
    assert home.values("room/t", "20") == {"sensor/a": "20"}
    assert [home.mapper.map(f"room/s{n}", b"online").matched for n in range(8)] == [True] * 3 + [False] * 5
    assert ["availability" in each for each in home.reasons()] == [True]
    parts = {f"p{n}": {**other(n), "p": "sensor", "availability": topics} for n in range(4)}
    home.announce("device/d/config", {"dev": {"ids": "e"}, "cmps": parts})
    assert len(home.reasons()) == 1
    assert all(home.mapper.map(f"room/s{n}", b"online").matched for n in range(8))


def test_availability_topics_are_compiled_once(home, monkeypatch):
    compiled = []
    compile_one = AnnouncementCompiler.availability
    monkeypatch.setattr(
        AnnouncementCompiler, "availability", lambda *call: compiled.append(call[1].topic) or compile_one(*call)
    )
    for number in range(10):
        home.announce(f"sensor/{number}/config", other(number, avty_t=f"room/s{number}"))
    assert compiled == [f"room/s{number}" for number in range(10)]
    # Those that nothing uses any more are not kept.
    home.announce("sensor/0/config", None)
    home.announce("sensor/0/config", other(0, avty_t="room/s0"))
    assert compiled[10:] == ["room/s0"]


def test_availability_topics_of_few_entities_are_compiled_once(tmp_path, monkeypatch):
    compiled = []
    compile_one = AnnouncementCompiler.availability
    monkeypatch.setattr(
        AnnouncementCompiler, "availability", lambda *call: compiled.append(call[1].topic) or compile_one(*call)
    )
    home = Announcing(tmp_path / "a.json", max_entities=3)
    for number in range(3):
        topics = [{"topic": f"room/{number}/{n}"} for n in range(3)]
        home.announce(f"sensor/{number}/config", other(number, availability=topics))
    home.announce("sensor/2/config", {**other(2, availability=topics), "name": "Other"})
    assert len(compiled) == 9


def test_without_commands_nothing_can_be_set(tmp_path):
    home = Announcing(tmp_path / "a.json", commands=False)
    home.announce("switch/a/config", {**SENSOR, "cmd_t": "room/set"})
    assert home.mapper.setter("room/t", f"{DISCOVERED}switch/a") is None
    assert home.reasons() == []


@pytest.mark.parametrize(
    ("template", "sent"),
    [
        ("{{ value }}", b"7"),
        ('{"level": {{ value }}, "x": {}}', b'{"level": 7, "x": {}}'),
        ("L{{value|int}}", b"L7"),
        ("{{ value * 2 }}", None),
        ("{% if value %}1{% endif %}", None),
        ("{{ states('x') }}", None),
        ("constant", None),
    ],
)
def test_command_templates(home, template, sent):
    config = {"uniq_id": "n", "stat_t": "n/state", "cmd_t": "n/set", "cmd_tpl": template}
    home.announce("number/n/config", config)
    if sent is None:
        assert home.mapper.setter("n/state", f"{DISCOVERED}number/n") is None
        assert len(home.reasons()) == 1
    else:
        assert home.command("n/state", "number/n", "7") == ("n/set", sent)


def test_a_select_accepts_only_its_options(home):
    config = {"uniq_id": "s", "stat_t": "s/state", "cmd_t": "s/set", "options": ["low", "high", "", 5, "\ud800"]}
    home.announce("select/s/config", config)
    assert home.values("s/state", "low") == {"select/s": "low"}
    setter = home.mapper.setter("s/state", f"{DISCOVERED}select/s")
    assert setter is not None
    assert setter[0].describe() == {"kind": "choice", "choices": ["low", "high"]}
    assert home.command("s/state", "select/s", "high") == ("s/set", b"high")


@pytest.mark.parametrize(
    "options", [{"min": 5, "max": 5}, {"min": 9, "max": 1}, {"qos": 1, "cmd_t": "a{{b/set", "min": 2, "max": 2}]
)
def test_a_fault_of_the_command_keeps_the_reading(home, options):
    home.announce("number/n/config", {"uniq_id": "n", "stat_t": "n/state", "cmd_t": "n/set", **options})
    assert home.values("n/state", "7") == {"number/n": "7"}
    assert home.mapper.setter("n/state", f"{DISCOVERED}number/n") is None
    assert ["set" in each for each in home.reasons()] == [True]


@pytest.mark.parametrize("step", [-1, 0, "-0.5"])
def test_a_step_that_is_not_positive_counts_as_none(home, step):
    for component, config in (
        ("number", {"stat_t": "n/state", "cmd_t": "n/set", "step": step}),
        ("climate", {"temp_stat_t": "c/state", "temp_cmd_t": "c/set", "temp_step": step}),
    ):
        home.announce(f"{component}/n/config", {"uniq_id": "n", **config})
    assert home.reasons() == []
    assert home.command("n/state", "number/n", "7") == ("n/set", b"7")
    assert home.command("c/state", "climate/n/target_temperature", "21") == ("c/set", b"21")


def test_a_greek_mu_in_a_unit_keeps_the_class(home, caplog):
    config = {"uniq_id": "a", "stat_t": "room/t", "dev_cla": "pm10", "unit_of_meas": "\u03bcg/m³"}
    home.announce("sensor/a/config", {**config, "name": "Dust"})
    [reading] = home.readings("room/t", "5")
    assert reading.property == "urn:sepa-edge:property:pm10"
    assert reading.unit == "http://qudt.org/vocab/unit/MicroGM-PER-M3"
    assert "discovery.doubtful" not in caplog.messages


def test_desired_values_start_again_only_if_values_are_set_in_another_way(home):
    """Each start sends the values again that are not yet acknowledged."""
    desired = DesiredValues()
    home.announce("switch/a/config", {**SENSOR, "cmd_t": "room/set"})
    first = desired.follow(home.mapper)
    home.announce("sensor/b/config", other(2))
    home.announce("sensor/b/config", other(3))
    second = desired.follow(home.mapper)
    assert second.same(first)
    home.announce("switch/a/config", {**SENSOR, "cmd_t": "room/set2"})
    third = desired.follow(home.mapper)
    assert not third.same(second)
    # An actuator that goes on uses the current mapper.
    terms = {"observation": f"{DISCOVERED}switch/a", "topic": "room/t", "value": "true"}
    solution = Solution({name: SolutionTerm(text) for name, text in terms.items()}, {})
    assert {each.added.render(solution).topic for each in (first, third)} == {"room/set2"}
    home.announce("switch/a/config", None)
    assert not desired.follow(home.mapper).same(third)


def test_a_climate_has_several_values(home):
    config = {
        "uniq_id": "c",
        "temperature_unit": "C",
        "curr_temp_t": "c/state",
        "curr_temp_tpl": "{{ value_json.local_temperature }}",
        "temp_stat_t": "c/state",
        "temp_stat_tpl": "{{ value_json.setpoint }}",
        "temp_cmd_t": "c/set/setpoint",
        "min_temp": "5",
        "max_temp": "30",
        "mode_stat_t": "c/state",
        "mode_stat_tpl": "{{ value_json.mode }}",
        "mode_cmd_t": "c/set/mode",
        "modes": ["off", "heat"],
        "act_t": "c/state",
        "act_tpl": "{% set x = 1 %}{{ x }}",
    }
    home.announce("climate/c/config", config)
    message = {"local_temperature": 20.5, "setpoint": 22, "mode": "heat"}
    assert home.values("c/state", message) == {
        "climate/c/current_temperature": "20.5",
        "climate/c/target_temperature": "22",
        "climate/c/mode": "heat",
    }
    assert home.units("c/state", message)["climate/c/target_temperature"] == "DegreeCelsius"
    assert home.command("c/state", "climate/c/target_temperature", "21.5") == ("c/set/setpoint", b"21.5")
    assert home.command("c/state", "climate/c/mode", "off") == ("c/set/mode", b"off")
    assert ["climate/c/action" in each for each in home.reasons()] == [True]


def test_an_event_is_one_each_time(home):
    home.announce("event/e/config", {"uniq_id": "e", "stat_t": "e/state", "event_types": ["press"]})
    [reading] = home.readings("e/state", {"event_type": "press"})
    assert (reading.value, reading.event is not None) == ("press", True)


def test_a_default_counts_where_the_member_is_missing(home):
    home.announce("sensor/a/config", {**SENSOR, "val_tpl": "{{ value_json.t | float(0) | round(1) }}"})
    assert home.values("room/t", {"t": 20.26}) == {"sensor/a": "20.3"}
    assert home.values("room/t", {}) == {"sensor/a": "0.0"}


@pytest.mark.parametrize(
    ("template", "given", "wanted"),
    [
        ("{{ (value | float - 32) / 1.8 }}", "68", "20"),
        ("{{ (value / 3) | int }}", "3", "1"),
        ("{{ (value / 3) | int }}", "2.9", "0"),
        ("{{ (value * 100 / 255) | int }}", "255", "100"),
        ("{{ (value * 100 / 255) | int }}", "254", "99"),
        ("{{ (value / -7) | int }}", "49", "-7"),
    ],
)
def test_quotients_without_an_end_give_the_right_number(home, template, given, wanted):
    home.announce("sensor/a/config", {**SENSOR, "val_tpl": template})
    assert Decimal(home.values("room/t", given)["sensor/a"]) == Decimal(wanted)


@pytest.mark.parametrize(
    ("template", "given", "wanted"),
    [("{{ value / 10 }}", "15", "1.5"), ("{{ value | round(1) }}", "15.26", "15.3"), ("{{ value | int }}", "7.9", "7")],
)
def test_a_calculation_makes_the_text_of_a_sensor_a_number(home, template, given, wanted):
    home.announce("sensor/a/config", {"uniq_id": "a", "stat_t": "room/t", "val_tpl": template})
    [reading] = home.readings("room/t", given)
    assert (reading.value, reading.datatype) == (wanted, XSD_DECIMAL)
    assert home.values("room/t", "unavailable") == {}


@pytest.mark.parametrize(
    ("component", "template"),
    [
        ("binary_sensor", "{{ 1 - value_json.x }}"),
        ("switch", "{{ value_json.x * 10 }}"),
        ("select", "{{ value_json.x + 1 }}"),
        ("select", "{{ value_json.x | round(1) }}"),
        ("text", "{{ value | int }}"),
    ],
)
def test_a_calculation_that_would_have_no_effect_is_refused(home, component, template):
    config = {"uniq_id": "a", "stat_t": "room/t", "val_tpl": template, "pl_on": "1", "pl_off": "0"}
    home.announce(f"{component}/a/config", config)
    assert not home.mapper.map("room/t", b'{"x": 1}').matched
    assert len(home.reasons()) == 1
    home.announce(f"{component}/a/config", {**config, "val_tpl": "", "avty_t": "room/s", "avty_tpl": "{{ 1 - value }}"})
    assert not home.mapper.map("room/s", b"1").matched
    assert len(home.reasons()) == 1


@pytest.mark.parametrize("kind", ["moisture", "battery", "gas", "carbon_monoxide", "power"])
def test_a_truth_value_has_no_unit_and_not_the_property_of_a_quantity(home, kind):
    config = {"uniq_id": "a", "stat_t": "room/t", "dev_cla": kind}
    home.announce("binary_sensor/a/config", config)
    home.announce("sensor/a/config", {**config, "stat_t": "room/n"})
    [truth], [number] = home.readings("room/t", "ON"), home.readings("room/n", "5")
    assert (truth.value, truth.unit) == ("true", None)
    assert truth.property == "urn:sepa-edge:property:" + (kind if kind == "gas" else f"{kind}_state")
    assert number.property in (f"urn:sepa-edge:property:{kind}", f"urn:sepa-edge:property:{kind}_volume")


def test_a_truth_value_of_another_class_has_its_property(home):
    home.announce("binary_sensor/a/config", {"uniq_id": "a", "stat_t": "room/t", "dev_cla": "door"})
    assert home.readings("room/t", "ON")[0].property == "urn:sepa-edge:property:door"


@pytest.mark.parametrize(
    ("template", "given", "wanted"),
    [
        ("{{ value | int }}", "400", "0.4"),
        ("{{ value | round(1) }}", "1", "0.001"),
        ("{{ (value / 3) | int }}", "3", "0.001"),
        ("{{ value / 3 }}", "1", "0.000333333"),
    ],
)
def test_a_template_does_not_round_in_a_unit_that_qudt_has_instead(home, template, given, wanted):
    home.announce("sensor/a/config", {**SENSOR, "dev_cla": "energy", "unit_of_meas": "mWh", "val_tpl": template})
    assert Decimal(home.values("room/t", given)["sensor/a"]) == Decimal(wanted)


def test_numbers_as_truth_values(home):
    config = {"uniq_id": "a", "stat_t": "room/t", "val_tpl": "{{ value_json.x | int }}", "pl_on": "1", "pl_off": "0"}
    home.announce("binary_sensor/a/config", config)
    assert home.values("room/t", {"x": 1}) == {"binary_sensor/a": "true"}


ROOM = 3 * len("homeassistant/sensor/a0/config" + json.dumps(other(0))) + 10
"""Bytes of three announcements with their topics."""


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_device_entities": 3}, "max_device_entities"),
        ({"max_entities": 3}, "max_entities"),
        ({"max_device_bytes": ROOM}, "max_device_bytes"),
        ({"max_bytes": ROOM}, "max_bytes"),
    ],
)
def test_limits_refuse_further_announcements_and_keep_the_first(tmp_path, settings, name):
    home = Announcing(tmp_path / "a.json", **settings)
    for number in range(6):
        home.announce(f"sensor/a{number}/config", other(number))
    assert home.discovery.entities == 3
    assert home.values("room/t0", "1") == {"sensor/a0": "1"}
    assert len(home.reasons()) == 3
    assert f"discovery.{name}" in home.reasons()[0]
    # One that goes makes room.
    home.announce("sensor/a0/config", None)
    home.announce("sensor/a5/config", other(5))
    assert home.values("room/t5", "1") == {"sensor/a5": "1"}


def test_waiting_announcements_are_bounded_also_without_payloads(tmp_path):
    home = Announcing(tmp_path / "a.json", max_bytes=4096)
    for number in range(100):
        assert home.announce(f"sensor/{number}/config", None, apply=False)
    assert home.discovery.waiting < 20
    home.announce("sensor/a/config", SENSOR)
    assert home.discovery.waiting == 0
    home.announce("sensor/a/config", SENSOR)
    assert home.values("room/t", "20") == {"sensor/a": "20"}


def test_announcements_without_entities_are_not_stored(tmp_path):
    home = Announcing(tmp_path / "a.json")
    for number in range(50):
        home.announce(f"device/d{number}/config", {"cmps": {}})
    assert home.discovery.stored == 0
    bad = {"dev": {"ids": "d"}, "cmps": {"x": {"name": "no platform"}}}
    home.announce("device/d/config", bad)
    assert ["platform" in each for each in home.reasons()] == [True]
    parts = {"x": {"p": "sensor", "unique_id": "x", "stat_t": "room/t"}}
    home.announce("device/d/config", {"dev": {"ids": "d"}, "cmps": parts})
    assert home.values("room/t", "1") == {"sensor/x": "1"}
    home.announce("device/d/config", {"dev": {"ids": "d"}, "cmps": {"x": {"p": "sensor"}}})
    assert not home.mapper.map("room/t", b"1").matched
    assert home.discovery.stored == 0


def test_topics_count_as_bytes_of_announcements(tmp_path):
    home = Announcing(tmp_path / "a.json", max_bytes=1024)
    for number in range(10):
        home.announce(f"sensor/{'x' * 500}{number}/config", {"stat_t": f"t/{number}", "uniq_id": str(number)})
    assert home.discovery.entities == 1
    assert "discovery.max_bytes" in home.reasons()[0]


def test_a_flood_is_logged_once_with_its_remedy(tmp_path, caplog):
    home = Announcing(tmp_path / "a.json", max_bytes=4096)
    for _ in range(2):
        for number in range(100):
            home.announce(f"sensor/{number}/config", None, apply=False)
        home.discovery.apply()
    dropped = [each for each in caplog.records if each.message == "discovery.dropped"]
    assert ["discovery.max_bytes" in each.remedy for each in dropped] == [True, True]


def test_announcements_that_wait_when_the_gateway_stops_are_stored(tmp_path):
    times = iter(range(10_000))
    home = Announcing(tmp_path / "a.json", clock=lambda: float(next(times)))
    for number in range(30):
        home.announce(f"sensor/a{number}/config", other(number), apply=False)
    home.discovery.start()
    home.discovery.stop()
    assert Announcing(tmp_path / "a.json").discovery.entities == 30


def test_announcements_that_could_not_be_stored_are_stored_later(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(registry, "_RETRY", 0.01)
    file = tmp_path / "full" / "a.json"
    home = Announcing(file)
    home.discovery.start()
    try:
        home.announce("sensor/a/config", SENSOR)
        wait_for(lambda: "discovery.not_stored" in caplog.messages, what="the failure")
        file.parent.mkdir()
        wait_for(file.exists, what="the file")
    finally:
        home.discovery.stop()
    assert Announcing(file).values("room/t", "20") == {"sensor/a": "20"}
    failures = [each for each in caplog.records if each.message == "discovery.not_stored"]
    assert ["space" in each.remedy for each in failures] == [True]


def test_a_long_topic_is_no_announcement(home):
    assert not home.announce(f"sensor/{'x' * 2000}/config", SENSOR)


def test_limits_of_one_device_do_not_concern_others(tmp_path):
    home = Announcing(tmp_path / "a.json", max_device_entities=1)
    home.announce("sensor/a1/config", other(1))
    home.announce("sensor/a2/config", other(2))
    home.announce("sensor/a3/config", other(3, dev={"ids": "other"}))
    assert home.discovery.entities == 2
    parts = {f"p{number}": {"p": "sensor", "unique_id": f"p{number}", "stat_t": "p/x"} for number in range(2)}
    home.announce("device/p/config", {"dev": {"ids": "p"}, "cmps": parts})
    assert home.discovery.entities == 2


def test_an_announcement_that_is_too_long_is_refused(tmp_path):
    home = Announcing(tmp_path / "a.json", max_announcement=1024)
    home.announce("sensor/a/config", {**SENSOR, "name": "x" * 2000})
    assert home.discovery.entities == 0
    assert "discovery.max_announcement" in home.reasons()[0]


def test_a_device_that_announces_without_end_gets_a_share_of_the_time(tmp_path):
    times = iter(range(10_000))
    home = Announcing(tmp_path / "a.json", clock=lambda: float(next(times)))
    for number in range(100):
        home.announce(f"sensor/a{number}/config", other(number))
    # Each look at the clock takes a second: after a burst, announcements wait for most of the time.
    assert 10 < home.rebuilt < 40


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff\xfe",
        b"[]",
        b"5",
        b"{",
        b"null",
        b'{"a": NaN}',
        b"[" * 60_000,
        b'{"cmps": 5}',
        b'{"a": 1e999999999999999999}',
        b'{"a": ' + b"9" * 10_000 + b"}",
        "\ud800".encode("utf-8", "surrogatepass"),
    ],
)
@pytest.mark.parametrize("component", ["sensor", "device"])
def test_payloads_that_are_no_announcements(home, payload, component):
    home.announce(f"{component}/a/config", payload)
    assert home.mapper.declared() == ()
    home.announce("sensor/b/config", SENSOR)
    assert home.values("room/t", "20") == {"sensor/a": "20"}


HOSTILE = [
    "",
    "x" * 10_000,
    "../..",
    "<b>\"'{}\\",
    "a b/c#?%",
    "{member}",
    "{{x}}",
    "\u202e\ud800",
    "\0",
    "。/é",
    "~",
    ".",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_become_valid_terms(home, text):
    device = {"ids": [text], "name": text, "mf": text, "mdl": text, "sa": text}
    home.announce("sensor/a/config", {**SENSOR, "uniq_id": text, "name": text, "dev": device, "dev_cla": text})
    home.announce("sensor/b/config", {**SENSOR, "uniq_id": "b", "name": text, "stat_t": "room/b"})
    readings = [*home.mapper.map("room/t", b"20").readings, *home.readings("room/b", "20")]
    assert json.dumps(home.discovery.faults(), ensure_ascii=False).encode()
    assert readings
    for reading in readings:
        for iri in (reading.observation, reading.property, reading.location, reading.sensor):
            assert iri is None or (is_iri(iri) and iri.startswith("urn:sepa-edge:"))
        names = f"{reading.label}{reading.comment}{reading.sensor_label}"
        assert not {"\0", "\u202e"} & {*names}
        assert len(reading.label or "") < 500


def test_any_document_is_read_without_an_error(home):
    """Random documents of the options that exist, with values of wrong types."""
    source = random.Random(7)
    keys = ["~", "stat_t", "val_tpl", "dev", "uniq_id", "name", "avty", "avty_t", "unit_of_meas", "dev_cla", "cmd_t"]
    keys += [
        "options",
        "min",
        "max",
        "step",
        "pl_on",
        "pl_off",
        "cmps",
        "p",
        "off_dly",
        "schema",
        "bri_scl",
        "qos",
        "ret",
    ]
    values = [None, True, 0, -1, 1.5, 1e300, "", "a/b", "{{ value_json.x }}", "{{", [], [1], {}, {"ids": [[]]}, ["a"]]
    values += [
        {"t": "a/b"},
        [{"t": 5}],
        [{"topic": "a/b", "pl_avail": 5}],
        {"x": {"p": "sensor"}},
        [["mac", 5]],
        "json",
    ]
    kinds = ["sensor", "binary_sensor", "switch", "light", "number", "select", "cover", "lock", "fan", "climate"]
    kinds += ["event", "text", "button", "device", "nonsense"]
    for number in range(600):
        config = {key: source.choice(values) for key in source.sample(keys, source.randrange(len(keys)))}
        home.announce(f"{source.choice(kinds)}/a{number % 20}/config", config)
        home.mapper.map("a/b", json.dumps({"x": source.choice([1, "ON", None, {}])}).encode())
    assert not [each for each in home.reasons() if "cannot be read" in each]
    assert json.dumps(home.discovery.faults(), ensure_ascii=False).encode()
