"""Write the symbols of units as a module of the page: `python -m edge.mapping.unit_symbols_js edge/web/units.js`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edge.mapping.unit_symbols import unit_symbols

_HEADER = (
    "// Symbols of units, by the last part of their IRIs. Generated from edge/mapping/unit_symbols.py by `make docs`.\n"
)


def javascript() -> str:
    """Return the text of the module."""
    table = json.dumps(unit_symbols(), ensure_ascii=False, indent=2, sort_keys=True)
    return f"{_HEADER}export const SYMBOLS = {table};\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(javascript(), encoding="utf-8")
