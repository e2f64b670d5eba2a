"""SPARQL over a table with hand-written queries: the answers must be those of Oxigraph, or as the standard defines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from history_data import EX, MIDNIGHT, frame, numbered, readings
from history_oracles import Oxigraph, Row, canonical

from edge.outbox.observation import QUDT, SOSA, XSD, Cells, ObservationContext
from spark_offload import export
from spark_offload.errors import QueryRefused
from spark_offload.history import History
from spark_offload.spark_errors import first_line
from spark_offload.sparql import closure
from tests.support.function_cases import CASES, wanted
from tests.support.function_cases import PREFIXES as CASES_PREFIXES

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

PREFIXES = f"PREFIX ex: <{EX}> PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX xsd: <{XSD}> "
QUADS = f"""<{EX}a> <{EX}p> "1"^^<{XSD}integer> .
<{EX}a> <{EX}p> "2"^^<{XSD}integer> .
<{EX}b> <{EX}p> "3"^^<{XSD}integer> .
<{EX}c> <{EX}p> "9223372036854775807"^^<{XSD}integer> .
<{EX}d> <{EX}d> "-2.5"^^<{XSD}decimal> .
<{EX}a> <{EX}name> "A"@en .
<{EX}b> <{EX}name> "B"^^<{EX}type> .
<{EX}c> <{EX}name> "C" .
<{EX}a> <{EX}q> <{EX}b> .
<{EX}b> <{EX}q> <{EX}c> .
<{EX}t> <{EX}t> "2026-01-01T24:00:00Z"^^<{XSD}dateTime> .
<{EX}t> <{EX}t> "2026-01-01T10:00:00Z"^^<{XSD}dateTime> .
<{EX}e> <{EX}pattern> "^[a-z]$" .
<{EX}e> <{EX}pattern> "(" .
<{EX}e> <{EX}pattern> "x|a$" .
<{EX}a> <{EX}r> <{EX}b> .
<{EX}b> <{EX}r> <{EX}c> .
<{EX}c> <{EX}r> <{EX}a> .
<{EX}c> <{EX}r> <{EX}d> .
<{EX}e> <{EX}r> <{EX}e> .
<{EX}a> <{EX}r> <{EX}b> <{EX}g1> .
<{EX}b> <{EX}r> <{EX}c> <{EX}g1> .
<{EX}c> <{EX}r> <{EX}d> <{EX}g2> .
<{EX}s> <{EX}p> "5"^^<{XSD}integer> <{EX}g1> .
<{EX}s> <{EX}p> "6"^^<{XSD}integer> <{EX}g2> ."""
ROWS = [
    *readings("m", ["14.1"] * 3),
    (ObservationContext(series=f"{EX}observation/l", sensor=f"{EX}sensor/l", datatype=XSD + "integer"),
     Cells(MIDNIGHT, "9007199254740993")),
    (ObservationContext(series=f"{EX}observation/l", sensor=f"{EX}sensor/l", datatype=XSD + "integer"),
     Cells(MIDNIGHT, "1")),
    (ObservationContext(series=f"{EX}observation/d", datatype=XSD + "dayTimeDuration"), Cells(MIDNIGHT, "PT1H")),
    (ObservationContext(series=f"{EX}observation/e", datatype=XSD + "date"), Cells(MIDNIGHT, "2025-07-01")),
    (ObservationContext(), Cells(MIDNIGHT, quads=QUADS)),
]  # fmt: skip
VALUE = "?r qudt:numericValue ?v"
HOUR = f'"PT1H"^^<{XSD}dayTimeDuration>'
DAY = f'"-P1DT2H"^^<{XSD}dayTimeDuration>'
NOON = f'"2026-01-01T12:00:00.5Z"^^<{XSD}dateTime>'
LOCAL = f'"2026-01-01T12:00:00+05:30"^^<{XSD}dateTime>'
NO_ZONE = f'"2026-01-01T12:00:00"^^<{XSD}dateTime>'
OF_SENSOR = "?x sosa:hasResult/qudt:numericValue ?v ; sosa:madeBySensor"


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> History:
    return History(spark, frame(spark, numbered(ROWS)).coalesce(1).cache())


@pytest.fixture(scope="module")
def oxigraph(history: History) -> Oxigraph:
    return Oxigraph(row.line for row in export.lines(history._content.rows).collect())


def checkpoints(history: History) -> set[int]:
    """Return the numbers of the stored results in Spark."""
    return set(history._spark.sparkContext._jsc.getPersistentRDDs())


def answer(history: History, text: str) -> list[Row]:
    """Return the answer in the form of the oracles."""
    form = history.form(text)
    if form == "ASK":
        return [()] if history.ask(text) else []
    found = history.sparql(text) if form == "SELECT" else history.construct(text)
    names = sorted(found.columns) if form == "SELECT" else ["subject", "predicate", "object"]
    return [tuple(map(canonical, row)) for row in found.select(*(f"`{name}`" for name in names)).collect()]


QUERIES = {
    "distinct, in order, limited": "SELECT DISTINCT ?o { ?s ex:p ?o } ORDER BY DESC(?o) LIMIT 2",
    "distinct in the order of another variable": "SELECT DISTINCT ?s { ?s ex:p ?o } ORDER BY DESC(?o) LIMIT 2",
    "OPTIONAL that is false": "SELECT ?s ?n { ?s ex:p ?o OPTIONAL { ?s ex:name ?n FILTER(false) } }",
    "a nested FILTER": "SELECT ?s ?o ?n { ?s ex:p ?o { ?s ex:name ?n FILTER(!BOUND(?o)) } }",
    "a nested FILTER of an outer variable": "SELECT ?s ?o ?n { ?s ex:p ?o { ?s ex:name ?n FILTER(?o > 1) } }",
    "an absent graph": "ASK { GRAPH ex:absent {} }",
    "an absent graph, joined": "SELECT ?s { ?s ex:q ?o GRAPH ex:absent { OPTIONAL { ?s ex:p ?x } } }",
    "a graph": "SELECT ?s { ?s ex:q ?o GRAPH ex:g1 {} }",
    "a graph variable that may be unbound": "SELECT * { GRAPH ?g { ?s ex:p ?o OPTIONAL { ?s ex:absent ?g } } }",
    "patterns of three graphs": "SELECT * { ?x ex:r ?y GRAPH ex:g1 { ?y ex:r ?z } GRAPH ex:g2 { ?z ex:r ?w } }",
    "two graphs": "SELECT * FROM ex:g1 FROM ex:g2 { ?s ex:p ?o }",
    "only named graphs": "SELECT * FROM NAMED ex:g1 { { ?s ex:p ?o } UNION { GRAPH ?g { ?s ex:p ?o } } }",
    "a sum beyond 64 bits": "SELECT (SUM(?o) AS ?n) { ?s ex:p ?o }",
    "an exact sum of terms": "SELECT (SUM(?o) AS ?n) (SUM(DISTINCT ?o) AS ?m) { VALUES ?o { 9007199254740993 1 } }",
    "an exact sum of readings": f"SELECT (SUM(?v) AS ?n) {{ {OF_SENSOR} <{EX}sensor/l> }}",
    "equal large numbers": f"SELECT ?v {{ {VALUE} FILTER(?v = 9007199254740992 || ?v + 1 = 9007199254740994) }}",
    "a mean of decimals": f"SELECT (AVG(?v) AS ?n) {{ {OF_SENSOR} <{EX}sensor/m> }}",
    "patterns after a subquery": """SELECT * { { SELECT ?s (MAX(?o) AS ?m) { ?s ex:p ?o } GROUP BY ?s }
        ?s ex:q _:x FILTER(?w > 0) _:x ex:p ?w BIND(?w + 1 AS ?k) ?s ex:q ?z MINUS { ?s ex:p ?w } }""",
    "unequal literals": "SELECT ?a ?b { ?s ex:name ?a . ?t ex:name ?b FILTER(?a != ?b) }",
    "unequal to an unbound variable": """SELECT * {
        ?s ex:q ?o OPTIONAL { ?o ex:q ?w } FILTER(?o != ?w || ?w != ?o || ?w NOT IN (?o)) }""",
    "comparisons with an unbound variable": """SELECT * { ?s ex:q ?o OPTIONAL { ?o ex:q ?w }
        BIND(?o = ?w AS ?a) BIND(?w != ?o AS ?b) BIND(?o IN (?w, 1) AS ?c) BIND(!(?w = ex:a) AS ?d) }""",
    "comparisons with an unbound column": """SELECT ?x ?a ?b ?c ?d { ?x sosa:madeBySensor ?s
        OPTIONAL { ?x sosa:observedProperty ?p } BIND(?s = ?p AS ?a) BIND(?p != ex:b AS ?b)
        BIND(?s NOT IN (?p, 1) AS ?c) BIND(?p = "x" AS ?d) }""",
    "unequal to an unbound column": """SELECT ?x { ?x sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v
        OPTIONAL { ?x sosa:observedProperty ?p } FILTER(?p != "x" || ?v != ?p || ?p NOT IN (1, "y")) }""",
    "the hour 24": 'SELECT ?t { ?s ex:t ?t FILTER(?t >= "2026-01-02T00:00:00Z"^^xsd:dateTime) }',
    "times": f"SELECT ?d ?p {{ ?s ex:t ?t, ?u FILTER(?t < ?u) BIND(?u - ?t AS ?d) BIND(?t - {HOUR} AS ?p) }}",
    "an empty template": "CONSTRUCT {} WHERE {}",
    "a large LIMIT": "SELECT ?o { { SELECT ?o { ?s ex:q ?o } LIMIT 2147483648 } } LIMIT 4294967296",
    "negative numbers": "SELECT ?s { ?s ex:d -2.5 . ?s ex:d ?o VALUES ?o { -2.5 -3 } }",
    "nested EXISTS": """SELECT ?s ?o {
        ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x FILTER EXISTS { ?x ex:p ?y FILTER(?y > ?o) } } }""",
    "OPTIONAL in EXISTS": """SELECT ?s ?o {
        ?s ex:p ?o FILTER EXISTS { ?s ex:q ?x OPTIONAL { ?x ex:p ?y FILTER(?y > ?o) } FILTER(BOUND(?y)) } }""",
    "OPTIONAL of an outer variable in EXISTS": """SELECT ?s ?o {
        ?s ex:p ?o FILTER EXISTS { ?t ex:q ?x OPTIONAL { ?x ex:p ?o } FILTER(!BOUND(?none)) } }""",
    "NOT EXISTS in NOT EXISTS": """SELECT ?s ?o {
        ?s ex:p ?o FILTER NOT EXISTS { ?t ex:p ?y FILTER NOT EXISTS { ?s ex:q ?z FILTER(?y < ?o) } } }""",
    "UNION in EXISTS": """SELECT ?s ?o {
        ?s ex:p ?o FILTER EXISTS { { ?x ex:p ?y FILTER(?y > ?o) } UNION { ?x ex:d ?y FILTER(?o = 1) } } }""",
    "BIND in EXISTS": "SELECT ?s ?o { ?s ex:p ?o FILTER EXISTS { BIND(?o + 1 AS ?y) ?x ex:p ?y } }",
    "MINUS in EXISTS": """SELECT ?s ?o {
        ?s ex:p ?o FILTER EXISTS { ?x ex:p ?y MINUS { ?x ex:p ?y FILTER(?y <= ?o) } } }""",
    "EXISTS in OPTIONAL": """SELECT ?s ?o ?n {
        ?s ex:p ?o OPTIONAL { ?s ex:name ?n FILTER EXISTS { ?z ex:p ?y FILTER(?y > ?o) } } }""",
    "EXISTS in an expression": """SELECT ?s ?o {
        ?s ex:p ?o FILTER(?o = 1 || EXISTS { ?s ex:q ?x FILTER(EXISTS { ?x ex:p ?y FILTER(?y > ?o) } || false) }) }""",
    "patterns in the data": """SELECT ?p ?found ?new {
        ?e ex:pattern ?p BIND(REGEX("a", ?p) AS ?found) BIND(REPLACE("a", ?p, "[$9]") AS ?new) }""",
    "patterns in the data, in OPTIONAL": """SELECT ?p ?n {
        ?e ex:pattern ?p OPTIONAL { ?s ex:name ?n FILTER(REGEX(LCASE(STR(?n)), ?p)) } }""",
    "DESCRIBE": "DESCRIBE ex:a ?s { ?s ex:q ex:c }",
    "random values": """SELECT (COUNT(DISTINCT ?u) AS ?n) (COUNT(DISTINCT ?v) AS ?m) (COUNT(DISTINCT ?b) AS ?k) {
        ?s ex:p ?o BIND(UUID() AS ?u) BIND(STRUUID() AS ?v) BIND(BNODE() AS ?b) BIND(RAND() AS ?r) ?x ex:d ?y
        FILTER(ISIRI(?u) && STRLEN(?v) = 36 && ISBLANK(?b) && ?r >= 0 && ?r < 1) }""",
    "UUID before a join": "SELECT (COUNT(DISTINCT ?u) AS ?n) { { BIND(UUID() AS ?u) } ?s ex:p ?o }",
    "GRAPH in EXISTS with an outer variable": """SELECT ?s ?o ?g {
        GRAPH ?g { ?s ex:p ?o } FILTER EXISTS { GRAPH ?h { ?s ex:p 6 FILTER(?o = 5) } } }""",
    "the same graph in EXISTS": """SELECT ?s ?o ?g {
        GRAPH ?g { ?s ex:p ?o } FILTER EXISTS { GRAPH ?g { ?s ex:p ?x OPTIONAL { ?x ex:p ?o } FILTER(?x > 5) } } }""",
    "a mean of no numbers": "SELECT (AVG(?n) AS ?m) { ?s ex:name ?n }",
    "a mean of nothing bound": "SELECT (AVG(?x) AS ?m) { ?s ex:q ?o OPTIONAL { ?s ex:absent ?x } }",
    "the longest of some times": "SELECT (MAX(?u - ?t) AS ?d) (MIN(?u - ?t) AS ?e) { ?s ex:t ?t, ?u }",
    "a comparison of durations": f'SELECT ?v {{ {VALUE} FILTER(?v > "PT40M"^^xsd:dayTimeDuration) }}',
    "a comparison of dates": f'SELECT ?v (YEAR(?v) AS ?y) {{ {VALUE} FILTER(?v > "2025-06-01"^^xsd:date) }}',
    "durations in variables": f"""SELECT * {{ VALUES ?d {{ {HOUR} {DAY} "PT0.5S"^^xsd:dayTimeDuration 7 "x" }}
        VALUES ?e {{ {HOUR} {DAY} 2.5 }} BIND(?d - ?e AS ?m) BIND(?d < ?e AS ?l) }}""",
    "times and durations in variables": f"""SELECT * {{ VALUES ?t {{ {NOON} {LOCAL} {NO_ZONE} }}
        VALUES ?d {{ {HOUR} {DAY} 1 }} BIND(?t + ?d AS ?a) BIND(?a - ?t AS ?e) }}""",
    "a reading and a duration": f"SELECT ?v (?v + {DAY} AS ?d) {{ {VALUE} FILTER(DATATYPE(?v) != xsd:date) }}",
    "a sum of sums": """SELECT (SUM(?d + ?e) AS ?n) (COUNT(DISTINCT ?d + ?e) AS ?c) {
        VALUES ?d { 1 2.5 } VALUES ?e { 3 1.5 } }""",
    "large integers in order": """SELECT ?o { VALUES ?o {
        -9007199254740993 9007199254740993 -9007199254740994 -9007199254740992 9007199254740992 -1 } } ORDER BY ?o""",
    "many unequal values": f"SELECT ?o {{ ?s ex:p ?o FILTER({' && '.join(f'?o != {n}' for n in range(2, 102))}) }}",
    "many unequal readings": f"SELECT ?v {{ {VALUE} FILTER({' && '.join(f'?v != {n}' for n in range(1, 101))}) }}",
    "not in many values": f"SELECT ?o {{ ?s ex:p ?o FILTER(?o NOT IN ({', '.join(map(str, range(2, 102)))})) }}",
    "a long sum of terms": f"SELECT ({'+'.join(['?o'] * 60)} AS ?y) {{ ?s ex:p|ex:t ?o }}",
    "a long sum": f"SELECT ({'+'.join(['?o'] * 100)} AS ?y) {{ ?s ex:p ?o FILTER(?o < 3) }}",
}


PATHS = {
    "*": "SELECT * { ?x ex:r* ?y }",
    "+": "SELECT * { ?x ex:r+ ?y }",
    "?": "SELECT * { ?x ex:r? ?y }",
    "+ from a node": "SELECT * { ex:a ex:r+ ?y }",
    "* to a node": "SELECT * { ?x ex:r* ex:d }",
    "+ between nodes": "ASK { ex:b ex:r+ ex:d }",
    "+ against its direction": "ASK { ex:d ex:r+ ex:b }",
    "a cycle": "SELECT * { ?x ex:r+ ?x }",
    "* of one variable": "SELECT (COUNT(*) AS ?n) { ?x ex:r* ?x }",
    "? between nodes, twice": "SELECT * { ex:e ex:r? ex:e }",
    "* of a term in VALUES": "SELECT * { VALUES ?x { ex:absent ex:b } ?x ex:r* ?y }",
    "+ of a sequence": "SELECT * { ?x (ex:r/ex:q)+ ?y }",
    "+ of alternatives": "SELECT * { ?x (ex:q|^ex:r)+ ?y FILTER(?y != ex:a) }",
    "* of *": "SELECT * { ex:a (ex:r*)* ?y }",
    "? of ?": "SELECT * { ex:a (ex:r?)? ?y }",
    "* in a sequence": "SELECT * { ?x ex:q/ex:r*/ex:p ?y }",
    "+ in each graph": "SELECT * { GRAPH ?g { ?x ex:r+ ?y } }",
    "* in each graph": "SELECT * { GRAPH ?g { ?x ex:r* ?y } }",
    "+ in a graph": "SELECT * { GRAPH ex:g1 { ?x ex:r+ ?y } }",
    "+ in merged graphs": "SELECT * FROM ex:g1 FROM ex:g2 { ?x ex:r+ ?y }",
    "+ in EXISTS": "SELECT * { ?x ex:p ?o FILTER EXISTS { ?x ex:r+ ex:d } }",
    "+ of readings": "SELECT ?x ?v { ?x (sosa:hasResult|qudt:numericValue)+ ?v FILTER(ISNUMERIC(?v)) }",
    "another predicate": "SELECT * { ex:a !ex:p ?y }",
    "another predicate, backwards": "SELECT * { ex:c !(^ex:q) ?y }",
    "other predicates, both ways": "SELECT DISTINCT ?y { ex:b !(ex:p|^ex:q|^ex:x|ex:name) ?y }",
    "+ of other predicates": "SELECT * { ex:a (!(ex:p|^ex:q))+ ?y FILTER(ISIRI(?y)) }",
}
ZERO = {
    "SELECT * { ex:absent ex:r* ?y }": [(f"<{EX}absent>",)],
    'SELECT * { ?x ex:r? "absent" }': [('"absent"',)],
    "SELECT * { ex:absent ex:r* ex:absent }": [()],
    "SELECT * { GRAPH ?g { ex:c ex:r* ?y } }": [
        (f"<{EX}g1>", f"<{EX}c>"),
        (f"<{EX}g2>", f"<{EX}c>"),
        (f"<{EX}g2>", f"<{EX}d>"),
    ],
}
"""Solutions of paths of length zero at terms that a graph does not contain (section 18.4). Oxigraph has none."""
JOINED = ("+", "*", "+ from a node", "* to a node", "a cycle", "+ in each graph")
"""Paths that are also joined in Spark, as if there were many steps."""


@pytest.mark.parametrize("name", PATHS)
def test_a_path_has_the_solutions_of_oxigraph(history: History, oxigraph: Oxigraph, name: str) -> None:
    assert_equal_answers(history, oxigraph, PREFIXES + PATHS[name])


@pytest.mark.parametrize("text", ZERO)
def test_a_path_of_length_zero_connects_a_term_with_itself(history: History, text: str) -> None:
    assert sorted(answer(history, PREFIXES + text)) == ZERO[text]


@pytest.mark.parametrize("name", JOINED)
def test_a_path_that_is_joined_has_the_same_solutions(
    history: History, oxigraph: Oxigraph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure, "MAX_LOCAL_STEPS", 0)
    before = checkpoints(history)
    assert_equal_answers(history, oxigraph, PREFIXES + PATHS[name])
    assert len(checkpoints(history) - before) <= 1, "only the result"


@pytest.mark.parametrize(("limit", "named"), [("MAX_PAIRS", "pairs of nodes"), ("MAX_ROUNDS", "rounds")])
def test_a_path_beyond_its_limits_is_refused(
    history: History, limit: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closure, "MAX_LOCAL_PAIRS", 1)
    monkeypatch.setattr(closure, limit, 1)
    before = checkpoints(history)
    with pytest.raises(QueryRefused, match=named):
        answer(history, PREFIXES + PATHS["+"])
    assert checkpoints(history) <= before


@pytest.mark.parametrize("name", QUERIES)
def test_the_answer_is_that_of_oxigraph(history: History, oxigraph: Oxigraph, name: str) -> None:
    assert_equal_answers(history, oxigraph, PREFIXES + QUERIES[name])


def assert_equal_answers(history: History, oxigraph: Oxigraph, text: str) -> None:
    found = answer(history, text)
    form = "CONSTRUCT" if history.form(text) == "DESCRIBE" else history.form(text)
    expected = oxigraph.answer(text, form)
    if "ORDER BY" not in text:
        found, expected = sorted(found, key=repr), sorted(expected, key=repr)
    assert found == expected


def test_functions_have_the_results_of_the_live_graph(history: History) -> None:
    found: dict[str, object] = {}
    calls = list(CASES)
    for begin in range(0, len(calls), 24):
        part = calls[begin : begin + 24]
        text = CASES_PREFIXES + f"SELECT * {{ {' '.join(f'BIND({call} AS ?x{n})' for n, call in enumerate(part))} }}"
        (row,) = history.sparql(text).collect()
        # The hour 24 and the lexical forms of times remain as they are written; the live graph has the values.
        found |= {call: canonical(row[f"x{n}"]) for n, call in enumerate(part)}
    assert found == {call: wanted(result) for call, result in CASES.items()}


@pytest.mark.parametrize("pattern", ["(a|b)*$", "(?:ab|ba){2,}$", "[ab]{9999}", "(a+)+c", "(x|(a|b)+)+$"])
def test_a_regular_expression_never_ends_the_session(history: History, pattern: str) -> None:
    """Java's engine recurses for each repetition of a group. An overflow of the stack would end the process."""
    text = f"""SELECT ?found ?new {{ VALUES (?n ?t) {{ (1 "{"ab" * 100_000}") (2 "abab") }} VALUES ?p {{ "{pattern}" }}
        BIND(REGEX(?t, "{pattern}") AS ?found) BIND(REPLACE(?t, ?p, "") AS ?new)
        FILTER(REGEX("no", "{pattern}") || true) }} ORDER BY ?n"""
    long, short = answer(history, text)
    matches = re.search(pattern, "abab") is not None
    assert short == (f'"{str(matches).lower()}"^^<{XSD}boolean>', '""' if matches else '"abab"')
    assert len(long) == 2  # an error of its row, or the result


