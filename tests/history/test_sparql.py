"""SPARQL over a table: hand-written queries and answers. Generated ones are compared elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from history_data import DAY, EPOCH, EX, HOUR, MIDNIGHT, frame, numbered, readings, write

from edge.outbox.observation import OWL_TIME, QUDT, RDF, SOSA, XSD, Cells, ObservationContext
from spark_offload.errors import QueryRefused, TableRefused
from spark_offload.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIXES = (
    f"PREFIX ex: <{EX}> PREFIX sosa: <{SOSA}> PREFIX qudt: <{QUDT}> PREFIX time: <{OWL_TIME}> PREFIX xsd: <{XSD}> "
)
SERIES = ObservationContext(series=f"{EX}observation/c", sensor=f"{EX}sensor/c")
MAPPED = [
    *readings("a", ["20", "20.5", "019.50"]),
    *readings("b", ["5", "7"], start=MIDNIGHT + HOUR),
    (SERIES._replace(datatype=XSD + "double"), Cells(MIDNIGHT + DAY, "1e1")),
    (SERIES._replace(datatype=XSD + "double"), Cells(MIDNIGHT + DAY, "NaN")),
    (SERIES._replace(datatype=XSD + "int"), Cells(MIDNIGHT + DAY, "7", "2026-01-02T01:00:00+01:00")),
    (SERIES._replace(datatype=XSD + "boolean"), Cells(MIDNIGHT + DAY, "true", "yesterday")),
    (SERIES._replace(graph=f"{EX}graph"), Cells(MIDNIGHT, 'a "text"\\\n')),
]
CLIENTS = [
    (
        ObservationContext(sensor=f"{EX}sensor/own", feature=f"{EX}place/{number}", datatype=XSD + "integer"),
        Cells(MIDNIGHT, str(30 + number), None, f"{EX}own", f"{EX}own/result/{number}", f"{EX}own/instant"),
    )
    for number in range(2)
]
NOTE = f'<{EX}observation/a/{EPOCH}-1> <{EX}note> "broken"@en .'
ODD = f"<{EX}odd> <{RDF}type> <{SOSA}Observation> .\n<{EX}odd> <{SOSA}madeBySensor> _:b ."
ABOUT_A_ROW = f"<{EX}observation/a/{EPOCH}-1> <{SOSA}madeBySensor> <{EX}sensor/other> ."


@pytest.fixture(scope="module")
def mapped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Write a Delta table of observations that plain mappings stored."""
    return History(spark, write(spark, tmp_path_factory.mktemp("mapped") / "table", numbered(MAPPED[:5])))


@pytest.fixture(scope="module")
def mixed(spark: SparkSession) -> History:
    """Rows of all kinds."""
    rows = numbered(
        [
            *MAPPED,
            *CLIENTS,
            (ObservationContext(), Cells(MIDNIGHT, quads=NOTE)),
            (ObservationContext(), Cells(MIDNIGHT, quads=ODD)),
        ]
    )
    return History(spark, frame(spark, rows).cache())


def answers(history: History, query: str) -> list[tuple[str | None, ...]]:
    """Return the solutions in short form."""
    return sorted(
        (
            tuple(None if term is None else short(term) for term in row)
            for row in history.sparql(PREFIXES + query).collect()
        ),
        key=repr,
    )


def short(term: str) -> str:
    """Return a term with prefixes."""
    for prefix, iri in (
        ("ex:", EX),
        ("xsd:", XSD),
        ("sosa:", SOSA),
        ("qudt:", QUDT),
        ("time:", OWL_TIME),
        ("rdf:", RDF),
    ):
        term = term.replace(f"<{iri}", prefix) if f"<{iri}" in term else term
    return term.replace(">", "")


def decimal(text: str) -> str:
    return f'"{text}"^^xsd:decimal'


def integer(number: int) -> str:
    return f'"{number}"^^xsd:integer'


def test_a_star_is_one_scan_of_the_needed_columns(mapped: History) -> None:
    reported = mapped.explain(
        PREFIXES + "SELECT ?s (AVG(?v) AS ?mean) { ?o sosa:madeBySensor ?s ; sosa:hasResult [ qudt:numericValue ?v ;"
        " time:hasTime/time:inXSDDateTimeStamp ?t ]"
        ' FILTER (?v > 20 && ?t >= "2026-01-01T00:00:00Z"^^xsd:dateTime) } GROUP BY ?s'
    )
    assert reported.count("Scan parquet") == 2, reported  # in the tree, and described
    assert "a star: one scan of rows, 5 patterns" in reported
    scan = {line.split(": ")[0]: line for line in reported.splitlines() if line.startswith("  scan (1)")}
    assert "value_text" not in scan["  scan (1) columns"]
    assert "date >= 2026-01-01" in scan["  scan (1) days"]
    assert "GreaterThan(value,20.0)" in scan["  scan (1) conditions"]
    assert "GreaterThanOrEqual(ts,2026-01-01 00:00:00.0)" in scan["  scan (1) conditions"]


