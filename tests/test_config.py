"""Settings: precedence, and messages for invalid values."""

import json
from pathlib import Path

import pytest

from edge.adapters.paho_client import read_password
from edge.config import ConfigurationError, Settings, load
from edge.config.former_keys import REMOVED, RENAMED, REPLACED
from edge.config.problem_messages import about, fields
from edge.config.profiles import PROFILES
from edge.config.reference import filled_in, schema, to_toml

ROOT = Path(__file__).resolve().parent.parent


def written(tmp_path, text):
    file = tmp_path / "edge.toml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(file=None, **environ):
    with pytest.raises(ConfigurationError) as caught:
        load(file, environ=environ)
    assert all("\n" not in line for line in caught.value.problems)
    return list(caught.value.problems)


def test_no_file_at_all_gives_the_documented_ports():
    settings = load(environ={}).settings
    assert (settings.http.port, settings.ws.port, settings.mqtt.port) == (8000, 9000, 1883)
    assert {settings.http.host, settings.ws.host, settings.mqtt.host} == {"127.0.0.1"}


def test_environment_beats_file_and_command_line_beats_both(tmp_path):
    file = written(tmp_path, 'data_dir = "a"\n[http]\nport = 1\nmax_message = 2048\n[host]\ninterval = 3\n')
    environ = {"EDGE__HTTP__PORT": "0", "EDGE__DATA_DIR": "/b", "EDGE_OTHER": "x", "PATH": "/bin"}
    loaded = load(file, environ=environ)
    assert (loaded.settings.http.port, loaded.settings.http.max_message) == (0, 2048)
    assert loaded.settings.data_dir == Path("/b")
    assert loaded.settings.host.interval == 3.0
    assert loaded.sources["http.port"] == "$EDGE__HTTP__PORT"
    assert loaded.sources["http.max_message"] == str(file)
    assert load(file, environ=environ, data_dir=Path("/c")).settings.data_dir == Path("/c")


