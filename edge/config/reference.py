"""Generated references of the settings: docs/configuration.md, the TOML of `edge config show`, the JSON Schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from edge.config.explain import about, allowed, fields, is_section
from edge.config.models import Settings

BEGIN = "<!-- begin of the generated part: python -m edge.config.reference docs/configuration.md -->"
END = "<!-- end of the generated part -->"
_REDACTED = "(set, not shown)"


def tables() -> str:
    """Return a Markdown table for each section: key, default, allowed values, meaning."""
    parts = ["## At the top of the file\n", _table(list(Settings.model_fields.items()), Settings())]
    defaults = Settings()
    for name in Settings.model_fields:
        if not is_section(name):
            continue
        section = getattr(defaults, name)
        sentence = type(section).__doc__ or ""
        parts += [f"## `[{name}]`\n\n{sentence}\n", _table(list(type(section).model_fields.items()), section)]
    return "\n".join(parts)


def _table(rows: list[tuple[str, FieldInfo]], defaults: Any) -> str:  # noqa: ANN401 - any of the models
    lines = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    for name, field in rows:
        if is_section(name) and isinstance(defaults, Settings):
            continue
        default = about(field, "default_text") or f"`{_toml(getattr(defaults, name))}`"
        meaning = (field.description or "").replace("|", "\\|")
        lines.append(f"| `{name}` | {default} | {allowed(field)} | {meaning} |")
    return "\n".join(lines) + "\n"


def filled_in(document: str) -> str:
    """Return the document with a new text between the two marks, generated from the models."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def to_toml(settings: Settings, sources: Mapping[str, str]) -> str:
    """Return all settings in effect as a settings file without secrets, each set key with its source."""
    lines: list[str] = []
    section = ""
    for key, field in fields().items():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"[{table}]"]
        value = getattr(getattr(settings, table), name) if table else getattr(settings, name)
        if about(field, "secret"):
            lines.append(f"# {name} {_REDACTED if value else 'is not set'}")
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
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.write_text(filled_in(target.read_text(encoding="utf-8")), encoding="utf-8")
