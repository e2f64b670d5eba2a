"""`edge mapping`: check files and try messages without a gateway."""

import json
from difflib import SequenceMatcher

import pytest

from edge.mapping.explain_message import explain
from edge.mapping.mapper import Mapper
from edge.mapping.pack import load_pack

MAPPING = """
[[mapping]]
topic = "greenhouse/{bed}/temp"
payload = "json"
readings = [{ path = "celsius", observation = "edge:greenhouse-{bed}", unit = "unit:DegreeCelsius" }]
"""
OBSERVATION = "urn:sepa-edge:greenhouse-7"


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "greenhouse.toml"
    file.write_text(MAPPING)
    return file


def test_valid_mapping_file_is_accepted(edge, file):
    done = edge("mapping", "check", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{file}: good, 1 mapping\n"


def test_a_wrong_file_is_2_with_a_line_for_each_fault(edge, file):
    file.write_text(MAPPING.replace("payload", "payloda").replace("unit =", "unti ="))
    done = edge("mapping", "check", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) >= 2
    assert all(line.startswith(f"edge: {file}:") for line in done.stderr.splitlines())
    assert '"payload"' in done.stderr
    tried = edge("mapping", "test", "greenhouse/7/temp", "1", "--file", file)
    assert (tried.returncode, tried.stderr) == (2, done.stderr)


def test_a_probable_mistake_is_a_warning(edge, file):
    file.write_text(MAPPING.replace("celsius", "*.celsius"))
    done = edge("mapping", "check", file)
    assert (done.returncode, done.stdout) == (0, f"{file}: good, 1 mapping\n")
    assert done.stderr.startswith(f"edge: warning: {file}:5: ")
    assert len(done.stderr.splitlines()) == 1


def test_units_are_listed(edge):
    done = edge("mapping", "units")
    assert (done.returncode, done.stderr) == (0, "")
    assert "°C           Cel °C degC celsius              http://qudt.org/1.1/vocab/unit#DegreeCelsius" in done.stdout
    assert len(done.stdout.splitlines()) < 150
    assert len(edge("mapping", "units", "--all").stdout.splitlines()) > 3_500
    assert "vocab/unit/FT_HG" in edge("mapping", "units", "ft_hg").stdout
    none = edge("mapping", "units", "no such unit")
    assert (none.returncode, none.stdout, none.stderr) == (1, "", "edge: no unit contains no such unit\n")


def test_a_missing_file_is_2(edge, tmp_path):
    done = edge("mapping", "check", tmp_path / "none.toml")
    assert done.returncode == 2
    assert "cannot be read: No such file or directory" in done.stderr


def test_message_is_mapped_by_an_included_pack(edge):
    done = edge("mapping", "test", "zigbee2mqtt/kitchen", '{"temperature": 21.5}')
    assert (done.returncode, done.stderr) == (0, "")
    assert "* zigbee2mqtt/device" in done.stdout
    assert "value        21.5" in done.stdout


def test_message_is_mapped_by_a_given_file(edge, file):
    done = edge("mapping", "test", "greenhouse/7/temp", '{"celsius": 21.5}', "--file", file, "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    (reading,) = found["readings"]
    assert (reading["observation"], reading["value"]) == (OBSERVATION, "21.5")
    assert found["problems"] == []


def test_files_of_the_data_directory_apply(edge, file, tmp_path):
    (tmp_path / "data" / "mappings").mkdir(parents=True)
    file.rename(tmp_path / "data" / "mappings" / "greenhouse.toml")
    arguments = ["mapping", "test", "greenhouse/7/temp", "-", "--data-dir", tmp_path / "data"]
    assert OBSERVATION in edge(*arguments, input='{"celsius": 1}').stdout


def test_bad_value_is_exit_code_1_with_the_reason(edge, file):
    done = edge("mapping", "test", "greenhouse/7/temp", '{"celsius": "warm"}', "--file", file)
    assert done.returncode == 1
    assert '"warm" is not a number' in done.stdout


def test_an_unmapped_topic_is_1_and_gets_a_mapping_that_works(edge, tmp_path):
    done = edge("mapping", "test", "garden/shed", '{"celsius": 21.5}')
    assert done.returncode == 1
    assert done.stderr.startswith("no mapping matches garden/shed\n")
    assert done.stdout.startswith("[[mapping]]\n")
    file = tmp_path / "garden.toml"
    file.write_text(done.stdout)
    assert edge("mapping", "check", file).returncode == 0
    assert "21.5" in edge("mapping", "test", "garden/shed", '{"celsius": 21.5}', "-f", file).stdout


def test_a_message_without_a_value_is_1_with_the_reason(edge, file):
    done = edge("mapping", "test", "greenhouse/7/temp", '{"celsius": null}', "--file", file)
    assert done.returncode == 1
    assert "no observation\n  greenhouse/greenhouse/{bed}/temp, celsius: it is null\n" in done.stdout
    as_json = edge("mapping", "test", "greenhouse/7/temp", '{"celsius": null}', "--file", file, "--json")
    assert json.loads(as_json.stdout)["reasons"] == ["greenhouse/greenhouse/{bed}/temp, celsius: it is null"]
    ignored = edge("mapping", "test", "zigbee2mqtt/bridge/logging", "{}")
    assert (ignored.returncode, "ignores the message" in ignored.stdout) == (0, True)


def test_a_path_without_a_value_is_named_with_the_nearest_member(edge, file):
    file.write_text(
        """
[[mapping]]
topic = "field/{id}"
payload = "json"
observation = "edge:field-{id}/{member}"
readings = [
  { path = "object.temp_soil" },
  { path = "object.moisture" },
  { path = "object.zz" },
  { path = "battery", default = 0 },
]
"""
    )
    message = ("mapping", "test", "field/1", '{"object": {"temp_SOIL": 9, "moisture": 3}}', "-f", file)
    done = edge(*message)
    assert (done.returncode, done.stdout.count("  value ")) == (0, 2)
    at = "edge: greenhouse/field/{id}: readings"
    assert done.stderr == (
        f'{at}[0]: nothing at "object.temp_soil"; did you mean "temp_SOIL"?\n{at}[2]: nothing at "object.zz"\n'
    )
    assert len(json.loads(edge(*message, "--json").stdout)["missing"]) == 2


@pytest.mark.parametrize(("length", "found"), [(60, True), (180, False)])
@pytest.mark.parametrize("member", [b'"celsius": 1, ', b""])
def test_similar_members_are_sought_with_bounded_effort(monkeypatch, member, length, found):
    paths = ["celsius", *(f"{number:03}{'ab' * (length // 2)}" for number in range(100))]
    readings = ", ".join(f'{{ path = "{path}", observation = "edge:{path}" }}' for path in paths)
    mapper = Mapper([load_pack(f'[[mapping]]\ntopic = "t"\npayload = "json"\nreadings = [{readings}]', "f")])
    effort = 0

    def compare(matcher, name, counted=SequenceMatcher.set_seq1):
        nonlocal effort
        effort += len(name) * len(matcher.b or "")
        counted(matcher, name)

    monkeypatch.setattr(SequenceMatcher, "set_seq1", compare)
    names = ", ".join(f'"{number:03}{"ba" * (length // 2)}": 2' for number in range(1000))
    explanation = explain(mapper, "t", b"{%b%b}" % (member, names.encode()))
    lines = explanation.missing or explanation.reasons
    assert len(lines) >= 100
    assert any("did you mean" in line for line in lines) == found
    assert effort <= 500_000


def test_a_new_mapping_generalises_a_message(edge, tmp_path):
    """The topic and payload of a LoRaWAN network server (ChirpStack 4, its documentation of events)."""
    payload = {
        "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
        "time": "2022-07-18T09:34:15.775023242+00:00",
        "deviceInfo": {"tenantName": "ChirpStack", "deviceName": "Test device", "devEui": "0101010101010101"},
        "devAddr": "00189440",
        "dr": 1,
        "fPort": 1,
        "data": "qg==",
        "object": {"temperature": 21.5, "humidity": 40, "battery": 3.1},
        "rxInfo": [{"gatewayId": "0016c001f153a14c", "rssi": -36, "snr": 10.5}],
    }
    topic = "application/17c82e96-be03-4f38-aef3-f83d48582d97/device/0101010101010101/event/up"
    done = edge("mapping", "new", topic, json.dumps(payload))
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) <= 12
    assert "value        21.5" in done.stderr
    file = tmp_path / "lora.toml"
    file.write_text(done.stdout)
    assert edge("mapping", "check", file).stderr == ""
    other = topic.replace("0101010101010101", "0202020202020202")
    tried = edge("mapping", "test", other, json.dumps(payload), "-f", file, "--json")
    readings = json.loads(tried.stdout)["readings"]
    units = [reading["unit"].rpartition("#")[2] for reading in readings]
    assert units == ["DegreeCelsius", "Percent", "Volt"]
    assert all("0202020202020202" in reading["observation"] for reading in readings)
    assert {reading["time"] for reading in readings} == {"2022-07-18T09:34:15.775023+00:00"}


def test_a_new_mapping_is_saved_and_replaces_none(edge, tmp_path):
    saved = edge("mapping", "new", "garden/bed1/state", '{"celsius": 21.5}', "--save", "--data-dir", tmp_path)
    file = tmp_path / "mappings/garden-bed1-state.toml"
    assert (saved.returncode, saved.stdout) == (0, f"{file}\n")
    # A second device of that kind has the mapping already.
    again = edge("mapping", "new", "garden/bed2/state", '{"celsius": 9}', "--save", "--data-dir", tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert "garden-bed1-state/garden/{garden}/state maps this message already" in again.stderr
    file.write_text("# mine\n")
    again = edge("mapping", "new", "garden/bed1/state", '{"celsius": 70}', "--save", "--data-dir", tmp_path)
    assert (again.returncode, again.stdout) == (1, "")
    assert f"{file} exists" in again.stderr
    assert file.read_text() == "# mine\n"


@pytest.mark.parametrize("payload", ["", "{}", "[]"])
def test_no_mapping_is_made_from_a_message_without_a_value(edge, payload):
    done = edge("mapping", "new", "garden/bed1", payload)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no value" in done.stderr


@pytest.mark.parametrize("topic", ["", "a/+", "a/#"])
def test_no_mapping_is_made_for_a_topic_that_no_message_has(edge, topic):
    assert edge("mapping", "new", topic, "5").returncode == 2


def test_control_characters_do_not_reach_the_terminal(edge, file):
    done = edge("mapping", "test", "greenhouse/\x1b[31m/temp", '{"celsius": 21.5}', "--file", file)
    assert "\x1b" not in done.stdout + done.stderr


def test_the_schema(edge):
    assert "mapping" in json.loads(edge("mapping", "schema").stdout)["properties"]


ACTUATOR = """
[[actuator]]
name = "lamps"
query = "SELECT ?id ?on { ?lamp <urn:id> ?id ; <urn:on> ?on }"
topic = "lamps/{id|local}/set"
payload = { on = "{on}" }
removed = { payload = "" }
"""


def test_an_actuator_shows_its_messages(edge, file):
    file.write_text(MAPPING + ACTUATOR)
    assert edge("mapping", "check", file).stdout == f"{file}: good, 1 mapping, 1 actuator\n"
    solution = '{"id": "<urn:lamp:7>", "on": true}'
    done = edge("mapping", "test", "--actuator", "lamps", solution, "--file", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("greenhouse/lamps (lamps/{id|local}/set)\n")
    assert 'payload  {"on":true}' in done.stdout
    done = edge("mapping", "test", "--actuator", "lamps", solution, "--file", file, "--json")
    found = json.loads(done.stdout)
    assert found["added"] == {"topic": "lamps/7/set", "payload": '{"on":true}', "qos": 1, "retain": False}
    assert found["removed"]["payload"] == ""


def test_an_actuator_reports_the_problem_of_a_solution(edge, file):
    file.write_text(ACTUATOR)
    done = edge("mapping", "test", "--actuator", "lamps", '{"id": "a+b", "on": 1.5}', "--file", file)
    assert (done.returncode, done.stderr) == (1, "")
    assert "?id holds the wildcard +" in done.stdout
    for solution in ("[]", "{", '{"id": []}'):
        assert edge("mapping", "test", "--actuator", "lamps", solution, "--file", file).returncode == 2
    done = edge("mapping", "test", "--actuator", "lamp", "{}", "--file", file)
    assert done.returncode == 2
    assert "greenhouse/lamps" in done.stderr


def test_a_payload_of_bytes(edge, tmp_path):
    file = tmp_path / "meter.toml"
    file.write_text(
        '[[serial]]\nname = "meter"\ndevice = "/dev/ttyUSB0"\n\n[[mapping]]\ntopic = "serial/meter"\n'
        'observation = "urn:power"\npath = "power"\nfields = [{ name = "kind", type = "u8" }, '
        '{ name = "power", type = "u16" }]\n\n[[actuator]]\nname = "limit"\n'
        'query = "SELECT ?w { <urn:a> <urn:b> ?w }"\ntopic = "serial/meter"\nencoding = "hex"\npayload = "02 {w|u16}"\n'
    )
    assert edge("mapping", "check", file).stdout == f"{file}: good, 1 mapping, 1 actuator, 1 serial port\n"
    done = edge("mapping", "test", "serial/meter", "01 00 D7", "--hex", "--file", file)
    assert done.returncode == 0
    assert "value        215" in done.stdout
    assert edge("mapping", "test", "serial/meter", "01 00", "--hex", "--file", file).returncode == 1
    wrong = edge("mapping", "test", "serial/meter", "one", "--hex", "--file", file)
    assert wrong.returncode == 2
    assert "not hexadecimal" in wrong.stderr
    done = edge("mapping", "test", "--actuator", "limit", '{"w": 300}', "--file", file)
    assert "02 01 2c" in done.stdout


def test_the_messages_that_set_values_are_shown(edge, tmp_path):
    file = tmp_path / "valve.toml"
    file.write_text(
        '[[mapping]]\ntopic = "valve/{id}"\npayload = "json"\nobservation = "edge:{id}/{member}"\nreadings = [\n'
        '  { path = "open", datatype = "boolean", set = { topic = "valve/{id}/set",'
        ' payload = { data = "03 {value|u8}" }, encode = { path = "data", encoding = "base64" } } },\n'
        '  { path = "level", set = { topic = "valve/{id}/level", min = 0, max = 10 } },\n'
        '  { path = "battery" },\n]\n'
    )
    message = ("mapping", "test", "valve/7", '{"open": false, "level": 3, "battery": 90}', "-f", file)
    done = edge(*message, "--set", "on")
    assert done.returncode == 1  # one of the values refuses it
    assert done.stdout.endswith(
        'set urn:sepa-edge:7/open:\n  topic        valve/7/set\n  payload      {"data":"AwE="}\n\n'
        'set urn:sepa-edge:7/level:\n  problem      "on" is not a number\n'
    )
    found = json.loads(edge(*message, "--set", "5", "--json").stdout)["set"]
    assert found[1] == {"observation": "urn:sepa-edge:7/level", "topic": "valve/7/level", "payload": "5"}
    assert "problem" in found[0]
    wrong = edge(*message, "--set", "perhaps")
    assert wrong.returncode == 1
    switch = ("mapping", "test", "valve/7", '{"open": false}', "-f", file, "--set")
    assert edge(*switch, "ON").returncode == 0
    assert "is not a number" in edge(*message, "--set", "1e999999999").stdout
    none = edge("mapping", "test", "valve/7", '{"battery": 90}', "-f", file, "--set", "1")
    assert (none.returncode, none.stderr) == (
        1,
        'edge: valve/valve/{id}: readings[0]: nothing at "open"\n'
        'edge: valve/valve/{id}: readings[1]: nothing at "level"\n'
        "edge: no value of this message can be set; its mapping has no `set`\n",
    )
    assert "edge: no value" not in edge(*message).stderr


def test_a_choice_may_be_written_in_another_case_as_with_edge_set(edge, tmp_path):
    file = tmp_path / "heating.toml"
    file.write_text(
        '[[mapping]]\ntopic = "heating/{id}"\nobservation = "edge:{id}"\ndatatype = "string"\n'
        'set = { topic = "heating/{id}/set", values = { Auto = "1", off = "0" } }\n'
    )
    done = edge("mapping", "test", "heating/7", "off", "-f", file, "--set", "AUTO", "--json")
    assert done.returncode == 0
    assert [each["payload"] for each in json.loads(done.stdout)["set"]] == ["1"]
