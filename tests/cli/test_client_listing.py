"""The lines of `edge clients list`."""

from __future__ import annotations

import pytest

from edge.cli.client_listing import ClientRow, listing

CELLS = ("registered", "2026-11-28 21:00", "2026-12-28 21:00", "yes", "normal")


@pytest.mark.parametrize("name", ["a", "kitchen-sensor", "x" * 30, "x" * 31, "https://issuer.example/" + "y" * 150])
def test_lines_fit_in_100_columns_and_lose_nothing(name):
    rights = "may query, subscribe; sees " + ", ".join(f"http://example.org/graph/{each}" for each in range(30))
    lines = list(listing([ClientRow((name, *CELLS), rights), ClientRow(("other", *CELLS), "may none")]))
    assert all(len(line) <= 100 for line in lines)
    text = "".join("".join(lines).split())
    for whole in (name, *CELLS, rights):
        assert "".join(whole.split()) in text


def test_columns_are_aligned():
    header, lamp, _, other, _ = listing([ClientRow(("lamp", *CELLS), "a"), ClientRow(("heating", *CELLS), "b")])
    assert header.index("state") == lamp.index("registered") == other.index("registered")
    assert header.index("priority") == lamp.index("normal")
