"""The C-SPARQL front end: clauses, and errors with their place in the client's text."""

from __future__ import annotations

import pytest

from edge.protocol.errors import LimitExceeded, ParsingFailed
from edge.sparql.query import read_query
from edge.streams.language import MAX_TEXT, parse
from edge.streams.model import NamedWindow, QueryForm, ReportPolicy, StreamOperator, WindowDefinition, WindowKind

MS = 1000
S = 1_000_000
M = 60 * S
H = 60 * M
D = 24 * H


def registered(clauses, where="{ ?s ?p ?o }", head="REGISTER QUERY q AS"):
    return parse(f"{head} SELECT * {clauses} WHERE {where}")


def definition(brackets, **times):
    query = parse(f"REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> {brackets} {{ ?s ?p ?o }}", **times)
    (window,) = query.windows
    assert (window.name, window.definition.stream) == ("", "urn:s")
    return window.definition


def error(text, kind=ParsingFailed):
    with pytest.raises(kind) as found:
        parse(text)
    assert type(found.value) is kind
    return str(found.value)


def place(text, marked):
    """Return the place of the character after the mark § as errors write it, and the text without the mark."""
    before, mark, after = text.partition(marked)
    assert mark
    lines = before.split("\n")
    return f"(line {len(lines)}, column {len(lines[-1]) + 1})", before + after


def test_the_query_of_the_paper():
    text = """REGISTER QUERY CarsEnteringCityCenterPerDistrict COMPUTED EVERY 10m AS
PREFIX t: <http://linkedurbandata.org/traffic#>
PREFIX c: <http://linkedurbandata.org/city#>
SELECT DISTINCT ?district (COUNT(DISTINCT ?car) AS ?passages)
FROM <http://streams.org/citycenter.rdf>
FROM STREAM <http://streams.org/gates.trdf> [RANGE 30m STEP 10m]
WHERE { ?gate t:registers ?car . ?district c:contains ?gate }
GROUP BY ?district"""
    query = parse(text)
    stream = WindowDefinition("http://streams.org/gates.trdf", WindowKind.TIME, 30 * M, 10 * M)
    assert query.windows == (NamedWindow("", stream),)
    assert (query.name, query.language, query.text) == ("CarsEnteringCityCenterPerDistrict", "C-SPARQL", text)
    assert (query.form, query.operator, query.is_stream) == (QueryForm.SELECT, StreamOperator.RSTREAM, False)
    assert (query.default_graphs, query.named_graphs) == (("http://streams.org/citycenter.rdf",), ())
    assert query.sparql.splitlines()[4:6] == [" " * 40, " " * 64]
    assert len(query.sparql) == len(text)
    assert [variable.name for variable in read_query(query.sparql).variables] == ["district", "passages"]


@pytest.mark.parametrize(
    ("brackets", "size", "step"),
    [
        ("[RANGE 10s STEP 5s]", 10 * S, 5 * S),
        ("[range 10S step 5S]", 10 * S, 5 * S),
        ("[RANGE 250ms STEP 1ms]", 250 * MS, MS),
        ("[RANGE 5m STEP 1min]", 5 * M, M),
        ("[RANGE 2h STEP 1h]", 2 * H, H),
        ("[RANGE 7d STEP 1 d]", 7 * D, D),
        ("[RANGE 10 seconds STEP 5 sec]", 10 * S, 5 * S),
        ("[RANGE 10m TUMBLING]", 10 * M, 10 * M),
        ("[RANGE 10m]", 10 * M, 10 * M),
        ("[RANGE 1.5s STEP .5s]", None, None),
        ("[RANGE 1.5s STEP 0.5s]", 1500 * MS, 500 * MS),
        ("[RANGE 1s STEP 5s]", S, 5 * S),
        ("[RANGE PT1M30S STEP P1D]", 90 * S, D),
        ("[RANGE 3653d STEP 1ms]", 3653 * D, MS),
    ],
)
def test_time_windows(brackets, size, step):
    if size is None:
        with pytest.raises(ParsingFailed, match="is not a duration"):
            definition(brackets)
        return
    assert definition(brackets, t0=7) == WindowDefinition("urn:s", WindowKind.TIME, size, step, 7)