def test_relative_paths_belong_to_the_file_they_stand_in(tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("open sesame\nsecond line\n")
    file = written(tmp_path, 'data_dir = "data"\n[mqtt]\nusername = "u"\npassword_file = "secret"\n')
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = load(file, environ={"EDGE__MAPPINGS__DIR": "maps"}).settings
    assert settings.data_dir == tmp_path / "data"
    assert settings.mappings_dir == elsewhere / "maps"
    assert read_password(settings.mqtt) == "open sesame"


def test_own_mappings_are_in_the_data_directory_by_default():
    assert load(environ={}, data_dir=Path("/d")).settings.mappings_dir == Path("/d/mappings")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ".local/state/sepa-edge"),
        ({"XDG_STATE_HOME": "/state"}, "/state/sepa-edge"),
        ({"STATE_DIRECTORY": "/var/lib/edge", "XDG_STATE_HOME": "/state"}, "/var/lib/edge"),
    ],
)
def test_default_data_directory(monkeypatch, environ, expected):
    for name in ("STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert str(load(environ={}).settings.data_dir).endswith(expected)


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("EDGE__MQTT__TOPICS", "a/#, b", ("a/#", "b")),
        ("EDGE__MQTT__TOPICS", '["a,b"]', ("a,b",)),
        ("EDGE__HTTP__CORS_ORIGINS", "", ()),
        ("EDGE__HOST__ENABLED", "off", False),
        ("EDGE__ENGINE__FLUSH_INTERVAL", "2", 2.0),
        ("EDGE__MQTT__CA_FILE", "", None),
    ],
)
def test_values_in_variables(variable, text, value):
    section, key = variable.removeprefix("EDGE__").lower().split("__")
    assert getattr(getattr(load(environ={variable: text}).settings, section), key) == value


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("[http]\nprot = 1", 'http.prot: no such key; did you mean "http.port"?'),
        ("[htp]\nport = 1", 'htp: no such key; did you mean "http"?'),
        ("port = 1", 'port: no such key here; did you mean "http.port" or "ws.port" or "mqtt.port" or "coap.port"?'),
        ("[log]\nxyzzy = 1", "log.xyzzy: no such key; the keys of [log] are level, format"),
        ("http = 1", "http: must be a table: [http]"),
        ("[http]\nport = 70000", "http.port: 70000 is not allowed: must be a whole number from 0 to 65535"),
        ("[http]\nport = true", "http.port: true is not allowed: must be a whole number from 0 to 65535"),
        ('[http]\nport = "80"', 'http.port: "80" is not allowed: must be a whole number from 0 to 65535'),
        (
            "[engine]\nquery_timeout = nan",
            "engine.query_timeout: nan is not allowed: must be a number from 0.01 to 86400 (s)",
        ),
        (
            "[limits]\nmax_client_bytes = 1",
            "limits.max_client_bytes: 1 is not allowed: must be a whole number of at least 1048576 (bytes)",
        ),
        (
            '[engine]\ndurability = "never"',
            'engine.durability: "never" is not allowed: must be one of "commit", "interval"',
        ),
        ('[mqtt]\ntopics = "a"', 'mqtt.topics: "a" is not allowed: must be a list of texts'),
        ("[mqtt]\ntopics = [1]", "mqtt.topics: 1 is not allowed: must be a list of texts"),
        ("[mqtt]\npassword = 12345", "mqtt.password: this value is not allowed: must be a text"),
        (
            '[mappings]\npacks = ["tasmota", "nuki"]',
            'mappings.packs: "nuki" is not a mapping pack; the packs are '
            "zigbee2mqtt, tasmota, shelly, esphome, senml, pepoli, "
            "chirpstack, thethingsstack, openmqttgateway, rtl_433, rtl_433_devices",
        ),
        (
            '[issuer]\nurl = "http://auth.example.org"',
            'issuer.url: "http://auth.example.org" is not encrypted: use https, or http on this machine',
        ),
        (
            '[issuer]\nurl = "https://auth.example.org/a b"',
            'issuer.url: "https://auth.example.org/a b" is not a URL such as https://auth.example.org/realms/home',
        ),
        (
            '[issuer]\njwks_url = "file:///etc/passwd"',
            'issuer.jwks_url: "file:///etc/passwd" is not a URL such as https://auth.example.org/realms/home',
        ),
        (
            '[issuer]\nalgorithms = ["HS256"]',
            'issuer.algorithms: "HS256" is not allowed: must be a list of RS256, RS384, RS512, PS256, PS384, PS512, '
            "ES256, ES384, ES512, EdDSA",
        ),
    ],
)
def test_an_error_is_one_line_with_file_key_and_allowed_values(tmp_path, toml, line):
    file = written(tmp_path, toml)
    assert problems(file) == [f"{file}: {line}"]


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        ("EDGE__HTTP__PROT", "1", "no such setting; did you mean EDGE__HTTP__PORT?"),
        ("EDGE__HTTP", "1", "names a section, not a key; EDGE__HTTP__KEY sets a key of it"),
        ("EDGE__QQ__XX__WW", "1", "no such setting; `edge config show` lists the keys"),
        ("EDGE__WS__PORT", "x", '"x" is not allowed: must be a whole number from 0 to 65535'),
        ("EDGE__HOST__ENABLED", "perhaps", '"perhaps" is not allowed: must be true or false'),
    ],
)
def test_a_fault_in_the_environment_names_the_variable(variable, text, line):
    assert problems(**{variable: text}) == [f"{variable}: {line}"]


def test_all_errors_are_reported_at_once(tmp_path):
    file = written(tmp_path, "[http]\nport = -1\nprot = 1\n")
    lines = problems(file, EDGE__WS__PORT="x", EDGE__NOPE="1")
    assert [line.split(": ")[0] for line in lines] == [str(file), str(file), "EDGE__NOPE", "EDGE__WS__PORT"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", ""])
@pytest.mark.parametrize("section", ["http", "ws", "mqtt"])
def test_reachable_addresses_are_refused_with_the_remedy(section, host):
    (line,) = problems(**{f"EDGE__{section.upper()}__HOST": host})
    assert f'"{host}" is not a loopback address, and this port has no security' in line
    assert "security.enabled" in line
    assert "SSH tunnel" in line


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses_are_accepted(host):
    assert load(environ={"EDGE__HTTP__HOST": host}).settings.http.host == host


def test_syntax_errors_have_line_and_column(tmp_path):
    file = written(tmp_path, "[http]\nport = \n")
    (line,) = problems(file)
    assert line.startswith(f"{file}:2:8: not TOML: ")
    (line,) = problems(written(tmp_path, f"[http]\nport = {'1' * 5000}\n"))
    assert line.startswith(f"{file}: not TOML: Exceeds the limit")


def test_a_missing_file_is_reported(tmp_path):
    assert problems(tmp_path / "none.toml") == [
        f"--config: {tmp_path / 'none.toml'} cannot be read: No such file or directory"
    ]


def test_a_binary_file_is_reported(tmp_path):
    file = tmp_path / "edge.toml"
    file.write_bytes(b"\xff\xfe")
    assert problems(file) == [f"--config: {file} cannot be read: it is not UTF-8 text"]


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {"EDGE__MQTT__RECONNECT_MAX": "0.5"},
            "$EDGE__MQTT__RECONNECT_MAX: mqtt.reconnect_max: must not be less than mqtt.reconnect_min (1 s)",
        ),
        (
            {"EDGE__MQTT__PASSWORD": "x"},
            "defaults: mqtt.username: a password without a user name; set mqtt.username",
        ),
        (
            {"EDGE__MQTT__CA_FILE": "/no/such/file"},
            "$EDGE__MQTT__CA_FILE: mqtt.ca_file: /no/such/file cannot be read: No such file or directory",
        ),
        (
            {"EDGE__WS__PORT": "8000"},
            "$EDGE__WS__PORT: ws.port: 8000 is http.port as well; give each its own port, or 0 for any free one",
        ),
    ],
)
def test_keys_that_contradict_each_other(environ, line):
    assert problems(**environ) == [line]


