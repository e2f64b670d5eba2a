"""The look-up of rules by member names finds the same values as trying the path of each rule, in the same order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import Mapper, load_pack, member_paths
from edge.mapping.jsonpath import JsonPath, parse_path
from edge.mapping.member_paths import MemberPath, MemberPaths

NAMES = ("a", "b", "ab", "a b", "")
STEPS = ("a", "b", "{x}", "{y:a*}", "{z:?|ab}", "*", "p{q}", '["a b"]', "[0]", "[*]")
documents = st.recursive(
    st.none() | st.integers(0, 9),
    lambda values: st.dictionaries(st.sampled_from((*NAMES, "pa", "pb")), values) | st.lists(values, max_size=3),
    max_leaves=12,
)


@st.composite
def paths(draw):
    """Draw paths with distinct captures."""
    steps = draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=3, unique=True))
    return parse_path("".join(step if step.startswith("[") else f".{step}" for step in steps).removeprefix("."))


def walked(rules: list[tuple[JsonPath, bool]], document: object) -> list[tuple[int, object]]:
    """Try the path of each rule; a wild one skips members that an earlier rule took."""
    found: list[tuple[int, object]] = []
    taken: set[object] = set()
    for number, (path, always) in enumerate(rules):
        for hit in path.walk(document):
            place = (id(hit.parent), hit.key)
            if path.wild and place in taken:
                continue
            found.append((number, (place, hit.captures)))
            if always:
                taken.add(place)
    return found


@pytest.mark.parametrize("few", [0, 8])
@given(st.lists(st.tuples(paths(), st.booleans()), max_size=6), st.lists(documents, min_size=1, max_size=4))
def test_the_look_up_finds_the_targets_of_the_paths(few, rules, messages):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(member_paths, "_FEW", few)
        look_up = MemberPaths([MemberPath(n, path, always) for n, (path, always) in enumerate(rules)], frozenset())
    for document in [*messages, *messages]:
        taken: set[object] = set()
        found = []
        for number, hits in look_up.by_rule(document, taken):
            path, always = rules[number]
            for hit in hits:
                place = (id(hit.parent), hit.key)
                if path.wild and place in taken:
                    continue
                found.append((number, (place, hit.captures)))
                if always:
                    taken.add(place)
        assert found == walked(rules, document)


def test_a_known_name_is_looked_up_without_trying_the_rules():
    tried = 0

    class Counted(tuple):
        """Steps of a path that count how often one is tried."""

        __slots__ = ()

        def __getitem__(self, at):
            nonlocal tried
            tried += 1
            return super().__getitem__(at)

    rules = []
    for number in range(500):
        path = parse_path(f"{{key:name{number}|other{number}}}")
        object.__setattr__(path, "steps", Counted(path.steps))
        rules.append(MemberPath(number, path, always=True))
    look_up = MemberPaths(rules, frozenset())
    document = {"name7": 1, "unknown": 2}
    first = [number for number, _ in look_up.by_rule(document, ())]
    after_the_first = tried
    assert [number for number, _ in look_up.by_rule(document, ())] == first == [7]
    assert after_the_first > 500
    assert tried == after_the_first


@pytest.mark.parametrize("length", [6, 200])
def test_each_fixed_name_of_many_rules_is_tried_once(length):
    """More names than a tree remembers of messages, and long ones."""
    tried = 0

    class Counted(JsonPath):
        """A path that counts how often it is tried."""

        def captured(self, at, key, captures):
            nonlocal tried
            tried += 1
            return super().captured(at, key, captures)

    names = [f"n{number}".ljust(length, "_") for number in range(3000)]
    rules = []
    for number, name in enumerate(names):
        path = parse_path(f'metrics["{name}"].value')
        path = Counted(path.text, path.steps, path.names, path.relative, path.absolute)
        rules.append(MemberPath(number, path, always=True))
    rules.append(MemberPath(len(names), parse_path("{other}.x"), always=True))
    look_up = MemberPaths(rules, frozenset())
    document = {"metrics": {name: {"value": number} for number, name in enumerate(names)}}

    def values(document: object) -> list[object]:
        return [hit.value for _, hits in look_up.by_rule(document, ()) for hit in hits]

    assert values(document) == list(range(3000))
    assert tried == 9000
    for number in range(3000):
        assert values({f"o{number}": {"x": number}}) == [number]
    assert values(document) == list(range(3000))
    assert tried == 9000


def test_names_that_change_with_every_message_are_forgotten():
    text = """
[[mapping]]
topic = "t"
observation = "edge:{key}"
readings = [{ path = "x.{key}" }, { path = "{key}" }, { path = "{other}.y", observation = "edge:{other}" }]
"""
    mapper = Mapper([load_pack(text, "names.toml")])
    for number in range(5000):
        message = json.dumps({f"n{number}": 1, "x": {f"m{number}": 2}, "long" * 100: 3}).encode()
        assert [reading.value for reading in mapper.map("t", message).readings] == ["2", "1", "3"]
    (mapping,) = mapper.packs[0].mappings
    assert mapping.members.size <= member_paths._NODES


def test_a_path_of_fixed_names_remembers_no_names():
    look_up = MemberPaths([MemberPath(0, parse_path("a.b"), always=True)], frozenset())
    document = {**{f"n{number}": {"b": 1} for number in range(100)}, "a": {"b": 2}}
    assert [(number, [hit.value for hit in hits]) for number, hits in look_up.by_rule(document, ())] == [(0, [2])]
    assert look_up.size == 0
