"""Profiles as files: JSON and YAML, includes, and the positions of errors."""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from profiles import CHAT, MONITORING, problems, profile

from edge.jsap import Profile, ProfileError, UnknownEntry, check


def places(text, name="p.jsap"):
    """Return line, column and reason of each problem."""
    return [(problem.line, problem.column, problem.reason) for problem in problems(text, name)]


@pytest.mark.parametrize("file", [CHAT, MONITORING])
def test_yaml_and_json_give_the_same_profile(file, tmp_path):
    wanted = Profile.load(file)
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(json.loads(file.read_text()), width=60))
    (tmp_path / "p.jsap").write_text(yaml.safe_dump(json.loads(file.read_text()), allow_unicode=True))
    (tmp_path / "q.jsap").write_text("\ufeff" + file.read_text(), encoding="utf-8")
    for name in ("p.yaml", "p.jsap", "q.jsap"):
        found = Profile.load(tmp_path / name)
        assert (found.updates, found.queries, found.extended) == (wanted.updates, wanted.queries, wanted.extended)
        assert found.mappings == wanted.mappings


def test_scalars_of_yaml_are_those_of_json():
    text = "extended: {a: no, b: 1:30, c: 010, d: 2024-01-01, e: true, f: null, g: 1.5, h: '5', i: -2, j: ~, k: 1e3}"
    assert Profile.parse(text).extended == {
        "a": "no",
        "b": "1:30",
        "c": "010",
        "d": "2024-01-01",
        "e": True,
        "f": None,
        "g": 1.5,
        "h": "5",
        "i": -2,
        "j": None,
        "k": 1000.0,
    }


BAD_JSON = """{
\t"host": "http://broker",
\t"prot": 1,
\t"sparql11protocol": {"port": 70000, "protocol": "ftp", "query": {"method": "PUT", "format": "PDF", "path": "a b"},
\t  "update": {"method": "GET"}},
\t"sparql11seprotocol": {"protocol": "mqtt", "availableProtocols": {"ws": {}}},
\t"namespaces": {"ex": "http://example.org/", "e x": "a:", "no": "iri"},
\t"graphs": {"default-graph-uri": ["ex:g", "x"], "using-graph-uri": 5},
\t"updates": {
\t\t"A": {"sparql": "INSERT DATA {\\n ex:a fo:b ?x } \\u00e9", "forcedBindings": {
\t\t\t"x": {"type": "literal", "datatype": "xsd:integer", "language": "en"},
\t\t\t"y": {"value": "no type"}}},
\t\t"B": {"sparql": "SELECT * { ?s ?p ?o }"},
\t\t"B": {"sparkl": "DROP ALL"},
\t\t"C": {"sparql": "INSERT DATA { <a:b> <a:c> \\"\\u00e9\\\\t\\" ; ] }"},
\t\t"D": [],
\t\t"E": {"sparql": " "}
\t},
\t"queries": {
\t\t"Q": {"sparql": "ASK { ?s ?p ?x }", "forcedBindings": {"x": {"type": "uri", "value": 5, "language": "en"},
\t\t\t"z": {"type": "url"}}},
\t\t"R": {"sparql": 5}
\t},
\t"extended": {"semantic-mappings": {"a/b": {"observation": "zz:o", "unitt": ""}, "c": {}}}
}"""


