"""Explanations for authors: why a mapping does not apply to a message."""

import pytest

from edge.mapping import Mapper, explain, load_pack, to_json


def whys(text, topic, payload):
    """Return why the mappings of a file do not apply: those of the topic, and those of similar topics."""
    explanation = explain(Mapper([load_pack(text, "f")]), topic, payload)
    candidates = [each for each in explanation.candidates if not each.applied]
    return [each.why for each in (*candidates, *explanation.others)]


@pytest.mark.parametrize(
    ("when", "payload", "why"),
    [
        ('{ path = "t", equals = "th" }', b'{"t": "x"}', 'the payload has "x" at "t", and must have "th"'),
        ('{ path = "t", equals = true }', b'{"t": false}', 'has "false" at "t", and must have "true"'),
        ('{ path = "t", one_of = [1, 2.5] }', b'{"t": 3}', 'has "3" at "t", and must have "1" or "2.5"'),
        ('{ path = "t", exists = true }', b"{}", 'has nothing at "t", and must have a value there'),
        ('{ path = "t", exists = false }', b'{"t": [1]}', 'has a list at "t", and must have nothing there'),
        ('{ path = "t", matches = "^a" }', b'{"t": null}', 'has null at "t", and must have a match of "^a"'),
        ('{ path = "l[*]", equals = 9 }', b'{"l": [1, 2, 3, 4]}', 'has "1", "2", "3", ... at "l[*]"'),
        ('[{ path = "a", exists = true }, { path = "$.b", equals = 1 }]', b'{"a": 1, "b": 2}', 'has "2" at "$.b"'),
        ('{ matches = "hot" }', b"cold", 'the payload is "cold", and must be a match of "hot"'),
        ('{ path = "t", equals = 1 }', b"\xff", "the payload is not UTF-8"),
        ('{ path = "t", equals = 1 }', b"{", "the payload is not JSON"),
    ],
)
def test_a_condition_is_explained_with_the_value(when, payload, why):
    (found,) = whys(f'[[mapping]]\ntopic = "a/b"\nobservation = "edge:a"\nwhen = {when}\n', "a/b", payload)
    assert found.startswith("its condition does not hold: ")
    assert why in found


@pytest.mark.parametrize(
    ("pattern", "topic", "why"),
    [
        ("home/{room}/temperature", "home/hall/temperatur", 'level 3 is "temperatur", and not "temperature"'),
        ("home/{room:north*}/t", "home/south/t", 'level 2 is "south", which {room:north*} does not match'),
        ("home/{room}/t", "home/hall/t/x", "the topic has 4 levels, and not 3"),
        ("home/{room}/t", "home/t", "the topic has 2 levels, and not 3"),
        ("home/{rest...}", "home", "the topic has 1 level, and not 2"),
        ("+/broker/uptime", "$SYS/broker/uptime", '"+" does not match a first level with "$"'),
    ],
)
def test_the_level_that_differs_is_named(pattern, topic, why):
    assert whys(f'[[mapping]]\ntopic = "{pattern}"\nobservation = "edge:a"\n', topic, b"5") == [why]


def test_a_regular_expression_that_does_not_match_is_named():
    text = '[[mapping]]\ntopic_regex = "a/(?P<n>[0-9]+)"\nobservation = "edge:{n}"\n'
    assert whys(text, "a/b", b"5") == ["its `topic_regex` does not match the topic"]
    assert whys(text, "a/1", b"5") == []


def test_the_mapping_that_takes_precedence_is_named():
    text = '[[mapping]]\ntopic = "a/b"\nobservation = "edge:a"\n[[mapping]]\ntopic = "a/+"\nobservation = "edge:b"\n'
    assert whys(text, "a/b", b"5") == ["f/a/b takes precedence"]


def test_conditions_of_readings_are_explained():
    text = '[[mapping]]\ntopic = "a"\nobservation = "edge:{member}"\nreadings = [{ path = "l[*].v", '
    text += 'when = { path = "@.n", equals = "x" } }, { path = "w", when = { path = "n", equals = 1 } }]\n'
    explanation = explain(Mapper([load_pack(text, "f")]), "a", b'{"l": [{"v": 1, "n": "y"}], "w": 2, "n": 3}')
    assert explanation.reasons == (
        "f/a, l[*].v: its condition on the object that contains the value does not hold: "
        'the payload has "y" at "@.n", and must have "x"',
        'f/a, w: its condition does not hold: the payload has "3" at "n", and must have "1"',
    )


def test_programs_get_the_mappings_of_similar_topics():
    mapper = Mapper([load_pack('[[mapping]]\ntopic = "a/b"\nobservation = "edge:a"\n', "f")])
    assert to_json(explain(mapper, "a/c", b"5"))["others"] == [
        {"mapping": "f/a/b", "topic": "a/b", "why": 'level 2 is "c", and not "b"'}
    ]


@pytest.mark.parametrize(
    ("payload", "missing"),
    [
        ('[{"v": 1, "w": 2}]', []),
        ('[{"v": null, "w": 2}]', ["f/m: readings[0]: null is not a value"]),
        (
            '[{"v": 1, "w": 2}, {"v": null}, {"w": null}]',
            [
                'f/m: readings[0]: nothing at "v" in item 2 of 3, counted from 0',
                "f/m: readings[0]: null is not a value in item 1 of 3, counted from 0",
                'f/m: readings[1]: nothing at "w" in item 1 of 3, counted from 0',
                "f/m: readings[1]: null is not a value in item 2 of 3, counted from 0",
            ],
        ),
    ],
)
def test_items_without_a_value_are_named(payload, missing):
    text = '[[mapping]]\nname = "m"\ntopic = "a"\neach = "[*]"\nobservation = "urn:x:{member}"\n'
    text += 'readings = [{ path = "v" }, { path = "w" }]\n'
    mapper = Mapper([load_pack(text, "f")])
    assert to_json(explain(mapper, "a", payload.encode()))["missing"] == missing


def test_no_similar_topic_is_searched_for_a_long_one():
    pattern = "a/" * 200 + "b"
    mapper = Mapper([load_pack(f'[[mapping]]\ntopic = "{pattern}"\nobservation = "urn:o"\n', "f")])
    assert explain(mapper, "a/" * 100 + "b", b"5").nearest == (pattern,)
    assert explain(mapper, "a/" * 200 + "c", b"5").nearest == ()
