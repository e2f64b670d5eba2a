"""What a client is told whose text is no SPARQL."""

import pyoxigraph as ox
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.engine.syntax_fault import syntax_fault


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "error at 1:28: expected one of GROUP, ORDER, ['0'..='9'], [_]",
            "error at 1:28: expected one of GROUP, ORDER",
        ),
        ('error at 1:7: expected one of "[", ",", [_], "\\""', 'error at 1:7: expected one of "[", ",", "\\""'),
        ("error at 1:2: expected one of ASK, ['\\'' | ']'\n| 'a'..='z']", "error at 1:2: expected ASK"),
        ("error at 1:13: expected IRI parsing failed", "error at 1:13: expected IRI parsing failed"),
        ("error at 1:13: expected [_]", "error at 1:13: something is missing or wrong here"),
        ("something else", "something else"),
    ],
)
def test_classes_of_characters_are_left_out(said, told):
    assert syntax_fault(SyntaxError(said)) == told


@given(st.text("SELECTWHRASK {}?s<>\"'.;[]0123ab:#\n", max_size=40))
@example("SELECT * { ?s ?p ?o } LIMIT")
@example("SELECT ?x { ?x a")
def test_no_grammar_is_shown_whatever_was_sent(text):
    said = ""
    try:
        ox.Store().query(text)
    except SyntaxError as error:
        said = str(error)
    told = syntax_fault(SyntaxError(said))
    assert told.partition(": ")[0] == said.partition(": ")[0]
    assert "[_]" not in told
    assert "..=" not in told
