"""The RSP-QL front end: clauses, and errors with their place in the client's text."""

from __future__ import annotations

import pytest

from edge.protocol.errors import ParsingFailed
from edge.sparql.query import read_query
from edge.streams.language import describe, parse
from edge.streams.model import NamedWindow, QueryForm, ReportPolicy, StreamOperator, WindowDefinition, WindowKind

S = 1_000_000
M = 60 * S
D = 86_400 * S
NEW_YEAR = 1_767_225_600 * S
"""2026-01-01T00:00:00Z."""

HEAD = "REGISTER RSTREAM <urn:out> AS SELECT * "
WINDOW = "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE PT1S] "
WHERE = "{ WINDOW <urn:w> { ?s ?p ?o } }"


def definition(clause, **times):
    (window,) = parse(f"{HEAD}FROM NAMED WINDOW <urn:w> ON <urn:s> {clause} {WHERE}", **times).windows
    assert (window.name, window.definition.stream) == ("urn:w", "urn:s")
    return window.definition


def error(text):
    with pytest.raises(ParsingFailed) as found:
        parse(text)
    return str(found.value)


def test_a_query_with_two_windows_and_a_graph():
    text = """PREFIX : <http://e/>
REGISTER ISTREAM :out AS
PREFIX sosa: <http://www.w3.org/ns/sosa/>
CONSTRUCT { ?s :warmerThan ?mean }
FROM NAMED WINDOW :now ON :readings [RANGE PT10S STEP PT5S]
FROM NAMED WINDOW :day ON :readings [RANGE P1D STEP PT1H]
FROM <http://e/places>
FROM NAMED :limits
WHERE {
  ?s :in :kitchen
  WINDOW :now { ?s sosa:hasSimpleResult ?v }
  { SELECT (AVG(?d) AS ?mean) { window <http://e/day> { ?s sosa:hasSimpleResult ?d } } }
  GRAPH :limits { ?s :limit ?l }
  FILTER(?v > ?mean && ?v > ?l)
}"""
    query = parse(text)
    readings = "http://e/readings"
    assert query.windows == (
        NamedWindow("http://e/now", WindowDefinition(readings, WindowKind.TIME, 10 * S, 5 * S)),
        NamedWindow("http://e/day", WindowDefinition(readings, WindowKind.TIME, D, 3600 * S)),
    )
    assert (query.name, query.language, query.form) == ("http://e/out", "RSP-QL", QueryForm.CONSTRUCT)
    assert (query.operator, query.is_stream) == (StreamOperator.ISTREAM, True)
    assert (query.default_graphs, query.named_graphs) == (("http://e/places",), ("http://e/limits",))
    lines = query.sparql.split("\n")
    assert [line for line in lines if not line.strip()] == [lines[1], *lines[4:8]]
    assert lines[10] == "  GRAPH  :now { ?s sosa:hasSimpleResult ?v }"
    assert lines[11].index("GRAPH  <http://e/day>") == text.split("\n")[11].index("window <http://e/day>")
    assert read_query(query.sparql).form == "CONSTRUCT"


@pytest.mark.parametrize("operator", list(StreamOperator))
@pytest.mark.parametrize("form", ["SELECT ?s", "ASK", "DESCRIBE ?s", "CONSTRUCT { ?s ?p ?o }"])
def test_operators_and_forms(operator, form):
    query = parse(f"REGISTER {operator.lower()} <urn:out> AS {form} {WINDOW}{WHERE}")
    assert (query.operator, query.form, query.name) == (operator, form.split()[0], "urn:out")


