"""Write the common units as a page of the docs: `python -m edge.mapping.units_page docs/reference/units.md`."""

from __future__ import annotations

import sys
from pathlib import Path

from edge.mapping.units import all_units

_HEADER = """# Units

The common units of [mapping files](../mapping.md#units), with the symbol that clients show. `unit` can be a code of the
table, and payloads can name a unit by such a code. Units of QUDT 1.1 have the prefix `unit:`, those of QUDT 2
`qudt-unit-2:`. `edge mapping units TEXT` also finds the other 3,600 units of QUDT. `make docs` writes this page.

| symbol | codes | unit |
|---|---|---|
"""


def page() -> str:
    """Return the text of the page (Markdown)."""
    rows = []
    for unit in all_units():
        if unit.common:
            codes = " ".join(f"`{code}`" for code in unit.codes)
            rows.append(f"| {unit.symbol} | {codes} | [`{unit.name}`]({unit.iri}) |\n")
    return _HEADER + "".join(rows)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
