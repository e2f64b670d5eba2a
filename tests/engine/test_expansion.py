"""Requests whose IRIs become very long without their abbreviations are refused before they are parsed."""

from __future__ import annotations

import pytest
from engine_client import refused, update
from engine_world import new_engine

from edge.engine.sparql.expansion import MOST, check_expansion
from edge.protocol.errors import LimitExceeded

LONG = "http://example.org/" + "a" * 200_000
USES = MOST // len(LONG) + 1


@pytest.mark.parametrize(
    "text",
    [
        f"PREFIX p: <{LONG}> INSERT DATA {{ {' '.join(f'<urn:s> <urn:p> p:{n} .' for n in range(USES))} }}",
        f"prefix : <{LONG}> INSERT DATA {{ {' '.join(f'<urn:s> <urn:p> :{n} .' for n in range(USES))} }}",
        f"BASE<{LONG}/> INSERT DATA {{ {' '.join(f'<s> <p> <{n}> .' for n in range(USES))} }}",
        f"PREFIX p: <{LONG}> INSERT {{ ?s ?p {', '.join(f'p:{n}' for n in range(USES))} }} WHERE {{ ?s ?p 1 }}",
    ],
    ids=["prefix", "empty prefix", "base", "template"],
)
def test_long_abbreviations_that_are_used_often_are_refused(text):
    engine = new_engine()
    assert "without abbreviations" in refused(engine, text, LimitExceeded)


def test_a_query_with_a_long_abbreviation_is_refused():
    values = " ".join(f"p:{n}" for n in range(USES))
    with pytest.raises(LimitExceeded, match="longest prefix"):
        check_expansion(f"PREFIX p: <{LONG}> SELECT * {{ VALUES ?s {{ {values} }} ?s ?p ?o }}")


def test_a_long_abbreviation_may_be_used_seldom():
    engine = new_engine()
    update(engine, f"PREFIX p: <{LONG}> INSERT DATA {{ p:1 p:2 p:3 }}")
    check_expansion("PREFIX ex: <http://example.org/> INSERT DATA { " + "ex:s ex:p ex:o . " * 500_000 + "}")


@pytest.mark.parametrize("before", range(32 * 1024 - 12, 32 * 1024 + 4))
def test_a_declaration_may_be_anywhere_in_the_text(before):
    text = "#" + "x" * (before - 2) + "\n" + f"PREFIX p: <{LONG}> SELECT * {{ ?s ?p {', '.join(['p:1'] * USES)} }}"
    with pytest.raises(LimitExceeded, match="longest prefix"):
        check_expansion(text)