@pytest.mark.parametrize(
    ("brackets", "kind", "size", "step"),
    [
        ("[RANGE TRIPLES 10]", WindowKind.TRIPLES, 10, 1),
        ("[TRIPLES 10]", WindowKind.TRIPLES, 10, 1),
        ("[RANGE TRIPLES 10 STEP 5]", WindowKind.TRIPLES, 10, 5),
        ("[TRIPLES 10 STEP 5]", WindowKind.TRIPLES, 10, 5),
        ("[RANGE TRIPLES 10 TUMBLING]", WindowKind.TRIPLES, 10, 10),
        ("[ELEMENTS 1000000 STEP 1000000]", WindowKind.COUNT, 1_000_000, 1_000_000),
    ],
)
def test_windows_that_count_have_no_alignment(brackets, kind, size, step):
    assert definition(brackets, t0=7, now=9) == WindowDefinition("urn:s", kind, size, step)


def test_streams_and_graphs_of_the_dataset():
    query = registered(
        "FROM <urn:g> FROM STREAM <urn:a> [RANGE 1s] FROM NAMED <urn:h> FROM NAMED STREAM <urn:b> [RANGE 2s] "
        "FROM <urn:g>",
        "{ ?s ?p ?o GRAPH <urn:b> { ?s ?q ?r } }",
    )
    assert [(each.name, each.definition.stream) for each in query.windows] == [("", "urn:a"), ("urn:b", "urn:b")]
    assert (query.default_graphs, query.named_graphs) == (("urn:g",), ("urn:h",))
    assert read_query(query.sparql).form == "SELECT"


def test_without_from_all_graphs_take_part():
    query = registered("FROM STREAM <urn:a> [RANGE 1s]")
    assert (query.default_graphs, query.named_graphs) == (None, None)
    query = registered("FROM STREAM <urn:a> [RANGE 1s] FROM NAMED <urn:g>")
    assert (query.default_graphs, query.named_graphs) == ((), ("urn:g",))


@pytest.mark.parametrize(
    ("every", "brackets", "report", "period"),
    [
        ("", "[RANGE 10s STEP 5s]", ReportPolicy.CLOSE, 0),
        ("COMPUTED EVERY 5s", "[RANGE 10s STEP 5s]", ReportPolicy.CLOSE, 0),
        ("COMPUTE EVERY 2s", "[RANGE 10s STEP 5s]", ReportPolicy.PERIODIC, 2 * S),
        ("EVERY PT1M", "[RANGE 10s]", ReportPolicy.PERIODIC, M),
        ("COMPUTED EVERY 10s", "[RANGE 10s TUMBLING]", ReportPolicy.CLOSE, 0),
        ("COMPUTED EVERY 1 h", "[RANGE TRIPLES 10]", ReportPolicy.PERIODIC, H),
        ("computed every 1d", "[SESSION 1d]", ReportPolicy.PERIODIC, D),
    ],
)
def test_the_period_of_reports(every, brackets, report, period):
    query = registered(f"FROM STREAM <urn:s> {brackets}", head=f"REGISTER QUERY q {every} AS")
    (window,) = query.windows
    assert (window.definition.report, window.definition.period) == (report, period)