def test_functions_on_long_texts_never_end_the_session(history: History) -> None:
    text = f"""SELECT ?x {{ VALUES ?t {{ "{"-ab" * 50_000}" }} BIND(CONCAT("a", ?t) AS ?u)
        BIND(STRLANG("x", ?u) AS ?l) BIND(STRLEN(REPLACE("x", "x", ?u)) AS ?x) }}"""
    assert answer(history, text) == [(f'"150001"^^<{XSD}integer>',)]


def test_a_sum_of_many_decimals_is_exact(history: History) -> None:
    """The error of a sum of doubles would be visible: this one ends with 99.9999999999986."""
    digits = " ".join(map(str, range(10)))
    values = " ".join(f"VALUES ?{name} {{ {digits} }}" for name in "abc")
    (row,) = history.sparql(f"SELECT (AVG(?v) AS ?mean) (SUM(?v) AS ?sum) {{ {values} BIND(0.1 AS ?v) }}").collect()
    assert tuple(row) == (f'"0.1"^^<{XSD}decimal>', f'"100"^^<{XSD}decimal>')


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT * { ?s ?p ?o } OFFSET 2147483648", "OFFSET"),
        ("SELECT * { ?s ex:p ?o FILTER EXISTS { { SELECT ?o { ?x ex:p ?y FILTER(?y > ?o) } LIMIT 1 } } }", "LIMIT"),
        ('SELECT * { ?s ex:p ?o FILTER(REGEX(STR(?o), "\\\\p{IsGreek}")) }', "IsGreek"),
        ("SELECT (BNODE(?o) AS ?b) { ?s ex:p ?o }", "BNODE with an argument"),
    ],
)
def test_unsupported_queries_are_refused_by_name(history: History, query: str, named: str) -> None:
    with pytest.raises(QueryRefused, match=named):
        answer(history, PREFIXES + query)


def test_a_failed_write_names_its_cause(spark: SparkSession, tmp_path: Path) -> None:
    """Without the cause, the text would be `An error occurred while calling o282.save`."""
    (tmp_path / "file").write_text("")
    with pytest.raises(Exception, match="file") as failed:
        spark.range(1).write.parquet(str(tmp_path / "file" / "table"))
    assert "calling o" not in first_line(failed.value)
    assert str(tmp_path / "file") in first_line(failed.value)