@pytest.mark.parametrize("url", ["http://b", "mqtt://", "mqtt://b:x", "mqtt://u:p@b", "b:1883"])
def test_a_broker_is_an_mqtt_url_without_credentials(url):
    (line,) = problems(EDGE__MQTT__BROKER=url)
    assert line.startswith("EDGE__MQTT__BROKER: ")


def test_show_round_trips_and_keeps_secrets(tmp_path):
    environ = {"EDGE__MQTT__USERNAME": "u", "EDGE__MQTT__PASSWORD": "hunter2", "EDGE__MQTT__TOPICS": 'say "hi",ü'}
    loaded = load(environ=environ)
    text = to_toml(loaded.settings, loaded.sources)
    assert "hunter2" not in text
    assert "hunter2" not in repr(loaded.settings)
    assert "# password (set, not shown)" in text
    again = load(written(tmp_path, text), environ={}).settings
    mqtt = loaded.settings.mqtt.model_copy(update={"password": ""})
    assert again == loaded.settings.model_copy(update={"mqtt": mqtt})


def test_the_reference_in_the_documentation_is_that_of_the_code():
    document = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert filled_in(document) == document, "docs/configuration.md is out of date: make docs"


def test_every_key_is_described_and_has_a_sensible_default():
    for key, field in fields().items():
        assert field.description, key
        assert field.description.endswith("."), key
        if field.annotation in (int, float):
            assert any(getattr(item, "ge", None) is not None for item in field.metadata), f"{key} has no bounds"
        assert about(field, "secret") or "password" not in key or key.endswith("_file")
    Settings.model_validate(Settings().model_dump())


def test_the_schema_accepts_the_values_of_the_settings():
    found = schema()
    assert json.dumps(found)
    assert found["additionalProperties"] is False
    assert found["$defs"]["HttpGateSettings"]["properties"]["port"]["maximum"] == 65535


@pytest.mark.parametrize("topic", ["a/#b", "a/#/b", "#/#", "a+/b", "+b", "a/b+", ""])
def test_an_invalid_topic_filter_is_refused(topic):
    with pytest.raises(ConfigurationError, match="must be an MQTT topic filter"):
        load(environ={"EDGE__MQTT__TOPICS": json.dumps([topic])})


@pytest.mark.parametrize("topic", ["#", "a/#", "+", "+/a/+", "a//b", "$SYS/#", "/"])
def test_topic_filters(topic):
    assert load(environ={"EDGE__MQTT__TOPICS": json.dumps([topic])}).settings.mqtt.topics == (topic,)


@pytest.mark.parametrize(
    ("keys", "reported"),
    [
        ("", "its keys are missing"),
        ('jwks_url = "https://a.example/c"\njwks_file = "keys.json"', "one of them"),
        ('jwks_url = "http://127.0.0.1:8080/c"', None),
        ('jwks_file = "keys.json"', None),
    ],
)
def test_the_keys_of_an_issuer_come_from_one_place(tmp_path, keys, reported):
    file = written(tmp_path, f'[issuer]\nurl = "https://a.example"\n{keys}\n')
    found = problems(file) if reported else [load(file, environ={}).settings.issuer.url]
    assert (reported or "https://a.example") in found[0]