def test_each_window_has_its_own_period():
    clauses = "FROM STREAM <urn:a> [RANGE 10s STEP 5s] FROM STREAM <urn:b> [RANGE 10s STEP 2s]"
    query = registered(clauses, head="REGISTER QUERY q COMPUTED EVERY 5s AS")
    assert [window.definition.report for window in query.windows] == [ReportPolicy.CLOSE, ReportPolicy.PERIODIC]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("q", "q"),
        ("High-Risk_2", "High-Risk_2"),
        ("a1b2", "a1b2"),
        ("<urn:x>", "urn:x"),
        ("<x>", "http://base/x"),
        ("e:x", "http://e/x"),
        ("QUERY", "QUERY"),
    ],
)
def test_names(written, name):
    head = f"BASE <http://base/> PREFIX e: <http://e/> REGISTER QUERY {written} AS"
    assert registered("FROM STREAM <urn:s> [RANGE 1s]", head=head).name == name


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_declarations_may_stand_before_the_registration_or_after_it(after):
    declarations = "BASE <http://base/> PREFIX : <http://e/>"
    head = f"REGISTER QUERY q AS {declarations}" if after else f"{declarations} REGISTER QUERY q AS"
    query = parse(
        f"{head} SELECT * FROM STREAM :s [RANGE 1s] FROM NAMED STREAM <n> [RANGE 1s] {{ GRAPH <n> {{ ?s ?p :o }} }}"
    )
    assert [window.definition.stream for window in query.windows] == ["http://e/s", "http://base/n"]
    assert read_query(query.sparql).base == "http://base/"


def test_relative_iris_without_a_base():
    text = "REGISTER QUERY q AS SELECT * FROM STREAM <s> [RANGE 1s] { ?s ?p ?o }"
    assert parse(text).windows[0].definition.stream == "http://localhost/s"
    assert parse(text, base="urn:x/y").windows[0].definition.stream == "urn:x/s"


@pytest.mark.parametrize("form", ["SELECT ?s", "ASK", "DESCRIBE ?s", "CONSTRUCT { ?s ?p ?o }", "CONSTRUCT"])
def test_forms(form):
    query = parse(f"REGISTER QUERY q AS {form} FROM STREAM <urn:s> [RANGE 1s] WHERE {{ ?s ?p ?o }} LIMIT 3")
    assert query.form == form.split()[0]
    assert read_query(query.sparql).form == query.form


def test_register_stream():
    query = parse("REGISTER STREAM out AS CONSTRUCT { ?s ?p ?o } FROM STREAM <urn:s> [RANGE 1s] WHERE { ?s ?p ?o }")
    assert (query.is_stream, query.name, query.operator) == (True, "out", StreamOperator.RSTREAM)


def test_keywords_in_strings_comments_and_names_are_no_clauses():
    text = (
        "# REGISTER QUERY w AS\nREGISTER # AS\nQUERY q AS\n"
        'PREFIX FROM: <urn:FROM/STREAM> SELECT ("FROM STREAM <urn:x> [RANGE 1s]" AS ?FROM) '
        "# FROM STREAM <urn:y> [RANGE 1s]\n"
        "FROM STREAM # ]\n<urn:s> [RANGE # 5s ]\n1s] WHERE { ?s FROM:STREAM 'WINDOW <w>' }"
    )
    query = parse(text)
    assert [window.definition for window in query.windows] == [WindowDefinition("urn:s", WindowKind.TIME, S, S)]
    assert query.sparql.count("\n") == text.count("\n")
    assert "# FROM STREAM <urn:y> [RANGE 1s]" in query.sparql
    assert "5s" not in query.sparql


