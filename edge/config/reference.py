"""Generated references of the settings: docs/configuration.md, the TOML of `edge config show`, the JSON Schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from edge.config.loading import GATES
from edge.config.models import Settings
from edge.config.problem_messages import about, allowed, fields
from edge.config.profiles import DEFAULT, PROFILES

BEGIN = "<!-- begin of the generated part: python -m edge.config.reference docs/configuration.md -->"
END = "<!-- end of the generated part -->"
_REDACTED = "(set, not shown)"


def tables() -> str:
    """Return the reference in Markdown: the basic keys in one table, then a table of limits and details by section."""
    known, defaults = fields(), Settings()
    basic = {key: field for key, field in known.items() if about(field, "basic")}
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    lines += [f"| `{key}` | {_default(key, defaults)} | {_meaning(field)} |" for key, field in basic.items()]
    parts = ["## Basic settings\n", "\n".join(lines) + "\n", "## Limits and details\n", _profiles()]
    for name in Settings.model_fields:
        section = {key: field for key, field in known.items() if key.startswith(f"{name}.") and key not in basic}
        if section:
            sentence = type(getattr(defaults, name)).__doc__ or ""
            parts += [f"### `[{name}]`\n\n{sentence}\n", _table(section, defaults)]
    return "\n".join(parts)


def _profiles() -> str:
    names = ", ".join(f'`"{name}"`' for name in PROFILES)
    return (
        f'`profile` is one of {names}. The default values are those of the profile `"{DEFAULT}"`.\n'
        "The columns of the others show the values that differ. A key that is set overrides the profile. A key of\n"
        "`[sessions]` sets the limit for all gates, and a key of a gate's own section overrides it for this gate.\n"
    )


def _table(rows: Mapping[str, FieldInfo], defaults: Settings) -> str:
    profiles = [name for name in PROFILES if rows.keys() & PROFILES[name].keys()]
    columns = ["key", "default", *(f"`{name}`" for name in profiles), "allowed", "meaning"]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for key, field in rows.items():
        others = [f"`{PROFILES[name][key]}`" if key in PROFILES[name] else "" for name in profiles]
        cells = [f"`{key.rpartition('.')[2]}`", _default(key, defaults), *others, _meaning(field)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _default(key: str, defaults: Settings) -> str:
    section, _, name = key.rpartition(".")
    if section == "sessions":
        gates = [gate for gate in GATES if name in type(getattr(defaults, gate)).model_fields]
        return ", ".join(f"`{_toml(getattr(getattr(defaults, gate), name))}` ({gate})" for gate in gates)
    return about(fields()[key], "default_text") or f"`{_toml(_value(defaults, key))}`"


def _meaning(field: FieldInfo) -> str:
    meaning = (field.description or "").replace("|", "\\|")
    return f"{allowed(field)} | {meaning}"


def _value(settings: Settings, key: str) -> object:
    section, _, name = key.rpartition(".")
    return getattr(getattr(settings, section) if section else settings, name)


def filled_in(document: str) -> str:
    """Return the document with a new text between the two marks, generated from the models."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def to_toml(settings: Settings, sources: Mapping[str, str]) -> str:
    """Return all settings in effect as a settings file without secrets. `sources`: origins of keys, as comments."""
    lines: list[str] = []
    section = ""
    for key, field in fields().items():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{table}]"]
        value = _value(settings, key)
        if about(field, "secret"):
            lines.append(f"# {name} {_REDACTED if value else 'is not set'}")
            continue
        if value is None and table == "sessions":  # TOML has no null
            lines.append(f"# {name} is not set: see the sections of the gates")
            continue
        origin = f"  # {sources[key]}" if key in sources else ""
        lines.append(f"{name} = {_toml(value)}{origin}")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, Path) or value is None:
        return json.dumps("" if value is None else str(value), ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the settings file, for editors."""
    found = Settings.model_json_schema()
    for section in found["$defs"].values():
        keys = section.get("properties", {})
        for name in [name for name, declared in keys.items() if declared.get("fixed")]:
            del keys[name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(filled_in(target.read_text(encoding="utf-8")), encoding="utf-8")
