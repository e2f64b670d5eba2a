"""Captures from payloads in mapping files, compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from edge.mapping.errors import BadKeyError, under
from edge.mapping.jsonpath import MEMBER, JsonPath, parse_path
from edge.mapping.model import MappingSpec
from edge.mapping.payload_position import NAME

TOPIC: Final = "topic"
"""Built-in capture: the whole topic."""
LEVELS: Final = "..."
"""End of the name of a payload capture that may hold several levels, as in topics."""


def payload_captures(spec: MappingSpec, payload: str) -> tuple[tuple[tuple[str, JsonPath | str], ...], frozenset[str]]:
    """Return the captures from the payload, and the names of those that may hold several levels."""
    found: list[tuple[str, JsonPath | str]] = []
    levels: set[str] = set()
    for key, place in (spec.captures or {}).items():
        name = key.removesuffix(LEVELS)
        if payload == "text":
            raise BadKeyError("Captures of text payloads are named groups of the pattern.", key="captures")
        if not name.isidentifier():
            raise BadKeyError(f'"{name}" is not a valid capture name.', key="captures")
        if name != key:
            levels.add(name)
        found.append((name, place if payload == "senml" else under("captures", parse_path, place)))
    return tuple(found), frozenset(levels)


def parted_captures(
    captures: Sequence[tuple[str, JsonPath | str]],
) -> tuple[tuple[tuple[str, JsonPath | str], ...], tuple[tuple[str, JsonPath], ...]]:
    """Part captures from the document from those from the object that contains the value ("@")."""
    local = tuple((name, path) for name, path in captures if isinstance(path, JsonPath) and path.relative)
    return tuple(each for each in captures if each not in local), local


def first_of_several_captures(captures: Sequence[tuple[str, JsonPath | str]]) -> Iterator[str]:
    """Yield warnings about captures of which a payload has several."""
    for name, path in captures:
        if isinstance(path, JsonPath) and path.wild:
            yield f'{{{name}}} is the first of several: "@" is the object that contains the value.'


def check_names(names: Sequence[str], from_payload: Collection[str]) -> None:
    """Raise `BadKeyError` if a capture is built in or defined twice. The last of the names is that of the topic."""
    if reserved := {MEMBER, NAME, TOPIC}.intersection(names[:-1]):
        word, reason = min(reserved), "is built in. Choose another name."
    elif doubled := {each for each in names if names.count(each) > 1}:
        word, reason = min(doubled), "is defined twice."
    else:
        return
    raise BadKeyError(f"The capture {{{word}}} {reason}", key="captures" if word in from_payload else "topic")
