"""Readings that are events: each counts, unless a number in the payload says that it is the one before."""

import pytest

from edge.mapping import Event, Mapper, builtin_names, load_builtin, load_pack
from edge.mapping.errors import MappingError

BELL = """
[[mapping]]
topic = "bell/{door}"
observation = "http://example.org/{door}"
datatype = "string"
"""


def events(text: str, topic: str, payload: str) -> list[str | None]:
    """Return what identifies the event of each reading; None: it is a state."""
    return [
        None if reading.event is None else reading.event.id
        for reading in Mapper([load_pack(text, "own")]).map(topic, payload.encode()).readings
    ]


@pytest.mark.parametrize(
    ("keys", "payload", "event"),
    [
        ("", "ring", None),
        ("event = false", "ring", None),
        ("event = true", "ring", ""),
        ('path = "a"\nevent = { id = "n" }', '{"a": "ring", "n": 7}', "7"),
        ('path = "a"\nevent = { id = "n" }', '{"a": "ring", "n": "x"}', "x"),
        ('path = "b.a"\nevent = { id = "@.n" }', '{"b": {"a": "ring", "n": 7}, "n": 8}', "7"),
        ('path = "a"\neach = "b[*]"\nevent = { id = "$.n" }', '{"b": [{"a": "ring", "n": 7}], "n": 8}', "8"),
    ],
)
def test_an_event_is_identified_by_its_id(keys, payload, event):
    assert events(BELL + keys, "bell/front", payload) == [event]


@pytest.mark.parametrize("payload", ['{"a": "ring"}', '{"a": "ring", "n": null}', '{"a": "ring", "n": {}}'])
def test_an_event_without_its_id_counts_and_is_a_problem(payload):
    mapped = Mapper([load_pack(BELL + 'path = "a"\nevent = { id = "n" }', "own")]).map("bell/front", payload.encode())
    assert [reading.event for reading in mapped.readings] == [Event()]
    assert [(problem.reason, problem.kept) for problem in mapped.problems] == [('the payload has no id at "n"', True)]


@pytest.mark.parametrize(
    ("keys", "payload", "event", "text"),
    [
        ("event = { within = 2 }", "ring", Event(within=2.0), "each message, once within 2 s"),
        ('path = "a"\nevent = { within = 0.5 }', '{"a": "ring"}', Event(within=0.5), "each message, once within 0.5 s"),
        ('path = "a"\nevent = { id = "n", within = 2 }', '{"a": "r", "n": 7}', Event("7", 2.0), "7, once within 2 s"),
        ('path = "a"\nevent = { id = "n" }', '{"a": "r", "n": 7}', Event("7"), "7"),
        ("event = true", "ring", Event(), "each message"),
    ],
)
def test_an_event_may_have_a_time_within_which_it_counts_once(keys, payload, event, text):
    (reading,) = Mapper([load_pack(BELL + keys, "own")]).map("bell/front", payload.encode()).readings
    assert (reading.event, str(reading.event)) == (event, text)


def test_the_defaults_of_a_file_and_the_readings_of_a_mapping_may_say_it():
    text = '[defaults]\nevent = true\n[[mapping]]\ntopic = "t"\nobservation = "http://example.org/{member}"\n'
    text += 'readings = [{ path = "a" }, { path = "b", event = false }]'
    assert events(text, "t", '{"a": 1, "b": 2}') == ["", None]


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ('event = { id = "n" }', "has no paths"),
        ('path = "a"\nevent = { id = "n[" }', "event.id"),
        ('path = "a"\nevent = {}', "event.id"),
        ('path = "a"\nevent = "n"', "event"),
        ('path = "a"\nevent = { id = "n", withn = 3 }', "withn"),
        ("event = { within = 0 }", "event.within"),
        ("event = { within = 3601 }", "event.within"),
    ],
)
def test_a_wrong_event_is_a_fault_of_the_file(keys, fault):
    with pytest.raises(MappingError) as raised:
        load_pack(BELL + keys, "own")
    assert fault in str(raised.value)
    assert str(raised.value).startswith(("own:6:", "own:7:"))


@pytest.mark.parametrize(
    ("topic", "payload", "event"),
    [
        ("zigbee2mqtt/remote", '{"action": "single", "battery": 90}', ""),
        ("shellies/x/input_event/0", '{"event": "S", "event_cnt": 6}', "6"),
        (
            "shellyplus1-x/events/rpc",
            '{"method": "NotifyEvent", "params": {"events": [{"component": "input:0", "event": "btn_up", "ts": 1.5}]}}',
            "1.5",
        ),
    ],
)
def test_the_packs_know_buttons(topic, payload, event):
    mapper = Mapper(load_builtin(name) for name in builtin_names())
    assert Event(event) in [reading.event for reading in mapper.map(topic, payload.encode()).readings]


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        ("zigbee2mqtt/remote", '{"action": ""}'),
        ("shellies/x/input_event/0", '{"event": "", "event_cnt": 6}'),
        (
            "shellyplus1-x/events/rpc",
            '{"method": "NotifyEvent", "params": {"events": [{"component": "input:0", "event": "config_changed"}]}}',
        ),
    ],
)
def test_other_messages_of_these_devices_are_no_events(topic, payload):
    mapped = Mapper(load_builtin(name) for name in builtin_names()).map(topic, payload.encode())
    assert mapped.matched
    assert [reading for reading in mapped.readings if reading.event is not None] == []