def test_line_breaks_of_all_kinds_stay():
    text = "REGISTER QUERY q\r\nAS SELECT *\rFROM STREAM <urn:s>\r\n[RANGE 1s]\n{ ?s ?p ?o }"
    assert parse(text).sparql == " " * 16 + "\r\n   SELECT *\r" + " " * 19 + "\r\n" + " " * 10 + "\n{ ?s ?p ?o }"


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        ("§", "REGISTER expected instead of the end", "REGISTER RSTREAM <iri> AS"),
        ("§SELECT * { ?s ?p ?o }", 'REGISTER expected instead of "SELECT"', "REGISTER QUERY name AS"),
        ("REGISTER §VIEW q AS", 'expected instead of "VIEW"', "REGISTER QUERY name AS"),
        ("REGISTER QUERY §AS SELECT *", "The name of the query expected", "REGISTER QUERY averages AS"),
        ("REGISTER QUERY §COMPUTED EVERY 5s AS", "The name of the query expected", "averages"),
        ("REGISTER QUERY §q.x AS SELECT *", "q.x is not a name", "an IRI"),
        ("REGISTER QUERY §" + "q" * 201 + " AS", "The name has more than 200 characters", "shorter"),
        ("BASE §<%> REGISTER QUERY q AS SELECT * FROM STREAM <s> [RANGE 1s] {}", "<%> is not a valid IRI", ""),
        ("REGISTER QUERY q COMPUTED §5s AS", "EVERY expected", "COMPUTED EVERY 5s"),
        ("REGISTER QUERY q COMPUTED EVERY §5 AS", "5 has no unit", "5s"),
        ("REGISTER QUERY q COMPUTED EVERY §0s AS", "0s is shorter than 1 millisecond", "PT0.001S"),
        ("REGISTER QUERY q §SELECT *", "AS expected", "Write AS"),
        ("REGISTER QUERY q AS §", "SELECT, ASK, CONSTRUCT or DESCRIBE expected", "after AS"),
        ("REGISTER QUERY q AS §INSERT DATA { }", 'expected instead of "INSERT"', "after AS"),
        ("REGISTER QUERY q §UNDER ENTAILMENT", "UNDER ENTAILMENT is not supported", "Omit it"),
        ("REGISTER STREAM q AS §SELECT * FROM STREAM", "the elements of a stream are graphs", "Use CONSTRUCT"),
        ("REGISTER STREAM q AS §ASK FROM STREAM", "the elements of a stream are graphs", "REGISTER QUERY"),
        ("REGISTER QUERY q AS §SELECT * { ?s ?p ?o }", "The query has no window", "FROM STREAM"),
        ("REGISTER QUERY q AS PREFIX §x <urn:x> SELECT *", 'The prefix "x" has no colon', "PREFIX x:"),
        ("PREFIX x: §REGISTER QUERY q AS SELECT *", "REGISTER is ", "IRI"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM §?s [RANGE 1s] {}", 'instead of "?s"', "FROM STREAM <urn:s>"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> §{}", "A window in square brackets", "[RANGE PT10S"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [§NOW] {}", "A kind of window", "RANGE, TRIPLES"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 10s §SLIDE 5s] {}", "SLIDE", "Write STEP."),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 10s STEP 5s §TUMBLING] {}", "] expected", "order"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE §] {}", "A duration expected", "PT10S or 10s"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE §10 STEP 5s] {}", "10 has no unit", "10s"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE §10y] {}", "y is not a unit of time", "ms, s, m"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE §-5s] {}", "-5s is not a duration", "PT10S"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE §3654d] {}", "longer than 10 years", "P3653D"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s STEP §0.9ms] {}", "shorter than 1", "PT0.001S"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE TRIPLES §0] {}", "0 is not a number", "1,000,000"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE TRIPLES §10s] {}", "10s is not a number", "Use 1"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [TRIPLES 5 STEP §1000001] {}", "is not a number", "Use 1"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE §ELEMENTS 5] {}", "ELEMENTS is not a dur", "PT10S"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM §e:s [RANGE 1s] {}", 'prefix "e:" is not declared', "PREFIX e:"),
        ("REGISTER QUERY q AS SELECT * FROM STREAM §<urn:%> [RANGE 1s] {}", "<urn:%> is not a valid IRI", ""),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] FROM STREAM §<urn:s> [RANGE 2s] {}",
            "urn:s has two windows",
            "RSP-QL",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM NAMED STREAM §<urn:s> [RANGE 1s] { GRAPH <urn:t> { ?s ?p ?o } }",
            "The named stream urn:s is not used",
            "GRAPH <urn:s> { ... }",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM NAMED STREAM §<urn:s> [RANGE 1s] FROM NAMED <urn:s> { GRAPH ?g {} }",
            "urn:s is a stream and a graph",
            "Remove",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM NAMED §WINDOW <w> ON <s> [RANGE 1s] { WINDOW <w> {} }",
            "WINDOW belongs to RSP-QL",
            "REGISTER RSTREAM",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] { §WINDOW <w> {} }",
            "WINDOW belongs to RSP-QL",
            "Write GRAPH",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o FILTER(§timestamp(?s) > 1) }",
            "The function timestamp() is not supported",
            "sosa:resultTime",
        ),
        (
            "REGISTER QUERY q AS PREFIX f: <http://larkc.eu/csparql/sparql/jena/ext#>\nSELECT *\n"
            "FROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o FILTER(§f:timestamp(?s,?p,?o) > 1) }",
            "The function f:timestamp is not supported",
            "sosa:resultTime",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o }\n"
            "§AGGREGATE { (?n, count, {?s}) }",
            "AGGREGATE is not supported",
            "GROUP BY",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s]\nWHERE {\n ?s ?p §}",
            '"}" is not allowed here',
            "Expected: a term",
        ),
        (
            "REGISTER QUERY q AS SELECT * { ?s ?p ?o } §FROM STREAM <urn:s> [RANGE 1s]",
            "FROM is not allowed here",
            "Expected",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] { ?s §e:p ?o }",
            'The prefix "e:" is not declared',
            "PREFIX e:",
        ),
        (
            "REGISTER QUERY q AS SELECT ?s\nFROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o BIND(1 AS §?s) }",
            "?s already occurs in this group",
            "new variable",
        ),
        (
            "REGISTER QUERY q AS SELECT (COUNT(?s) AS ?n) §?p FROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o }",
            "?p is neither in GROUP BY nor in an aggregate",
            "GROUP BY",
        ),
        (
            "REGISTER QUERY q AS SELECT * FROM STREAM <urn:s> [RANGE 1s] { ?s ?p §'x }",
            "The string is not closed",
            "Add '",
        ),
        (
            "REGISTER QUERY q AS CONSTRUCT { ?s ?p ?o } FROM STREAM <urn:s> [RANGE 1s]\n{ ?s ?p ?o } §GROUP BY ?s",
            "GROUP BY is supported only in SELECT queries",
            "sub-select",
        ),
        (
            "REGISTER QUERY q AS SELECT ?s §?s FROM STREAM <urn:s> [RANGE 1s] { ?s ?p ?o }",
            "?s occurs twice in SELECT",
            "once",
        ),
        (
            "REGISTER QUERY q AS ASK FROM STREAM <urn:s> [RANGE 1s] { ?s ?p '§\\q' }",
            "\\q is not an escape sequence",
            "two backslashes",
        ),
    ],
)
def test_errors_have_a_place_and_a_remedy(text, problem, remedy):
    where, text = place(text, "§")
    message = error(text)
    assert where in message
    before, _, after = message.partition(where)
    assert problem in before
    assert remedy in after


def test_limits():
    stream = "FROM STREAM <urn:s> [RANGE 1s]"
    text = "REGISTER QUERY q AS SELECT * { " + "{" * 100
    assert "deeper than 100 levels (line 1, column 131)" in error(text, LimitExceeded)
    text = f"REGISTER QUERY q AS SELECT * {stream} {{ ?s ?p {'1 ' * MAX_TEXT} }}"
    assert "65,536" in error(text, LimitExceeded)
    text = f"REGISTER QUERY q AS SELECT * {stream} {{ ?s ?p ?o FILTER({'!' * 2000}?o) }}"
    assert "operators" in error(text, LimitExceeded)


def test_half_of_a_character():
    message = error("REGISTER QUERY q # \ud800\nAS SELECT * FROM STREAM <urn:s> [RANGE 1s] {}")
    assert "surrogate) (line 1, column 20)" in message