def test_every_error_is_found_with_its_line_and_column():
    wanted = [
        (2, 10, '"http://broker" is not a host name or address'),
        (4, 31, "a port is a whole number from 1 to 65535"),
        (4, 50, '"ftp" is not one of http, https'),
        (4, 77, '"PUT" is not one of GET, POST, URLENCODED_POST'),
        (4, 94, '"PDF" is not one of JSON, XML, CSV, TSV'),
        (4, 109, '"a b" is not a path'),
        (5, 25, '"GET" is not one of POST, URLENCODED_POST'),
        (6, 37, '"mqtt" is not one of the availableProtocols'),
        (7, 46, '"e x" cannot be a prefix'),
        (7, 65, '"iri" is not an absolute IRI'),
        (8, 43, '"x" is not an absolute IRI'),
        (8, 68, "must be an IRI"),
        (10, 51, 'update "A": The character'),
        (11, 68, "a literal has a datatype or a language, not both"),
        (12, 4, '?y has no member "type"'),
        (14, 3, 'the member "B" stands here twice'),
        (14, 3, 'update "B" has no member "sparql"'),
        (15, 62, 'update "C": "]" is not allowed here'),
        (16, 3, 'update "D" has no member "sparql"'),
        (16, 8, "must be an object"),
        (17, 19, 'update "E" is empty'),
        (20, 88, "?x: a uri is a text, not int"),
        (20, 103, "a uri has no language"),
        (21, 4, 'query "Q" has no variable ?z'),
        (21, 18, '"url" is not one of uri, literal, bnode'),
        (22, 19, "must be a text"),
        (24, 60, '"zz:o": namespace "zz" is not declared'),
        (24, 82, 'the mapping of "c" names no observation'),
    ]
    found = places(BAD_JSON)
    assert [place for *place, _ in found] == [place for *place, _ in map(list, wanted)]
    for (*_, told_), (*_, reason) in zip(found, wanted, strict=True):
        assert told_.startswith(reason)


def test_update_under_queries_and_query_under_updates_are_reported():
    text = '{"updates": {"A": {"sparql": "PREFIX a: <b:c> ASK {}"}},\n "queries": {"B": {"sparql": "DROP ALL"}}}'
    assert places(text) == [
        (1, 47, 'update "A" is a query, which belongs under queries'),
        (2, 31, 'query "B" is an update, which belongs under updates'),
    ]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", (1, 1), "the file is empty"),
        ("[]", (1, 1), "a profile must be an object"),
        ("{", (1, 2), "the end of the file"),
        ('{"a": 1,\n}', (2, 1), "member's name in quotes"),
        ('{"a" 1}', (1, 6), "colon"),
        ('{"a": [1 2]}', (1, 10), "comma or ]"),
        ('{"a": tru}', (1, 7), "where a value should be"),
        ('{"a": 01}', (1, 7), "where a value should be"),
        ('{"a": 1e999}', (1, 7), "too large"),
        ('{"a": "x}', (1, 7), "unterminated"),
        ('{"a": "\\x"}', (1, 8), "escape"),
        ('{"a": "\\ud800"}', (1, 7), "half a surrogate pair"),
        ('{"a": 1} b', (1, 10), "nothing may follow"),
        ('{"a":' * 200, (1, 506), "deeper than 100"),
        ("a: [1", (1, 6), "not YAML"),
        ("a: 1\na: 2", (2, 1), "stands here twice"),
        ("a: !x 1", (1, 4), 'the tag "!x"'),
        ("a: &a [*a]", (1, 4), "deeper than 100"),
        ("[1]: 2", (1, 1), "name must be a text"),
        ("a: 1\n---\nb: 2", (2, 1), "single document"),
        ("a: \x07", (1, 4), "not YAML"),
    ],
)
def test_invalid_json_and_yaml_are_refused(text, place, reason):
    found = places(text, "p.yaml" if text.startswith("[1]:") else "p.jsap")
    assert [place_ for *place_, told_ in found if reason in told_] == [list(place)]


def test_repeated_aliases_do_not_fill_the_memory():
    text = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for before, name in zip("abcdef", "bcdefg", strict=True):
        text += f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    assert [problem.reason for problem in problems(text)] == ["more than 200000 values"]


YAML = """\
queries:
  LITERAL:
    sparql: |
      SELECT *
      WHERE { ?s foo:p ?o }
  FOLDED:
    sparql: >
      SELECT *
      WHERE { ?s foo:p ?o }
  PLAIN:
    sparql: SELECT * WHERE { ?s foo:p ?o }
  QUOTED:
    sparql: 'SELECT * WHERE { ?s foo:p ?o }'
"""


