"""Terms in the tables that `edge` prints."""

from __future__ import annotations

import pytest

from edge.cli.bindings_table import term


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({}, "a"),
        ({"xml:lang": "en"}, "a@en"),
        ({"xml:lang": "en", "its:dir": "rtl"}, "a@en--rtl"),
        ({"datatype": "urn:t"}, "a^^<urn:t>"),
    ],
    ids=["plain", "language", "direction", "datatype"],
)
def test_a_literal_is_shown_with_its_language_or_datatype(members, text):
    assert term({"type": "literal", "value": "a", **members}) == text
