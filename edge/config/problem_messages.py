"""Messages for problems in the settings: the key, the allowed values, the nearest known name."""

from __future__ import annotations

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from edge.config.models import Settings

_SHOWN = 60
"""Characters of a rejected value that a message shows."""


def is_section(name: str) -> bool:
    """Return whether a top-level name of the settings is a table."""
    field = Settings.model_fields.get(name)
    return field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def fields() -> dict[str, FieldInfo]:
    """Return every key by its dotted name, in the order of the models."""
    return {key: field for key, field in _all_fields().items() if not about(field, "fixed")}


def fixed() -> frozenset[str]:
    """Return the dotted names of values in sections that no operator can choose."""
    return frozenset(key for key, field in _all_fields().items() if about(field, "fixed"))


def _all_fields() -> dict[str, FieldInfo]:
    found: dict[str, FieldInfo] = {}
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found.update({f"{name}.{key}": inner for key, inner in field.annotation.model_fields.items()})
        else:
            found[name] = field
    return found


def about(field: FieldInfo, what: str) -> str:
    """Return an annotation of a key ("unit", "secret", "basic", "fixed" or "default_text"), or an empty string."""
    extra = field.json_schema_extra
    return str(extra.get(what, "")) if isinstance(extra, dict) else ""


def allowed(field: FieldInfo) -> str:
    """Return a description of the values that a key accepts."""
    annotation: Any = field.annotation
    if get_origin(annotation) in (Union, types.UnionType):
        # `X | None`: describe X.
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        return "a list of " + (", ".join(get_args(inner)) if get_origin(inner) is Literal else "texts")
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        number = "a whole number" if annotation is int else "a number"
        unit = about(field, "unit")
        return number + _bounds(field) + (f" ({unit})" if unit else "")
    return "a path" if annotation is Path else "a text"


def _bounds(field: FieldInfo) -> str:
    low = next((item.ge for item in field.metadata if getattr(item, "ge", None) is not None), None)
    high = next((item.le for item in field.metadata if getattr(item, "le", None) is not None), None)
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    return f" of at least {_number(low)}" if low is not None else ""


def _number(value: Any) -> str:  # noqa: ANN401 - annotated_types: whatever can be compared
    """Return all digits of a bound, as an operator writes them in the file: `:g` rounds large numbers."""
    return str(int(value)) if value == int(value) else str(value)


def explain(error: ValidationError, variables: Mapping[str, str] | None = None) -> list[str]:
    """Return one line for each validation error.

    With `variables` (dotted key to environment variable) the lines begin with the name of the variable.
    """
    lines = []
    for problem in error.errors(include_url=False):
        # Items of a list have their index in the path. The message names the key, so drop the index.
        path = [str(part) for part in problem["loc"] if not isinstance(part, int)]
        key = ".".join(path)
        text = _unknown(path) if problem["type"] == "extra_forbidden" else _bad_value(path, problem)
        name = variables.get(key, key) if variables else key
        lines.append(f"{name}: {text}")
    # A bad list reports each item: one line for the key is enough.
    return list(dict.fromkeys(lines))


def unknown_variable(variable: str, key: str) -> str | None:
    """Return a message for an environment variable that names no key, or None if the key exists."""
    if key in fields():
        return None
    if is_section(key):
        return f"{variable}: names a section, not a key; {variable}__KEY sets a key of it"
    import difflib  # 3 ms, and only problems need it

    names = {"EDGE__" + known.upper().replace(".", "__"): known for known in fields()}
    near = difflib.get_close_matches(variable.upper(), names, n=1)
    hint = f"did you mean {near[0]}?" if near else "`edge config show` lists the keys"
    return f"{variable}: no such setting; {hint}"


def _unknown(path: list[str]) -> str:
    import difflib  # 3 ms, and only problems need it

    *section, name = path
    inside = [key for key in fields() if key.rpartition(".")[0] == ".".join(section)]
    siblings = [key.rpartition(".")[2] for key in inside]
    if not section:
        siblings = list(Settings.model_fields)
    near = difflib.get_close_matches(name.lower(), siblings, n=1)
    if near:
        return f'no such key; did you mean "{".".join([*section, near[0]])}"?'
    names = {key.rpartition(".")[2] for key in fields()}
    known = next(iter(difflib.get_close_matches(name.lower(), sorted(names), n=1, cutoff=0.75)), None)
    # The name may exist in another section: "port" at the top level means http.port, ws.port or another port.
    elsewhere = [key for key in fields() if key.rpartition(".")[2] == known]
    if elsewhere:
        return "no such key here; did you mean " + " or ".join(f'"{key}"' for key in elsewhere) + "?"
    kind = f"keys of [{section[0]}]" if section else "sections and keys at the top"
    return f"no such key; the {kind} are {', '.join(siblings)}"


def _bad_value(path: list[str], problem: Any) -> str:  # noqa: ANN401 - pydantic_core.ErrorDetails
    if len(path) == 1 and is_section(path[0]):
        return f"must be a table: [{path[0]}]"
    field = fields()[".".join(path)]
    shown = "this value" if about(field, "secret") else _shown(problem["input"])
    if problem["type"] == "value_error":
        reason = str(problem["ctx"]["error"])
        # Messages of our own validators quote the value themselves.
        return reason if reason.startswith('"') else f"{shown}: {reason}"
    return f"{shown} is not allowed: must be {allowed(field)}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = f'"{value}"' if isinstance(value, str) else str(value)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