@pytest.mark.parametrize(
    ("brackets", "expected"),
    [
        ("[RANGE PT10S STEP PT5S]", WindowDefinition("urn:s", WindowKind.TIME, 10 * S, 5 * S, 3)),
        ("[RANGE PT10S]", WindowDefinition("urn:s", WindowKind.TIME, 10 * S, 10 * S, 3)),
        ("[RANGE pt10s TUMBLING]", WindowDefinition("urn:s", WindowKind.TIME, 10 * S, 10 * S, 3)),
        ("[RANGE 10s STEP 500ms]", WindowDefinition("urn:s", WindowKind.TIME, 10 * S, S // 2, 3)),
        ("[RANGE PT0.001S STEP P3653D]", WindowDefinition("urn:s", WindowKind.TIME, 1000, 3653 * D, 3)),
        ("[RANGE P1DT2H3M4.5678901S]", WindowDefinition("urn:s", WindowKind.TIME, *[93_784_567_890] * 2, 3)),
        ("[RANGE P2W STEP P1D]", WindowDefinition("urn:s", WindowKind.TIME, 14 * D, D, 3)),
        (
            '[RANGE PT10S STEP PT5S START "2026-01-01T00:00:00Z"]',
            WindowDefinition("urn:s", WindowKind.TIME, 10 * S, 5 * S, NEW_YEAR),
        ),
        (
            "[RANGE PT1M START '2026-01-01T01:00:00.5+01:00'^^<http://www.w3.org/2001/XMLSchema#dateTime>]",
            WindowDefinition("urn:s", WindowKind.TIME, M, M, NEW_YEAR + S // 2),
        ),
        ("[ELEMENTS 10 STEP 5]", WindowDefinition("urn:s", WindowKind.COUNT, 10, 5)),
        ("[ELEMENTS 10]", WindowDefinition("urn:s", WindowKind.COUNT, 10, 1)),
        ("[TRIPLES 10 STEP 5]", WindowDefinition("urn:s", WindowKind.TRIPLES, 10, 5)),
        ("[TRIPLES 10 TUMBLING]", WindowDefinition("urn:s", WindowKind.TRIPLES, 10, 10)),
        ('[LANDMARK "2026-01-01T00:00:00Z" STEP PT1M]', WindowDefinition("urn:s", WindowKind.LANDMARK, 0, M, NEW_YEAR)),
        ("[LANDMARK NOW STEP PT1M]", WindowDefinition("urn:s", WindowKind.LANDMARK, 0, M, 5)),
        ("[SESSION PT30S]", WindowDefinition("urn:s", WindowKind.SESSION, 30 * S, 0)),
    ],
    ids=str,
)
def test_windows(brackets, expected):
    assert definition(brackets, t0=3, now=5) == expected


@pytest.mark.parametrize(
    ("policy", "report", "period"),
    [
        ("", ReportPolicy.CLOSE, 0),
        ("ON CLOSE", ReportPolicy.CLOSE, 0),
        ("REPORT ON CLOSE", ReportPolicy.CLOSE, 0),
        ("on change", ReportPolicy.CHANGE, 0),
        ("NON EMPTY", ReportPolicy.NON_EMPTY, 0),
        ("NON-EMPTY", ReportPolicy.NON_EMPTY, 0),
        ("EVERY PT1M", ReportPolicy.PERIODIC, M),
        ("REPORT EVERY 1 min", ReportPolicy.PERIODIC, M),
    ],
)
@pytest.mark.parametrize("following", ["", "FROM <urn:g>", "WHERE"])
def test_report_policies(policy, report, period, following):
    found = definition(f"[SESSION PT1S] {policy} {following}")
    assert (found.report, found.period) == (report, period)


def test_names_are_compared_as_iris():
    text = f"""BASE <http://e/> PREFIX : <http://e/>
{HEAD} FROM NAMED WINDOW <w> ON STREAM :s [RANGE 1s]
{{ WINDOW :w {{ ?s ?p ?o }} WINDOW <http://e/w> {{ ?s ?p ?q }} }}"""
    assert parse(text).windows[0].name == "http://e/w"


def test_keywords_in_strings_and_comments_are_no_windows():
    text = HEAD + WINDOW + "# WINDOW <a>\n{ WINDOW <urn:w> { ?s ?p \"WINDOW <b>\", '''\nFROM NAMED WINDOW <c>''' } }"
    sparql = parse(text).sparql
    assert "# WINDOW <a>\n" in sparql
    assert "'''\nFROM NAMED WINDOW <c>'''" in sparql


def test_comparisons_are_no_iris():
    query = parse(f"{HEAD}{WINDOW}{{ WINDOW <urn:w> {{ ?s ?p ?o FILTER(?o<?s&&?s>?p) FILTER(?o <5) }} }}")
    assert "FILTER(?o<?s&&?s>?p)" in query.sparql


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("REGISTER RSTREAM §out AS", 'expected instead of "out"', "REGISTER RSTREAM <urn:out> AS"),
        ("REGISTER RSTREAM <urn:o> §COMPUTED EVERY 5s AS", "COMPUTED belongs to C-SPARQL", "Write EVERY"),
        ("REGISTER RSTREAM <urn:o> §UNDER ENTAILMENT", "UNDER ENTAILMENT is not supported", "Omit it"),
        ("REGISTER RSTREAM <urn:o> AS CONSTRUCT §ISTREAM { }", "ISTREAM is not allowed", "REGISTER ISTREAM <urn:o>"),
        (HEAD + "FROM §STREAM <urn:s> [RANGE 1s] {}", "FROM STREAM belongs to C-SPARQL", "FROM NAMED WINDOW"),
        (HEAD + "FROM NAMED §STREAM <urn:s> [RANGE 1s] {}", "FROM STREAM belongs to C-SPARQL", "FROM NAMED WINDOW"),
        (HEAD + "FROM §WINDOW <urn:w> ON <urn:s> [RANGE 1s] {}", "NAMED expected", "FROM NAMED WINDOW <urn:w>"),
        (HEAD + "FROM NAMED WINDOW §?w ON <urn:s> [RANGE 1s] {}", 'expected instead of "?w"', "<urn:w>"),
        (HEAD + "FROM NAMED WINDOW <urn:w> §<urn:s> [RANGE 1s] {}", "ON and the IRI of a stream", "ON <urn:s>"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON §?s [RANGE 1s] {}", 'expected instead of "?s"', "ON <urn:s>"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON §e:s [RANGE 1s]" + WHERE, '"e:" is not declared', "PREFIX e:"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE §P1M]" + WHERE, "P1M has months", "P30D"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE §P1Y]" + WHERE, "P1Y has years", "P30D"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE §PT]" + WHERE, "PT is not a duration", "PT10S"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE §PT0S]" + WHERE, "shorter than 1 milli", "PT0.001S"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE PT1S STEP §P9999999999D]" + WHERE, "longer", "P3653D"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK NOW§]" + WHERE, "STEP expected", "STEP PT1M"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §PT1M]" + WHERE, "A time in quotes", "2026"),
        (HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §"1.1.26" STEP 1s]' + WHERE, "not a time", "2026"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §'\\x' STEP 1s]" + WHERE, "Not an escape", "without"),
        (
            HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §"2026-01-01T00:00:00" STEP 1s]' + WHERE,
            "no time zone",
            '"2026-01-01T00:00:00Z"',
        ),
        (
            HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §"2026-02-30T00:00:00Z" STEP 1s]' + WHERE,
            "is not a time: day is out of range",
            "",
        ),
        (
            HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §"2026-01-01T00:00:00+01:99" STEP 1s]' + WHERE,
            "time zone is out of range",
            "",
        ),
        (
            HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §"9999-12-31T23:00:00-02:00" STEP 1s]' + WHERE,
            "out of range",
            "",
        ),
        (
            HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK §"1969-12-31T23:00:00Z" STEP 1s]' + WHERE,
            "is out of range",
            "from 1970",
        ),
        (
            HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [LANDMARK "2026-01-01T00:00:00Z"^^§<urn:day> STEP 1s]',
            "<urn:day> is not the datatype",
            "xsd:dateTime",
        ),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [SESSION PT1S §STEP PT1S]" + WHERE, "] expected", "order"),
        (HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [ELEMENTS 1 §START "x"]' + WHERE, "] expected", "order"),
        (HEAD + 'FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE 1s] §START "x"' + WHERE, "outside of the", "before ]"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE 1s] §ON DEMAND" + WHERE, "A report policy", "ON CHANGE"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE 1s] NON §{}", "EMPTY expected", "NON EMPTY"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE 1s] REPORT §{}", "A report policy", "ON CHANGE"),
        (HEAD + "FROM NAMED WINDOW <urn:w> ON <urn:s> [RANGE 1s] EVERY §{}", "A duration expected", "PT10S"),
        (HEAD + WINDOW + "{ WINDOW §?w { ?s ?p ?o } }", "WINDOW ?w: the window must be named", "the IRI of a window"),
        (HEAD + WINDOW + "{ WINDOW §{ ?s ?p ?o } }", "The IRI of a window expected", "WINDOW <urn:w>"),
        (HEAD + WINDOW + "{ WINDOW <urn:w> {} WINDOW §<urn:v> {} }", "<urn:v> is not declared", "FROM NAMED WINDOW"),
        (HEAD + WINDOW + "{ WINDOW <urn:w> {} WINDOW §e:v {} }", '"e:" is not declared', "PREFIX e:"),
        (HEAD + WINDOW + WINDOW.replace("<urn:w>", "§<urn:w>") + WHERE, "<urn:w> is declared twice", "another name"),
        (
            HEAD + WINDOW.replace("<urn:w>", "§<urn:w>") + "FROM NAMED <urn:w> " + WHERE,
            "<urn:w> is a window and a graph",
            "another name",
        ),
        (HEAD + WINDOW.replace("<urn:w>", "§<urn:w>") + "{ ?s ?p ?o }", "<urn:w> is not used", "WINDOW <urn:w> {"),
        (HEAD + WINDOW + "{ GRAPH §<urn:w> { ?s ?p ?o } }", "<urn:w> is a window, not a graph", "WINDOW <urn:w> {"),
        (HEAD.replace("SELECT", "§SELECT") + "{ ?s ?p ?o }", "The query has no window", "FROM NAMED WINDOW"),
        (HEAD + "{ ?s ?p ?o §" + WINDOW + "WINDOW <urn:w> { } }", "FROM is not allowed within", "before WHERE"),
        (HEAD + WINDOW + "WHERE §WINDOW <urn:w> { ?s ?p ?o }", "WINDOW is not allowed here", 'Expected: "{"'),
        (HEAD + WINDOW + "\nWHERE {\n WINDOW <urn:w> { ?s ?p §} }", "is not allowed here", "Expected"),
        (HEAD + WINDOW + "{ WINDOW <urn:w> { ?s ?p ?o } §", 'The bracket "{" at line 1', 'Add "}"'),
    ],
)
def test_errors_have_a_place_and_a_remedy(text, problem, remedy):
    before, _, after = text.partition("§")
    lines = before.split("\n")
    where = f"(line {len(lines)}, column {len(lines[-1]) + 1})"
    message = error(before + after)
    assert where in message
    said, _, advised = message.partition(where)
    assert problem in said
    assert remedy in advised