def test_means_by_sensor_and_hour(mapped: History) -> None:
    found = answers(
        mapped,
        "SELECT ?s ?h (AVG(?v) AS ?mean) (MIN(?v) AS ?least) (MAX(?v) AS ?most) (COUNT(*) AS ?n) (SUM(?v) AS ?sum)"
        "{ ?o sosa:madeBySensor ?s ; sosa:hasResult ?r . ?r qudt:numericValue ?v ;"
        " time:hasTime/time:inXSDDateTimeStamp ?t } GROUP BY ?s (HOURS(?t) AS ?h) HAVING (COUNT(*) > 1)",
    )
    assert found == [
        ("ex:sensor/a", integer(0), decimal("20"), decimal("019.50"), decimal("20.5"), integer(3), decimal("60")),
        ("ex:sensor/b", integer(1), decimal("6"), decimal("5"), decimal("7"), integer(2), decimal("12")),
    ]


def test_a_derived_iri_is_a_row(mapped: History) -> None:
    query = f"<{EX}observation/b/{EPOCH}-4> sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v"
    assert answers(mapped, f"SELECT * {{ {query} }}") == [("ex:sensor/b", decimal("5"))]
    assert not mapped.ask(PREFIXES + f"ASK {{ <{EX}observation/a/{EPOCH}-4> sosa:madeBySensor ?s }}")


def test_order_and_limit(mapped: History) -> None:
    rows = mapped.sparql(
        PREFIXES + "SELECT ?v { ?r qudt:numericValue ?v } ORDER BY DESC(?v) LIMIT 2 OFFSET 1"
    ).collect()
    assert [short(row.v) for row in rows] == [decimal("20"), decimal("019.50")]


def test_numbers_compare_by_value_and_match_by_term(mixed: History) -> None:
    assert answers(mixed, "SELECT ?v { ?r qudt:numericValue ?v FILTER (?v = 7.0) }") == [
        ('"7"^^xsd:decimal',),
        ('"7"^^xsd:int',),
    ]
    assert answers(mixed, "SELECT ?r { ?r qudt:numericValue 7 }") == []
    found = answers(mixed, "SELECT ?v { ?r qudt:numericValue ?v FILTER (?v > 9 && !(?v = 20)) }")
    assert [term for (term,) in found] == [
        '"019.50"^^xsd:decimal',
        '"1e1"^^xsd:double',
        '"20.5"^^xsd:decimal',
        *map(integer, (30, 31)),
    ]


def test_times_of_different_zones_compare(mixed: History) -> None:
    found = answers(
        mixed,
        'SELECT ?i { ?i time:inXSDDateTimeStamp ?t FILTER (?t >= "2026-01-02T00:00:00"^^xsd:dateTime'
        ' && ?t < "2026-01-02T02:00:00+01:00"^^xsd:dateTime) }',
    )
    assert found == [(f"ex:observation/c/{EPOCH}-{seq}/instant",) for seq in (6, 7, 8)]


def test_repeated_triples_are_counted_once(mixed: History) -> None:
    """One observation was written twice, with two quantities: each pair of its values is a solution once."""
    found = answers(mixed, "SELECT ?f ?v { ex:own sosa:hasFeatureOfInterest ?f ; sosa:hasResult/qudt:numericValue ?v }")
    assert found == [(f"ex:place/{place}", integer(value)) for place in range(2) for value in (30, 31)]


def test_quads_about_an_observation_are_joined_with_its_row(mixed: History) -> None:
    assert answers(mixed, "SELECT ?v ?note { ?o ex:note ?note ; sosa:hasResult/qudt:numericValue ?v }") == [
        (decimal("20"), '"broken"@en')
    ]


def test_additional_triples_about_rows_are_found(spark: SparkSession) -> None:
    rows = numbered([*MAPPED[:1], (ObservationContext(), Cells(MIDNIGHT, quads=ABOUT_A_ROW))])
    history = History(spark, frame(spark, rows))
    found = answers(history, "SELECT ?s ?v { ?o sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v }")
    assert found == [("ex:sensor/a", decimal("20")), ("ex:sensor/other", decimal("20"))]


def test_graphs(mixed: History) -> None:
    inside = ("ex:graph", f"ex:observation/c/{EPOCH}-10", '"a \\"text\\"\\\\\\n"')
    assert answers(mixed, "SELECT ?g ?o ?v { GRAPH ?g { ?o sosa:hasResult/qudt:numericValue ?v } }") == [inside]
    assert answers(mixed, "SELECT ?v FROM ex:graph { ?r qudt:numericValue ?v }") == [inside[2:]]
    assert not mixed.ask(PREFIXES + "ASK { GRAPH ex:other { ?s ?p ?o } }")


