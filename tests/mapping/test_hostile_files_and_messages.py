"""Hostile mapping files and messages: each file is used or gives a `MappingError`, and the work has a bound."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.mapping import Mapper, MappingError, builtin_names, load_pack, pack, payload_leaves, suggest
from edge.mapping.partial_load import MOST_FAULTS

FOLDER = Path(pack.__file__).parents[1] / "device_mappings"
PACKS = {name: (FOLDER / f"{name}.toml").read_text("utf-8") for name in builtin_names()}
HEAD = '[[mapping]]\ntopic = "a/{line}"\nobservation = "edge:{line}"\n'
ACTUATOR = '[[actuator]]\nquery = "SELECT ?x { ?x ?y ?z }"\ntopic = "a"\npayload = "{x}"\n'
PIECES = [
    "5",
    "[5]",
    "{}",
    '"x"',
    "[[1979-05-27]]",
    "true",
    "s",
    "[",
    "]",
    "x = 5\n",
    "[[mappings]]\n",
    "[[serials]]\n",
]


def faults(text):
    try:
        load_pack(text, "my")
    except MappingError as error:
        return [(each.key, each.reason) for each in error.faults]
    return []


@pytest.mark.parametrize(
    ("text", "key", "wrong"),
    [
        ("[[mappings]]\ntopic = 5\n", "mappings", "topic"),
        ("mappings = [5]\n", "mappings", "mapping[0]"),
        ("[[serials]]\nname = 5\n", "serials", "name"),
        ("[[actuators]]\nquery = 5\n", "actuators", "query"),
    ],
)
def test_a_misspelt_table_with_a_wrong_type_has_both_faults(text, key, wrong):
    assert {key, wrong} <= {found for found, _ in faults(text)}


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(PACKS)),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(PIECES)), max_size=4),
    lists=st.sampled_from(["mapping", "mappings", "actuators", "serials"]),
)
def test_a_changed_pack_is_used_or_refused(name, changes, lists):
    text = PACKS[name].replace("[[mapping]]", f"[[{lists}]]", 1 if changes else -1)
    for place, length, piece in changes:
        start = place % len(text)
        text = text[:start] + piece + text[start + length :]
    assert not any("cannot be checked" in reason for _, reason in faults(text))


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(PACKS)),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(PIECES[:6])), min_size=1, max_size=3),
    lists=st.sampled_from(["mapping", "mappings", "actuators", "serials"]),
)
def test_a_pack_with_other_values_is_used_or_refused(name, changes, lists):
    lines = PACKS[name].replace("[[mapping]]", f"[[{lists}]]").splitlines()
    places = [number for number, line in enumerate(lines) if " = " in line and not line.startswith(("#", " "))]
    for place, piece in changes:
        number = places[place % len(places)]
        lines[number] = f"{lines[number].partition(' = ')[0]} = {piece}"
    assert not any("cannot be checked" in reason for _, reason in faults("\n".join(lines)))


def test_a_defect_of_the_checks_is_a_fault_of_the_file(monkeypatch):
    monkeypatch.setattr(pack, "namespace_table", lambda *_: {}["x"])
    assert faults(HEAD) == [(None, "The file cannot be checked: KeyError: 'x'.")]


def test_two_actuators_with_wrong_names_have_no_equal_names():
    text = ACTUATOR + "name = 5\n" + ACTUATOR + "name = 6\n"
    assert [key for key, _ in faults(text)] == ["name", "name"]


@pytest.mark.parametrize("line", ['path = "t"\nscale = "x"\n', 'path = "t"\nunit = "unit:Vlot"\n'])
def test_a_file_reports_at_most_a_hundred_faults(line):
    found = faults("".join(HEAD.replace("a/", f"a{number}/") + line for number in range(MOST_FAULTS + 20)))
    assert len(found) == MOST_FAULTS + 1
    assert found[-1] == (None, "Only the first 100 faults are reported.")
    exact = faults("".join(HEAD.replace("a/", f"a{number}/") + line for number in range(MOST_FAULTS)))
    assert len(exact) == MOST_FAULTS
    assert None not in {key for key, _ in exact}


def test_a_file_of_the_form_of_the_paper_reports_at_most_a_hundred_faults():
    entries = {f"topic{number}": 5 for number in range(MOST_FAULTS + 20)}
    assert len(faults(json.dumps({"semantic-mappings": entries}))) == MOST_FAULTS + 1


def test_a_file_reports_at_most_a_hundred_warnings():
    text = "".join(
        HEAD.replace("line", f"line{number}") + 'path = "t"\nunits = { a = "unit:Volt" }\n'
        for number in range(MOST_FAULTS + 20)
    )
    warnings = load_pack(text, "my").warnings
    assert (len(warnings), warnings[-1].reason) == (MOST_FAULTS + 1, "Only the first 100 faults are reported.")


EXPONENTS = ["1e999999999", '"1e1000000"', "1e-999999999", "0e999999999", '"0e-99999"', "1e99999999999999999999999"]


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("key", ["scale_from", "scale10_from"])
def test_a_hostile_exponent_gives_no_long_value(exponent, key):
    mapper = Mapper([load_pack(HEAD + f'path = "value"\n{key} = "@.e"\n', "my")])
    readings = mapper.map("a/b", f'{{"value": 1, "e": {exponent}}}'.encode()).readings
    assert [each.value for each in readings] in ([], ["0"] if key == "scale_from" else ["1"])
    assert "scale_from" not in (suggest("a/b1/state", f'{{"value": 1, "scale": {exponent}}}'.encode()) or "")


@pytest.mark.parametrize("keys", ["", "scale = 2", "max = 5", 'datatype = "integer"'])
@pytest.mark.parametrize("value", ["1e-99999999999999999999999", "0e99999999999999999999999"])
def test_a_value_with_a_hostile_exponent_is_refused(value, keys):
    outcome = Mapper([load_pack(HEAD + f'path = "value"\n{keys}\n', "my")]).map("a/b", f'{{"value": {value}}}'.encode())
    assert outcome.readings == ()
    assert "exponent" in str(outcome.problems)


class Taken(set):
    """Words that are taken. Each is looked up, and they are not copied."""

    looks = 0

    def __contains__(self, word):
        self.looks += 1
        return super().__contains__(word)

    def __or__(self, other):
        raise AssertionError("copied")


def test_words_for_many_odd_names_take_little_work():
    taken = Taken()
    for number in range(2000):
        taken.add(payload_leaves.free_word("!#$%" * (number + 1 if number < 20 else 1) + f"!{number}", taken))
    assert len(taken) == 2000
    assert taken.looks <= 3 * len(taken)


def test_odd_names_have_words_of_their_own():
    keys = ["a b", "a-b", "a-b-", "a%20b", "!", "!!", "é", "a!b"]
    words = [word for _, word in payload_leaves._words(keys)]
    assert words == ["a-b", "a-b-", "a-b--", "a-20b", "%21", "%21%21", "%C3%A9", "a%21b"]


@pytest.mark.parametrize("regex", ["a/[[]+", "a/[^[]+", "a/[+--]", "a/[a||b]", "a/[a&&b]", "a/[a~~b]"])
def test_a_set_that_a_later_python_may_read_in_another_way_can_be_used(regex):
    assert faults(HEAD + f"topic_regex = '{regex}'\n") == []