def test_positions_in_the_texts_of_yaml():
    assert [place for *place, _ in places(YAML)] == [[5, 18], [7, 13], [11, 33], [13, 34]]


@given(st.data())
def test_any_file_is_read_or_refused(data):
    text = data.draw(st.sampled_from([CHAT.read_text(), BAD_JSON, YAML, "a: &x {b: [1, *x]}"]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        new = data.draw(st.text(st.sampled_from('{}[]",:\\ \n\t#&*!|>-?@x1'), max_size=4))
        text = text[:start] + new + text[start + data.draw(st.integers(0, 6)) :]
    for problem in reported(text):
        lines = text.split("\n")
        assert 1 <= problem.line <= len(lines)
        assert 1 <= problem.column <= len(lines[problem.line - 1]) + 2


def reported(text):
    try:
        Profile.parse(text)
    except ProfileError as error:
        return error.problems
    return ()


def test_line_breaks_within_texts_are_read_and_noted(tmp_path):
    file = tmp_path / "p.jsap"
    file.write_text('{"queries": {"Q": {"sparql": "SELECT *\n { ?s ?p ?o }"},\n "R": {"sparql": "ASK\n{}"}}}')
    report = check(file)
    assert report.profile.query("Q").text() == "SELECT *\n { ?s ?p ?o }"
    (note,) = report.notes
    assert (note.line, note.column) == (1, 30)


def test_unknown_members_are_notes(tmp_path):
    file = tmp_path / "p.jsap"
    members = {"graphsX": {}, "Queries": {}, "queries": {"Q": {"sparql": "ASK {}", "forcedBinding": {}}}}
    file.write_text(json.dumps(members, indent=0))
    report = check(file)
    assert report.problems == ()
    assert [(note.line, note.reason) for note in report.notes] == [
        (2, 'the member "graphsX" means nothing here (did you mean "graphs"?)'),
        (3, 'the member "Queries" means nothing here'),
        (7, 'the member "forcedBinding" means nothing here (did you mean "forcedBindings"?)'),
    ]


def test_an_empty_iri_is_not_a_default(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("queries: {Q: {sparql: 'ASK { ?a ?b ?c }', forcedBindings: {a: {type: uri, value: ''}}}}")
    report = check(file)
    assert report.profile.query("Q").forced["a"].default is None
    assert [note.reason for note in report.notes] == ["an empty text is not a valid uri, so ?a has no default"]


def test_an_unknown_entry_is_reported_with_the_known_ones():
    found = profile(updates={"A": {"sparql": "DROP ALL"}, "B": {"sparql": "DROP ALL"}})
    with pytest.raises(UnknownEntry) as unknown:
        found.update("C")
    assert str(unknown.value) == 'profile.jsap has no update "C"; there are: A, B'
    with pytest.raises(KeyError, match=r"no query.*there are: none"):
        found.query("A")


# Includes


def write(path, **members):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(members))


def test_the_including_file_takes_precedence(tmp_path):
    write(
        tmp_path / "base.jsap",
        host="base",
        namespaces={"a": "http://base/a#", "b": "http://base/b#"},
        sparql11protocol={"port": 1, "update": {"path": "/base"}},
        graphs={"default-graph-uri": "a:base", "named-graph-uri": "a:base"},
        extended={"x": {"y": 1, "z": 1}},
        queries={
            "Q": {"sparql": "ASK { ?a b:base ?c }", "forcedBindings": {"a": {"type": "uri"}}},
            "R": {"sparql": "ASK {}"},
        },
    )
    write(tmp_path / "sub" / "other.jsap", include="../base.jsap", host="other", extended={"x": {"z": 2}})
    write(
        tmp_path / "main.jsap",
        include=["base.jsap", "file:sub/other.jsap"],
        namespaces={"b": "http://main/b#"},
        sparql11protocol={"update": {"method": "URLENCODED_POST"}},
        graphs={"default-graph-uri": "a:main"},
        queries={"Q": {"sparql": "ASK { ?x b:main a:x }"}},
        updates={"U": {"sparql": "CLEAR ALL"}},
    )
    found = Profile.load(tmp_path / "main.jsap")
    assert found.update("U").sparql11.url == "http://other:1/base"
    assert found.update("U").sparql11.method == "URLENCODED_POST"
    assert found.extended == {"x": {"y": 1, "z": 2}}
    assert found.query("Q").text().startswith("PREFIX b: <http://main/b#>\nPREFIX a: <http://base/a#>\nASK")
    assert found.query("Q").forced == {}
    assert found.query("R").graphs.default == ("http://base/a#main",)
    assert found.query("R").graphs.named is None


def test_errors_of_included_files_have_their_own_positions(tmp_path):
    (tmp_path / "inner.yaml").write_text("queries:\n  Q:\n    sparql: SELECT ?x\n")
    (tmp_path / "main.jsap").write_text('{"include": ["inner.yaml"],\n "host": 5}')
    report = check(tmp_path / "main.jsap")
    assert {(each.file, each.line) for each in report.problems} == {
        (str(tmp_path / "inner.yaml"), 3),
        (str(tmp_path / "main.jsap"), 2),
    }


@pytest.mark.parametrize(
    ("include", "reason"),
    [
        ("none.jsap", "cannot be read: No such file"),
        ("main.jsap", "form a loop"),
        ("loop.jsap", "form a loop"),
        ("http://example.org/x.jsap", "only files can be included"),
        ("file://host/x.jsap", "only files can be included"),
        ("\0", "cannot be read"),
        (".", "cannot be read"),
        (5, "must be the name of a file"),
        ("latin.jsap", "not UTF-8"),
        ("http://[", "cannot be read"),
        ("/dev/zero", "not a regular file"),
        ("fifo", "not a regular file"),
    ],
)
def test_invalid_includes_are_refused(tmp_path, include, reason):
    write(tmp_path / "main.jsap", include=[include])
    write(tmp_path / "loop.jsap", **{"#include": ["main.jsap"]})
    (tmp_path / "latin.jsap").write_bytes(b'{"host":\n "\xe9"}')
    os.mkfifo(tmp_path / "fifo")
    (problem,) = check(tmp_path / "main.jsap").problems
    assert reason in problem.reason
    assert problem.line >= 1


def test_number_of_included_files_is_limited(tmp_path):
    for number in range(60):
        write(tmp_path / f"{number}.jsap", include=[f"{number + 1}.jsap"] * 2)
    write(tmp_path / "60.jsap", host="here")
    problems = check(tmp_path / "0.jsap").problems
    assert problems
    assert {problem.reason.partition(": ")[2] for problem in problems} == {"a profile may include 100 files"}
    write(tmp_path / "main.jsap", include=["60.jsap"] * 100)
    assert Profile.load(tmp_path / "main.jsap")


@pytest.mark.parametrize("name", ["large.jsap", "/dev/zero"])
def test_profile_file_size_is_limited(tmp_path, name):
    (tmp_path / "large.jsap").write_text('{"host": "' + "x" * 8 * 1024 * 1024 + '"}')
    (problem,) = check(tmp_path / name).problems
    assert "larger than 8388608 bytes" in problem.reason


def test_a_profile_may_come_through_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit((tmp_path / "fifo").write_text, '{"queries": {"Q": {"sparql": "ASK {}"}}}')
        assert Profile.load(tmp_path / "fifo").query("Q")


def test_missing_file_raises():
    with pytest.raises(FileNotFoundError):
        Profile.load("/nowhere/at/all.jsap")