def test_optional_union_minus_exists(mixed: History) -> None:
    found = answers(
        mixed,
        """SELECT ?s ?f ?e (COUNT(*) AS ?n) {
            { ?o sosa:madeBySensor ?s } UNION { ?o ex:note ?s }
            OPTIONAL { ?o sosa:hasFeatureOfInterest ?f FILTER (?f != ex:place\\/1) }
            MINUS { ?x sosa:madeBySensor ?s FILTER (?s = ex:sensor\\/b) }
            BIND (EXISTS { ?o ex:note ?note } AS ?e)
            FILTER NOT EXISTS { ?o sosa:hasResult/qudt:numericValue ?v FILTER (?v < 8) }
        } GROUP BY ?s ?f ?e""",
    )
    true, false = (f'"{truth}"^^xsd:boolean' for truth in ("true", "false"))
    assert found == sorted(
        [
            ('"broken"@en', "ex:place/a", true, integer(1)),
            ("_:b", None, false, integer(1)),
            ("ex:sensor/a", "ex:place/a", false, integer(2)),
            ("ex:sensor/a", "ex:place/a", true, integer(1)),
            ("ex:sensor/c", None, false, integer(3)),
            ("ex:sensor/own", "ex:place/0", false, integer(1)),
        ],
        key=repr,
    )


def test_unbound_values_join_with_any_value(mixed: History) -> None:
    found = answers(
        mixed,
        "SELECT ?a ?b { VALUES (?a ?b) { (1 UNDEF) (UNDEF 2) (3 4) } VALUES (?a ?b) { (1 2) (3 UNDEF) (UNDEF 4) } }",
    )
    assert found == sorted(
        [(integer(1), integer(2))] * 2
        + [(integer(1), integer(4))]
        + [(integer(3), integer(2)), (integer(3), integer(4))]
        + [(integer(3), integer(4))],
        key=repr,
    )


def test_errors_in_groups(mixed: History) -> None:
    (found,) = answers(
        mixed,
        "SELECT (SUM(?x) AS ?sum) (AVG(?y) AS ?mean) (MAX(?x) AS ?most) (COUNT(?x) AS ?n) (SAMPLE(?y) AS ?one)"
        " (GROUP_CONCAT(?y; SEPARATOR='+') AS ?all) (SUM(DISTINCT ?y) AS ?once) { VALUES (?x ?y) { (1 2) (UNDEF 2) } }",
    )
    assert found == (None, decimal("2"), None, integer(1), integer(2), '"2+2"', integer(2))
    assert answers(mixed, "SELECT (SUM(?v) AS ?t) (AVG(?v) AS ?a) (MIN(?v) AS ?m) { ?s ex:nothing ?v }") == [
        (integer(0), integer(0), None)
    ]