def test_a_service_credential_is_not_an_error_for_other_commands(tmp_path, monkeypatch):
    text = '[mqtt]\nusername = "u"\npassword_file = "/run/credentials/edge-test.service/secrets_password"\n'
    file = written(tmp_path, text)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert load(file, environ={}).settings.mqtt.username == "u"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", "/run/credentials/edge-test.service")
    with pytest.raises(ConfigurationError, match="secrets_password cannot be read"):
        load(file, environ={})


# Profiles, the limits of all gates, and keys of earlier versions


def test_the_default_profile_changes_nothing():
    assert load(environ={}).settings == load(environ={"EDGE__PROFILE": "pi-1gb"}, data_dir=None).settings
    assert load(environ={}).derived == {}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_sets_keys_within_their_bounds_that_differ_from_the_default(profile):
    settings = load(environ={"EDGE__PROFILE": profile}).settings
    assert Settings.model_validate(settings.model_dump()) == settings
    for key, value in PROFILES[profile].items():
        section, _, name = key.partition(".")
        assert getattr(getattr(settings, section), name) == value
        assert getattr(getattr(Settings(), section), name) != value, key


def test_a_key_overrides_the_sessions_and_these_the_profile(tmp_path):
    text = 'profile = "pi-512mb"\n[sessions]\nmax_result = 5000\nmax_connections = 7\n[ws]\nmax_result = 6000\n'
    loaded = load(written(tmp_path, text), environ={"EDGE__HTTP__MAX_CONNECTIONS": "9"})
    settings = loaded.settings
    gates = (settings.http, settings.ws, settings.mqtt_gate, settings.coap)
    assert [gate.max_result for gate in gates] == [5000, 6000, 5000, 5000]
    assert [gate.max_connections for gate in gates[:3]] == [9, 7, 7]
    assert settings.mqtt.max_connections == PROFILES["pi-512mb"]["mqtt.max_connections"]
    shown = to_toml(settings, loaded.origins)
    for line in (
        "max_result = 5000  # sessions.max_result",
        f"max_result = 6000  # {tmp_path / 'edge.toml'}",
        "max_connections = 9  # $EDGE__HTTP__MAX_CONNECTIONS",
        'max_queued = 2000  # profile "pi-512mb"',
        "# max_message is not set: see the sections of the gates",
    ):
        assert line in shown.splitlines()


def test_a_limit_of_all_gates_has_the_name_of_each_gates_own():
    gates = [type(getattr(Settings(), name)).model_fields for name in ("http", "ws", "mqtt_gate", "coap")]
    for name in type(Settings().sessions).model_fields:
        assert sum(name in gate for gate in gates) > 1, name


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_renamed_key_is_accepted_with_a_warning(tmp_path, old, new):
    (section, _, name), (_, _, key) = old.partition("."), new.partition(".")
    file, variable = written(tmp_path, f"[{section}]\n{name} = 2000\n"), f"EDGE__{section}__{name}".upper()
    for loaded, place in ((load(file, environ={}), file), (load(environ={variable: "2000"}), variable)):
        assert getattr(getattr(loaded.settings, section), key) == 2000
        assert loaded.warnings == (f"{place}: {old}: the key has a new name; write {new}",)
    both = written(tmp_path, f"[{section}]\n{name} = 2000\n{key} = 3000\n")
    assert getattr(getattr(load(both, environ={}).settings, section), key) == 3000


@pytest.mark.parametrize("key", sorted({*REMOVED, *REPLACED}))
def test_a_removed_key_is_ignored_with_a_warning(tmp_path, key):
    section, _, name = key.partition(".")
    file, variable = written(tmp_path, f"[{section}]\n{name} = 7\n"), f"EDGE__{section}__{name}".upper()
    for loaded, place in ((load(file, environ={}), file), (load(environ={variable: "7"}), variable)):
        assert loaded.settings == Settings(data_dir=loaded.settings.data_dir)
        assert loaded.sources == {}
        (warning,) = loaded.warnings
        assert warning.startswith(f"{place}: {key}: ")
        assert REPLACED.get(key, "no longer a setting") in warning


def test_the_documentation_begins_with_the_basic_keys():
    basic, limits = filled_in("").split("## Limits and details")
    keys = [key for key, field in fields().items() if about(field, "basic")]
    assert 20 <= len(keys) <= 30
    assert [line.split("`")[1] for line in basic.splitlines() if line.startswith("| `")] == keys
    assert "`max_bad_values`" not in limits