def test_a_description():
    query = parse(
        f"""{HEAD} {WINDOW}
FROM NAMED WINDOW <urn:a> ON <urn:s> [RANGE PT10S STEP PT5S START "2026-01-01T00:00:00Z"] NON EMPTY
FROM NAMED WINDOW <urn:b> ON <urn:s> [RANGE PT1S STEP PT5S] EVERY PT2S
FROM NAMED WINDOW <urn:c> ON <urn:s> [ELEMENTS 10]
FROM NAMED WINDOW <urn:d> ON <urn:s> [TRIPLES 10 STEP 2] ON CHANGE
FROM NAMED WINDOW <urn:e> ON <urn:s> [LANDMARK "2026-01-01T00:00:00Z" STEP PT1M]
FROM NAMED WINDOW <urn:f> ON <urn:s> [SESSION PT30S]
FROM <urn:g> FROM NAMED <urn:h>
{{ WINDOW <urn:w> {{}} {" ".join(f"WINDOW <urn:{name}> {{}}" for name in "abcdef")} }}"""
    )
    assert describe(query).split("\n") == [
        "RSP-QL stream urn:out: SELECT with RSTREAM, each report has all rows of the result",
        "window <urn:w>: stream <urn:s> [RANGE PT1S STEP PT1S] ON CLOSE",
        "  content: the elements of PT1S, without overlap (tumbling); one of its ends is 1970-01-01T00:00:00Z",
        "  reports: every PT1S",
        'window <urn:a>: stream <urn:s> [RANGE PT10S STEP PT5S START "2026-01-01T00:00:00Z"] NON EMPTY',
        "  content: the elements of the last PT10S, moved by PT5S (sliding); one of its ends is 2026-01-01T00:00:00Z",
        "  reports: every PT5S, unless it is empty",
        "window <urn:b>: stream <urn:s> [RANGE PT1S STEP PT5S] EVERY PT2S",
        "  content: the elements of the last PT1S, moved by PT5S, which leaves out those between; one of its ends is "
        "1970-01-01T00:00:00Z",
        "  reports: every PT2S",
        "window <urn:c>: stream <urn:s> [ELEMENTS 10 STEP 1] ON CLOSE",
        "  content: the last 10 elements",
        "  reports: after 1 element",
        "window <urn:d>: stream <urn:s> [TRIPLES 10 STEP 2] ON CHANGE",
        "  content: the last elements that have at least 10 triples",
        "  reports: at each change of the content",
        'window <urn:e>: stream <urn:s> [LANDMARK "2026-01-01T00:00:00Z" STEP PT1M] ON CLOSE',
        "  content: all elements since 2026-01-01T00:00:00Z",
        "  reports: every PT1M",
        "window <urn:f>: stream <urn:s> [SESSION PT30S] ON CLOSE",
        "  content: the elements of a session, which ends after PT30S without an element",
        "  reports: at the end of each session",
        "live data in the default graph: <urn:g>",
        "live data in the named graphs: <urn:h>",
    ]


@pytest.mark.parametrize(
    ("text", "last"),
    [
        (HEAD + WINDOW + WHERE, "live data: the default graph, and the graphs that GRAPH names"),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o }",
            "live data: the graphs that GRAPH names",
        ),
    ],
)
def test_the_description_of_live_data(text, last):
    assert describe(parse(text)).split("\n")[-1] == last
