"""Which regular expressions may need more stack than a thread of Java has."""

from __future__ import annotations

import pytest

from spark_offload.sparql.regular_expressions import java_pattern

DEEP = ["(a|b)*$", "(a){2}", "(?:a)+?", r"(a)\1*", "a{2,}", "a{9999}", "x" * 501, r"\b*"]
SHALLOW = ["a*", "[a(b)]+?", r"\)*", "[)]*", "(ab)?", "(a|b){1}", "(a?b){0,1}", "a{2,3}", "x" * 500, "(?i)a*"]


@pytest.mark.parametrize("pattern", DEEP, ids=range(len(DEEP)))
def test_repeated_groups_and_long_patterns_are_deep(pattern: str) -> None:
    java = java_pattern(pattern)
    assert java is not None
    assert java.deep


@pytest.mark.parametrize("pattern", SHALLOW, ids=range(len(SHALLOW)))
def test_repeated_characters_are_not_deep(pattern: str) -> None:
    java = java_pattern(pattern)
    assert java is not None
    assert not java.deep


def test_a_long_literal_pattern_is_deep() -> None:
    java = java_pattern("(" * 501, "q")
    assert java is not None
    assert java.deep
