"""SPARQL on the command line with undeclared prefixes; prefixes in Turtle output."""

from __future__ import annotations

import pyoxigraph as ox
import pytest

from edge.cli.exit_codes import Failure
from edge.cli.prefixes import KNOWN, OUTPUT, declarations
from edge.cli.source import SparqlSource
from edge.mapping.unit_symbols import QUDT_1_1
from edge.outbox.observation import QUDT
from edge.sparql.explanation import NAMESPACES

SOSA = f"PREFIX sosa: <{KNOWN['sosa']}> "
XSD = f"PREFIX xsd: <{KNOWN['xsd']}> "


@pytest.mark.parametrize(
    ("sparql", "added"),
    [
        ("SELECT * { ?s sosa:hasResult ?r }", SOSA),
        ("SELECT * { ?s sosa:hasResult ?r FILTER(?v = xsd:integer('1')) ?o sosa:x 1 }", SOSA + XSD),
        ("SELECT * { ?s ?p '1'^^xsd:integer }", XSD),
        (f"{SOSA}SELECT * {{ ?s sosa:hasResult ?r }}", ""),
        ("# PREFIX sosa: <urn:x>\nSELECT * { ?s sosa:hasResult ?r }", SOSA),
        ("SELECT * { ?s sosa:hasResult 'PREFIX sosa: ' }", SOSA),
        ("prefix sosa: <http://mine/> SELECT * { ?s sosa:hasResult ?r }", ""),
        ("SELECT * { ?s ?p 'sosa:x' } # xsd:integer", ""),
        ("SELECT * { ?s ?p <sosa:x> }", ""),
        ("SELECT * { ?s unknown:p ?o }", ""),
        ("SELECT * { ?s ?p ?o }", ""),
        ('SELECT * { ?s sosa:hasResult "unfinished }', ""),
        ("REGISTER QUERY q AS SELECT * { ?s sosa:hasResult ?r }", ""),
        ("INSERT DATA { <urn:a> sosa:x 1 } ; PREFIX xsd: <http://mine/> INSERT DATA { <urn:a> xsd:x 1 }", SOSA),
        ("", ""),
    ],
)
def test_known_prefixes_are_declared_if_the_text_does_not(sparql, added):
    assert declarations(sparql) == added


def test_prefixes_are_not_those_of_mine_within_other_names():
    assert declarations("PREFIX mysosa: <http://mine/> SELECT * { ?s mysosa:x ?o }") == ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("wrong (line 1, column 67). Do it", "wrong (line 1, column 25). Do it"),
        ("wrong (line 2, column 67)", "wrong (line 2, column 67)"),
        ("wrong (line 11, column 67)", "wrong (line 11, column 67)"),
        ("wrong (line 1, column 3)", "wrong (line 1, column 1)"),
        ("no place", "no place"),
    ],
)
def test_places_of_errors_are_those_of_the_users_text(message, expected):
    with pytest.raises(Failure) as raised, SparqlSource("x" * 42, "").positions():
        raise Failure(message, 3)
    assert (raised.value.message, raised.value.exit_code) == (expected, 3)


@pytest.mark.parametrize("command", ["query", "subscribe", "explain"])
def test_errors_name_the_place_in_the_users_text(shared_edge, gateway, command):
    text = "SELECT * {\n  ?s sosa:hasResult ?r .\n  ?s my:p ?o }"
    done = shared_edge(command, text, "--data-dir", gateway.data_dir)
    assert done.returncode == 1
    assert 'The prefix "my:" is not declared (line 3, column 6). Add: PREFIX my:' in done.stderr
    done = shared_edge(command, "SELECT * { ?s sosa:hasResult ?r ; my:p ?o }", "--data-dir", gateway.data_dir)
    assert 'The prefix "my:" is not declared (line 1, column 35).' in done.stderr


def test_requests_use_known_prefixes_and_turtle_has_them(shared_edge, gateway):
    def ask(*arguments):
        return shared_edge(*arguments, "--data-dir", gateway.data_dir)

    done = ask("update", "INSERT DATA { <urn:o> a sosa:Observation ; rdfs:label 'One' ; sosa:hasResult _:r }")
    assert (done.returncode, done.stderr) == (0, "")
    construct = "CONSTRUCT { ?o a ?type ; sosa:hasResult ?r } { ?o a ?type ; sosa:hasResult ?r }"
    for form in ("table", "turtle"):
        turtle = ask("query", "-f", form, construct).stdout
        assert f"@prefix sosa: <{OUTPUT['sosa']}> ." in turtle
        assert "sosa:Observation" in turtle
        assert "@prefix owl:" not in turtle
        assert len(list(ox.parse(turtle.encode(), format=ox.RdfFormat.TURTLE))) == 2
    other = ask("query", "-f", "turtle", "CONSTRUCT { <urn:a> <urn:b> <urn:c> } {}").stdout
    assert "@prefix" not in other
    assert ask("subscribe", "-n", "1", "SELECT ?o { ?o a sosa:Observation }").stdout.count("urn:o") == 1


def test_the_prefixes_of_observations_are_those_that_the_gateway_writes():
    assert KNOWN["qudt"] == NAMESPACES["qudt"] == QUDT
    assert KNOWN["unit"] == NAMESPACES["unit"] == QUDT_1_1
