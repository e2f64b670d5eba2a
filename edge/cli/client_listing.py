"""Output of `edge clients list`: a line for each client, and its permissions below, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_WIDTH: Final = 100
_WIDEST_NAME: Final = 30
"""Columns of names. A longer name has a line of its own."""
_HEADER: Final = ("identity", "state", "since", "until", "oscore", "priority")
_INDENT: Final = "    "


class ClientRow(NamedTuple):
    """A client in the list."""

    cells: tuple[str, ...]
    """Identity, state, since, until, oscore, priority."""
    rights: str


def listing(rows: Sequence[ClientRow]) -> Iterator[str]:
    """Yield the lines of the list."""
    table = [_HEADER, *(row.cells for row in rows)]
    names = [len(cells[0]) for cells in table if len(cells[0]) <= _WIDEST_NAME]
    widths = [max(names), *(max(len(cells[column]) for cells in table) for column in range(1, len(_HEADER)))]
    yield _line(_HEADER, widths)
    for cells, rights in rows:
        name, rest = cells[0], cells[1:]
        if len(name) > widths[0]:
            yield from textwrap.wrap(name, _WIDTH, break_on_hyphens=False)
            name = ""
        yield _line((name, *rest), widths)
        yield from textwrap.wrap(
            rights, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
        )


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