EXPRESSIONS = {
    "1 / 3": decimal("0.333333333333333"),
    "2 + 2.5": decimal("4.5"),
    "2.5e0 * 2": '"5.0"^^xsd:double',
    "1 / 0": None,
    "7 - 10": integer(-3),
    "-(3)": integer(-3),
    "9223372036854775807 + 1": None,
    "1 = 1.0": "true",
    '"a" < "b"': "true",
    '"a" = 1': "false",
    '"a"^^ex:a = "b"^^ex:a': None,
    "ex:a != ex:b": "true",
    '"NaN"^^xsd:double = "NaN"^^xsd:double': "false",
    "true || (1 / 0)": "true",
    "false || (1 / 0)": None,
    "false && (1 / 0)": "false",
    '!("" || 0)': "true",
    "1 IN (2, 1.0)": "true",
    "1 NOT IN ()": "true",
    "1 IN (1 / 0, 2)": None,
    "IF(1 < 2, 'x', ex:y)": '"x"',
    "IF(1 / 0, 1, 2)": None,
    "COALESCE(1 / 0, ?none, 5)": integer(5),
    "BOUND(?none)": "false",
    "STR(ex:a)": '"http://example.org/a"',
    "DATATYPE(1.5)": "xsd:decimal",
    'DATATYPE("x"@en)': "rdf:langString",
    'LANG("x"@EN)': '"en"',
    'LANGMATCHES("en-gb", "EN")': "true",
    "ISIRI(ex:a)": "true",
    "ISLITERAL(ex:a)": "false",
    'ISNUMERIC("x"^^xsd:integer)': "false",
    'SAMETERM("1"^^xsd:integer, "01"^^xsd:integer)': "false",
    'IRI("http://example.org/z")': "ex:z",
    'STRDT("5", xsd:int)': '"5"^^xsd:int',
    'STRLANG("chat", "FR")': '"chat"@fr',
    "ABS(-2.5)": decimal("2.5"),
    "ROUND(-2.5)": decimal("-2"),
    "CEIL(2.1)": decimal("3"),
    "FLOOR(-2.1)": decimal("-3"),
    'STRLEN("é😀")': integer(2),
    'SUBSTR("motor car", 6)': '" car"',
    'SUBSTR("12345", 0, 3)': '"12"',
    'SUBSTR("metadata"@en, 4, 3)': '"ada"@en',
    'UCASE("a"@en)': '"A"@en',
    'CONTAINS("foobar", "bar"@en)': None,
    'STRSTARTS("foobar"@en, "foo")': "true",
    'STRBEFORE("abc"@en, "bc")': '"a"@en',
    'STRAFTER("abc", "xyz")': '""',
    'CONCAT("a"@en, "b"@en)': '"ab"@en',
    'CONCAT("a", "b"@en)': '"ab"',
    'REPLACE("abcd", "b(c)", "[$1]")': '"a[c]d"',
    'REGEX("Alice", "^al", "i")': "true",
    'ENCODE_FOR_URI("a b/é~*")': '"a%20b%2F%C3%A9~%2A"',
    'MD5("abc")': '"900150983cd24fb0d6963f7d28e17f72"',
    'HOURS("2026-01-01T23:30:00-05:00"^^xsd:dateTime)': integer(23),
    'SECONDS("2026-01-01T23:30:01.5Z"^^xsd:dateTime)': decimal("1.5"),
    'TZ("2026-01-01T23:30:00-05:00"^^xsd:dateTime)': '"-05:00"',
    'xsd:integer("12")': integer(12),
    "xsd:integer(2.9)": integer(2),
    'xsd:integer("2.9")': None,
    'xsd:double("INF")': '"INF"^^xsd:double',
    'xsd:boolean("1")': "true",
    "xsd:string(1.50)": '"1.50"',
    'xsd:dateTime("2026-01-01T00:00:00Z")': '"2026-01-01T00:00:00Z"^^xsd:dateTime',
    '"\\u0001\\\\n\\"" = "\\u0001\\\\n\\""': "true",
}


def test_expressions(mixed: History) -> None:
    names = [f"x{place}" for place in range(len(EXPRESSIONS))]
    binds = " ".join(f"BIND ({one} AS ?{name})" for one, name in zip(EXPRESSIONS, names, strict=True))
    row = mixed.sparql(PREFIXES + f"SELECT * {{ {binds} }}").collect()[0]
    found = {
        one: row[name] and short(row[name]).removesuffix("^^xsd:boolean").strip()
        for one, name in zip(EXPRESSIONS, names, strict=True)
    }
    wanted = {one: f'"{term}"' if term in ("true", "false") else term for one, term in EXPRESSIONS.items()}
    assert found == wanted


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("ex:function(?o)", "http://example.org/function"),
        ("xsd:integer(?o, 1) = 1", "2 arguments"),
    ],
)
def test_conditions_that_are_not_translated_are_refused(mixed: History, condition: str, named: str) -> None:
    with pytest.raises(QueryRefused, match=named):
        mixed.sparql(PREFIXES + f"SELECT * {{ ?s ?p ?o FILTER ({condition}) }}")


def test_construct(mixed: History) -> None:
    rows = mixed.construct(
        PREFIXES + "CONSTRUCT { ?s ex:hot [ ex:value ?v ] ; ex:seen true ; ex:not ?none . ?v ex:is ?s }"
        " { ?o sosa:madeBySensor ?s ; sosa:hasResult/qudt:numericValue ?v FILTER (?v > 20 && ?v < 30) }"
    ).collect()
    (blank,) = {row.object for row in rows if row.object.startswith("_:")}
    assert {tuple(map(short, row)) for row in rows} == {
        ("ex:sensor/a", "ex:hot", blank),
        (blank, "ex:value", decimal("20.5")),
        ("ex:sensor/a", "ex:seen", '"true"^^xsd:boolean'),
    }


def test_query_form_must_match_the_method(mixed: History) -> None:
    with pytest.raises(QueryRefused, match=r"History\.sparql answers a SELECT, and this query is a ASK"):
        mixed.sparql("ASK { ?s ?p ?o }")


def test_missing_table_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "today.txt").write_text("no table")
    for place, reason in (("notes", "other files"), ("notes/today.txt", "is a file")):
        with pytest.raises(TableRefused, match=reason):
            History(spark, str(tmp_path / place)).sparql("SELECT * { ?s ?p ?o }")
    with pytest.raises(TableRefused, match="does not exist"):
        History(spark, str(tmp_path / "none")).ask("ASK { ?s ?p ?o }")
