"""DuckDB answers the queries of the history without Java: the same translation, and the answers of the oracles."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyoxigraph as ox
import pytest
from deltalake import DeltaTable, write_deltalake
from generated_queries import query
from history_data import frame, history, numbered, readings
from history_oracles import Oxigraph, Rdflib, canonical
from pyspark.sql.connect.client.core import SparkConnectClient
from test_differential import HISTORIES, answer, wrong
from test_sparql_oracle import CASES, CASES_PREFIXES, PATHS, PREFIXES, QUERIES, ROWS, assert_equal_answers

from spark_offload.embedded.client import Client
from spark_offload.embedded.history import EmbeddedHistory
from spark_offload.embedded.interruptible import interruptible
from spark_offload.embedded.regular_expressions import re2
from spark_offload.embedded.session import embedded_session
from spark_offload.errors import EngineRefused, QueryRefused, TableRefused
from spark_offload.sparql import closure
from spark_offload.sparql.regular_expressions import java_pattern
from tests.support.function_cases import wanted

if TYPE_CHECKING:
    import pyarrow as pa

REFUSED = {"patterns in the data", "patterns in the data, in OPTIONAL"}
SLOW = {
    *("comparisons with an unbound variable", "comparisons with an unbound column", "unequal to an unbound variable"),
    *("times and durations in variables", "durations in variables", "times", "many unequal values"),
}
"""Queries that take most of the time, because DuckDB plans large expressions slowly."""
ALL = "SELECT ?v { ?o <http://www.w3.org/ns/sosa/hasResult>/<http://qudt.org/1.1/schema/qudt#numericValue> ?v }"
OWN = {"translate", "interrupt", "_queried", "_check", "_source", "_local", "_pieces"}
"""Methods of the client that PySpark does not call."""
PATTERNS = [
    *(r"\S", r"\W", r"\D", r"^\S+$", r"\w+\W\w+", r"(\D|b){2}", r"\d+", r"\s", r"[A-Z]\w*", r"\w{2,}", r"\P{Lu}\p{Ll}"),
    *(
        r"[\W]",
        r"[^\W]",
        r"[\S\d]",
        r"[^\S]",
        r"[\D\s]",
        r"[a\W]",
        r"^[\W\D]+$",
        r"[\S-]",
        r"[^\d\s]",
        r"[\P{L}]",
        r"[^\P{L}]",
    ),
    *(r"[\[\]]", r"[^\[a]", r"a\[b", r"[\\\]]", r"[^a-c]", r"^.$", r"^$", r"a$", r".b"),
]
TEXTS = [
    *("", "a", "B", "!", " ", "1", "a b", "a-b", "_", "a_b", "é", "ß", "É1", "[", "]", "a[b", "\\", "\u00a0", "\u2003"),
    *("٣", "\n", "a\n", "a\nb", "😀", "-", ":x", "x.y", "ABC", "ⓐ", "\u0301", "ſ", "\u212a"),
]


def rows(stored: list) -> pa.Table:
    return frame(embedded_session(), stored).toArrow()


@pytest.fixture(scope="module")
def mixed() -> EmbeddedHistory:
    return EmbeddedHistory(frame(embedded_session(), numbered(ROWS)))


@pytest.fixture(scope="module")
def oxigraph() -> Oxigraph:
    return Oxigraph(quad for stored in numbered(ROWS) for quad in stored.quads())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("embedded") / "table"
    stored = numbered(readings("a1", ["20", "21.5", "1"]))
    write_deltalake(path, rows(stored[:2]), partition_by=["date"])
    write_deltalake(path, rows(stored[2:]), partition_by=["date"], mode="append")
    return path


@pytest.mark.parametrize("name", [name for name in QUERIES if name not in REFUSED | SLOW][::2])
def test_the_answer_of_duckdb_is_that_of_oxigraph(mixed: EmbeddedHistory, oxigraph: Oxigraph, name: str) -> None:
    assert_equal_answers(mixed, oxigraph, PREFIXES + QUERIES[name])


@pytest.mark.parametrize("name", list(PATHS)[::2])
def test_a_path_in_duckdb_has_the_solutions_of_oxigraph(
    mixed: EmbeddedHistory, oxigraph: Oxigraph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in ("*", "+ from a node"):
        monkeypatch.setattr(closure, "MAX_LOCAL_STEPS", 0)  # joined, round by round
    assert_equal_answers(mixed, oxigraph, PREFIXES + PATHS[name])


def test_functions_in_duckdb_have_the_results_of_the_live_graph(mixed: EmbeddedHistory) -> None:
    found = {}
    for call in list(CASES)[::4]:  # DuckDB plans many of them in one query slowly
        ((result,),) = mixed.sparql(f"{CASES_PREFIXES} SELECT ({call} AS ?x) {{ }}").collect()
        found[call] = canonical(result)
    assert found == {call: wanted(result) for call, result in list(CASES.items())[::4]}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_construct_that_duckdb_lacks_is_refused_by_name(mixed: EmbeddedHistory, name: str) -> None:
    with pytest.raises(EngineRefused, match=r"a pattern from the data.*--engine spark"):
        mixed.sparql(PREFIXES + QUERIES[name])


@pytest.mark.parametrize(
    ("name", "numbers"), [("mapped", (100, 101, 102, 103, 105, 106, 110)), ("odd", (100, 102, 103, 106))]
)
@pytest.mark.filterwarnings("ignore:Dataset:DeprecationWarning:rdflib")
def test_random_queries_have_the_answers_of_the_oracles(
    name: str, numbers: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "rdflib.term")
    stored = history(*HISTORIES[name], number=list(HISTORIES).index(name))
    lines = [quad for one in stored for quad in one.quads()]
    rdflib, oxigraph = Rdflib(lines), Oxigraph(lines)
    embedded = EmbeddedHistory(frame(embedded_session(), stored))
    for number in numbers:
        sample = query(number)
        try:
            found = answer(embedded, sample)
        except QueryRefused:
            continue
        whole = rdflib.answer(sample.text, sample.form)
        if whole is None or wrong(sample, found, whole):
            found = [tuple(map(canonical, row)) for row in found]
            assert not (reason := wrong(sample, found, oxigraph.answer(sample.text, sample.form))), (
                f"{reason}\n{sample}"
            )


@pytest.mark.parametrize("flags", ["", "i", "s", "m"])
def test_patterns_match_the_texts_that_they_match_in_the_live_graph(flags: str) -> None:
    values = " ".join(str(ox.Literal(text)) for text in TEXTS)
    database = duckdb.connect()
    for pattern in PATTERNS:
        java = java_pattern(pattern, flags)
        assert java is not None
        database.execute("SELECT list_transform(?, lambda x: regexp_matches(x, ?))", [TEXTS, re2(java.text)])
        test = f'REGEX(?t, {ox.Literal(pattern)}, "{flags}")'
        found = ox.Store().query(f"SELECT ?r {{ VALUES ?t {{ {values} }} BIND({test} AS ?r) }}")
        assert isinstance(found, ox.QuerySolutions)
        wanted = [str(row["r"].value) for row in found]  # type: ignore[union-attr]
        assert [str(one).lower() for one in database.fetchall()[0][0]] == wanted, pattern


def test_a_difference_within_a_negated_class_is_refused(mixed: EmbeddedHistory) -> None:
    with pytest.raises(EngineRefused, match="among other members of a negated class"):
        mixed.sparql(r'SELECT ?x { VALUES ?x { "a" } FILTER(REGEX(?x, "[^\\W_]")) }')


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?X (COUNT(?o) AS ?n) (COUNT(*) AS ?N) ?x { ?x ex:q ?X OPTIONAL { ?X ex:p ?o } } GROUP BY ?x ?X",
        "SELECT ?X ?x { VALUES (?x ?X) {(1 2)(UNDEF 3)} OPTIONAL { VALUES (?X ?x) { (2 UNDEF) (3 7)} } }",
        "SELECT ?X ?x { ?x ex:r+ ?X FILTER NOT EXISTS { ?X ex:q ?x } }",
    ],
)
def test_variables_may_differ_in_the_case_of_letters_only(
    mixed: EmbeddedHistory, oxigraph: Oxigraph, text: str
) -> None:
    """The variables are sorted, as in the rows of the oracle."""
    assert_equal_answers(mixed, oxigraph, PREFIXES + text)
    found = mixed.sparql(PREFIXES + text)
    first, *_, last = found.columns
    assert found.select(last, first).collect() == [(row[-1], row[0]) for row in found.collect()]


def test_years_before_1_and_after_9999_are_those_of_oxigraph(mixed: EmbeddedHistory, oxigraph: Oxigraph) -> None:
    text = """SELECT (?t - "P1D"^^xsd:dayTimeDuration AS ?a) (STR(?t + "P1D"^^xsd:dayTimeDuration) AS ?b)
        (YEAR(?t) AS ?c) { VALUES ?t { "-0005-03-01T00:00:00Z"^^xsd:dateTime "-12345-03-01T00:00:00Z"^^xsd:dateTime
        "0000-03-01T00:00:00Z"^^xsd:dateTime "9999-12-31T23:00:00Z"^^xsd:dateTime
        "0001-01-01T00:00:00Z"^^xsd:dateTime "-0123-01-01T00:00:00.125Z"^^xsd:dateTime } }"""
    assert_equal_answers(mixed, oxigraph, PREFIXES + text)


def test_floats_beyond_the_range_are_infinite(mixed: EmbeddedHistory) -> None:
    text = 'SELECT (STR(xsd:float("3.5e38")) AS ?a) (STR(xsd:float(-1e300)) AS ?b) (STR(xsd:float("1.5")) AS ?c) {}'
    assert [tuple(row) for row in mixed.sparql(PREFIXES + text).collect()] == [('"INF"', '"-INF"', '"1.5"')]


def test_constant_replacements_are_supported(mixed: EmbeddedHistory) -> None:
    by = {"$": None, "$1$1": '"abbc"', "$9": '"ac"', "\\$0": '"a$0c"', "$10": '"ab0c"'}
    calls = " ".join(f'(REPLACE("abc", "(b)", {ox.Literal(one)}) AS ?x{place})' for place, one in enumerate(by))
    assert [list(row) for row in mixed.sparql(f"SELECT {calls} {{}}").collect()] == [list(by.values())]


def test_cases_change_and_numbers_are_written_as_in_spark(mixed: EmbeddedHistory) -> None:
    text = """SELECT (UCASE("straße") AS ?u) (LCASE("ÄİX") AS ?l) (STR(1e7 * 1.5) AS ?d) (STR(1e-4 * 1) AS ?s)
        (STR(1e0 + 1) AS ?w) (SHA384("abc") AS ?h) { }"""
    (row,) = mixed.sparql(text).collect()
    assert tuple(row)[:5] == ('"STRASSE"', '"äi̇x"', '"1.5E7"', '"1.0E-4"', '"2.0"')
    assert row["h"].startswith('"cb00753f45a35e8bb5a03d699ac65007272c32ab0eded163')


@pytest.mark.parametrize("name", [name for name in vars(Client) if name not in OWN and not name.startswith("__")])
def test_the_client_has_the_methods_of_pyspark(name: str) -> None:
    """A method that PySpark renames would never be called."""
    assert hasattr(SparkConnectClient, name)


def test_an_earlier_version_is_read(table: Path) -> None:
    assert len(EmbeddedHistory(table).sparql(ALL).collect()) == 3
    assert len(EmbeddedHistory(str(table), 0).sparql(ALL).collect()) == 2
    for version in (7, 2**63 - 1):
        with pytest.raises(TableRefused, match=f"no version {version}"):
            EmbeddedHistory(table, version)


def test_columns_that_older_files_lack_are_null(tmp_path: Path) -> None:
    stored = numbered(readings("a1", ["20", "21.5"]))
    write_deltalake(tmp_path / "table", rows(stored[:1]).drop_columns(["quads"]), partition_by=["date"])
    assert len(EmbeddedHistory(tmp_path / "table").sparql(ALL).collect()) == 1
    write_deltalake(tmp_path / "table", rows(stored[1:]), partition_by=["date"], mode="append", schema_mode="merge")
    assert len(EmbeddedHistory(tmp_path / "table").sparql(ALL).collect()) == 2


def test_what_is_not_a_table_is_refused(tmp_path: Path, table: Path) -> None:
    with pytest.raises(TableRefused, match="does not exist"):
        EmbeddedHistory(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(TableRefused, match="has other files"):
        EmbeddedHistory(tmp_path)
    write_deltalake(tmp_path / "other", rows(numbered(readings("a1", ["20"]))).select(["ts", "value"]))
    with pytest.raises(TableRefused, match="not a history"):
        EmbeddedHistory(tmp_path / "other")


def test_the_path_of_a_table_may_contain_special_characters(tmp_path: Path) -> None:
    stored = numbered(readings("a1", ["20", "21.5"]))
    write_deltalake(tmp_path / "t1", rows(stored[:1]), partition_by=["date"])
    for name in ("a b#é", "q?x", "t[1]", "{a,b}*"):
        written = tmp_path / "written"
        write_deltalake(written, rows(stored), partition_by=["date"])
        written.rename(tmp_path / name)
        assert len(EmbeddedHistory(tmp_path / name).sparql(ALL).collect()) == 2, name
    (tmp_path / "t1").rename(tmp_path / "t%41")
    with pytest.raises(EngineRefused, match="contains %"):
        EmbeddedHistory(tmp_path / "t%41")


def test_a_damaged_table_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_deltalake(path, rows(numbered(readings("a1", ["20"]))), partition_by=["date"])
    opened = EmbeddedHistory(path)
    (file,) = path.rglob("*.parquet")
    content = file.read_bytes()
    for damaged in (content[:100], b"", None):
        file.unlink() if damaged is None else file.write_bytes(damaged)
        with pytest.raises(TableRefused, match=r"a file of the table .* cannot be read .*part-"):
            EmbeddedHistory(path)
    with pytest.raises(TableRefused, match=r"a file of the table cannot be read .*part-"):
        opened.sparql(ALL).collect()
    (path / "_delta_log" / f"{1:020}.json").write_text("bad")
    with pytest.raises(TableRefused, match=r"\Athe log of the table .* cannot be read .*\Z"):
        EmbeddedHistory(path)


@pytest.mark.parametrize("name", ["s3://bucket/table", "catalog.schema.observations", "file:///t"])
def test_a_table_elsewhere_needs_spark(name: str) -> None:
    with pytest.raises(EngineRefused, match=r"only directories of this machine.*--engine spark"):
        EmbeddedHistory(name)


def test_the_command_answers_without_java(table: Path, tmp_path: Path) -> None:
    """A query with a construct that DuckDB lacks goes on to Spark, which names Java."""
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(Path.cwd())}

    def asked(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-c",
            "from spark_offload.cli import main; main()",
            "query",
            "-",
            "--table",
            str(table),
        ]
        return subprocess.run(
            [*command, *options], input=text, capture_output=True, text=True, env=environment, check=False
        )

    found = asked(ALL, "--engine", "auto")
    assert found.returncode == 0, found.stderr
    values = [row["v"]["value"] for row in json.loads(found.stdout)["results"]["bindings"]]
    assert sorted(values) == ["1", "20", "21.5"]
    refused = asked('ASK { ?o ?p ?pattern FILTER(REGEX("a", STR(?pattern))) }', "--engine", "auto")
    assert "Spark answers: DuckDB has no regular expressions with a pattern from the data" in refused.stderr
    assert refused.returncode == 1
    assert "Java" in refused.stderr
    assert asked(ALL, "--engine", "duckdb", "--conf", "a=b").returncode == 2


MANY = "SELECT (COUNT(*) AS ?n) { " + " ".join(f"?a{n} ?b{n} ?c{n} ." for n in range(12)) + " }"
"""A query whose evaluation takes hours."""


def test_a_time_limit_ends_a_query(table: Path) -> None:
    history = EmbeddedHistory(table)
    with pytest.raises(TimeoutError):
        interruptible(lambda: history.sparql(MANY).collect(), history.interrupt, 1)
    assert not [thread for thread in threading.enumerate() if thread.name == "DuckDB"]
    with pytest.raises(EngineRefused, match="interrupted"):
        history.sparql(ALL).collect()


def test_sigint_ends_a_query(table: Path) -> None:
    program = (
        "import os, signal, threading; from spark_offload.cli import main;"
        "threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start(); main()"
    )
    command = [sys.executable, "-c", program, "query", "-", "--table", str(table), "--engine", "duckdb"]
    found = subprocess.run(command, input=MANY, capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.strip() == "Aborted!"


def test_a_table_with_other_features_of_delta_needs_spark(tmp_path: Path) -> None:
    from deltalake import TableFeatures

    path = tmp_path / "table"
    write_deltalake(path, rows(numbered(readings("a1", ["20"]))), partition_by=["date"])
    DeltaTable(path).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(EngineRefused, match="reader 3"):
        EmbeddedHistory(path)
