"""Paths into JSON payloads: names, quoted names, indices, `*` and captures of member names. A small JSONPath subset."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final

from edge.mapping.errors import BadKeyError
from edge.mapping.fault_reasons import because
from edge.mapping.topics import name_pattern

_ALLOWED = 'name, "quoted name", a.b, a[0], a[-1], a[*], a[{i}], *, {key}, switch:{n}; "$" and "@" only first'
_STEP = re.compile(
    r"""\.?(?:
        \[\s*(?:(?P<index>-?[0-9]{1,6})|(?P<all>\*)|\{(?P<nth>[A-Za-z_][A-Za-z0-9_]*)\}
            |(?P<quote>["'])(?P<quoted>.*?)(?P=quote))\s*\]
        |"(?P<name2>[^"]*)"
        |(?P<name>(?:\{[^{}]*\}|[^.\[\]{}"'\s*][^.\[\]{}"'*]*|\{\{|\}\})+)
        |(?P<star>\*)
    )""",
    re.VERBOSE,
)
MEMBER: Final = "member"
"""Built-in capture of JSON readings: the last member name on the path to the value."""

Place = tuple[int, str | int | None]
"""Identity of the object or list that contains a value, and its key there."""


@dataclass(slots=True)
class Hit:
    """A position in the document to which a path leads."""

    value: object
    parent: object
    key: str | int | None
    captures: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Key:
    name: str


@dataclass(frozen=True, slots=True)
class _Names:
    regex: re.Pattern[str] | None
    capture: str | None


@dataclass(frozen=True, slots=True)
class _Index:
    at: int


@dataclass(frozen=True, slots=True)
class _Items:
    capture: str | None


_AnyStep = _Key | _Names | _Index | _Items


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A compiled path."""

    text: str
    steps: tuple[_AnyStep, ...]
    names: tuple[str, ...]
    relative: bool
    """Whether it starts at the object that contains the value ("@")."""
    absolute: bool
    """Whether it starts at the whole document ("$"), and not at an item of it."""

    wild: bool = field(init=False)
    """Whether it can lead to several positions."""
    single: str | None = field(init=False)
    """The member name, for paths with a single name."""
    member: str | None = field(init=False)
    """The last fixed member name on the path, if no captured one follows."""
    has_member: bool = field(init=False)
    """Whether the path contains a member name."""
    by_names: bool = field(init=False)
    """Whether all its steps are member names, or patterns for them."""

    def __post_init__(self) -> None:
        only = self.steps[0] if len(self.steps) == 1 else None
        named = [step for step in self.steps if isinstance(step, _Key | _Names)]
        last = named[-1] if named else None
        computed = {
            "wild": any(isinstance(step, _Names | _Items) for step in self.steps),
            "single": only.name if isinstance(only, _Key) else None,
            "member": last.name if isinstance(last, _Key) else None,
            "has_member": bool(named),
            "by_names": bool(self.steps) and len(named) == len(self.steps),
        }
        # The class is frozen; these attributes are computed once here because the evaluation reads them for each
        # message.
        for name, value in computed.items():
            object.__setattr__(self, name, value)

    @property
    def fixed_names(self) -> tuple[str, ...]:
        """The names on a path of member names only; empty for any other path."""
        names = tuple(step.name for step in self.steps if isinstance(step, _Key))
        return names if len(names) == len(self.steps) else ()

    @property
    def fixed_steps(self) -> tuple[str | int, ...]:
        """The names and indices on a path of these only; empty for any other path."""
        steps = tuple(
            step.name if isinstance(step, _Key) else step.at for step in self.steps if isinstance(step, _Key | _Index)
        )
        return steps if len(steps) == len(self.steps) else ()

    def first(self, document: object) -> object:
        """Return the value at the first position; None if the path leads nowhere."""
        for hit in self.walk(document):
            return hit.value
        return None

    def leads_somewhere(self, document: object) -> bool:
        """Whether the document has a position for it."""
        if self.single is not None:
            return isinstance(document, dict) and self.single in document
        return next(self.walk(document), None) is not None

    def missing_name(self, document: object) -> tuple[str, list[str]] | None:
        """Return the first member name on the path that the document lacks, and the names in its place; None: none."""
        nodes = [document]
        for step in self.steps:
            found = [value for node in nodes for _, value, _ in _children(step, node, {}, None, 0)]
            if not found:
                names = [name for node in nodes if isinstance(node, dict) for name in node]
                return (step.name, names) if isinstance(step, _Key) else None
            nodes = found
        return None

    def name_at(self, at: int) -> str | None:
        """Return the fixed member name of the step at `at`; None: the step is another one."""
        step = self.steps[at]
        return step.name if isinstance(step, _Key) else None

    def captured(self, at: int, key: str, captures: dict[str, str]) -> dict[str, str] | None:
        """Return the captures after the step at `at`, which leads to the member `key`; None if it does not."""
        for _, _, found in _children(self.steps[at], {key: None}, captures, None, 0):
            return found
        return None

    def walk(self, document: object, taken: Container[Place] = ()) -> Iterator[Hit]:
        """Yield the positions in `document` in its order, without those `taken` (identity of the parent, key)."""
        if not self.steps:
            yield Hit(document, None, None, {})
            return
        yield from _walk(self.steps, 0, document, {}, taken)


def _walk(
    steps: tuple[_AnyStep, ...],
    at: int,
    node: object,
    captures: dict[str, str],
    taken: Container[Place],
) -> Iterator[Hit]:
    last = at == len(steps) - 1
    parent = id(node)
    for key, value, found in _children(steps[at], node, captures, taken if last and taken else None, parent):
        if last:
            yield Hit(value, node, key, found)
        elif isinstance(value, dict | list):
            yield from _walk(steps, at + 1, value, found, taken)


def _children(
    step: _AnyStep,
    node: object,
    captures: dict[str, str],
    taken: Container[Place] | None,
    parent: int,
) -> Iterator[tuple[str | int, object, dict[str, str]]]:
    if isinstance(node, dict):
        if isinstance(step, _Key):
            if step.name in node:
                yield step.name, node[step.name], captures
        elif isinstance(step, _Names):
            for key, value in node.items():
                if taken is not None and (parent, key) in taken:
                    continue
                if step.regex is None:
                    yield key, value, _with(captures, step.capture, key)
                elif match := step.regex.fullmatch(key):
                    yield key, value, {**captures, MEMBER: key, **match.groupdict()}
    elif isinstance(node, list):
        if isinstance(step, _Index):
            if -len(node) <= step.at < len(node):
                yield step.at, node[step.at], captures
        elif isinstance(step, _Items):
            for index, value in enumerate(node):
                yield index, value, captures if step.capture is None else {**captures, step.capture: str(index)}


def _with(captures: dict[str, str], name: str | None, key: str) -> dict[str, str]:
    found = {**captures, MEMBER: key}
    if name is not None:
        found[name] = key
    return found


def parse_path(text: str) -> JsonPath:
    """Parse a path such as `sensors[0].temperature` or `{sensor}.Temperature`. Raises `BadKeyError`."""
    rest = text.strip()
    relative = rest.startswith("@")
    if rest[:1] in ("$", "@"):
        rest = rest[1:]
    names: list[str] = []
    steps: list[_AnyStep] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None or (steps and rest[position] not in ".["):
            raise BadKeyError(because("not_a_path", name=text, rest=rest[position:]), allowed=_ALLOWED)
        steps.append(_step(match, names))
        position = match.end()
    if not rest and not text.strip():
        raise BadKeyError(because("path_empty"), allowed=_ALLOWED)
    # Bounds the recursion of `_walk`.
    if len(steps) > 32:
        raise BadKeyError("A path has at most 32 steps.")
    return JsonPath(text, tuple(steps), tuple(names), relative, text.strip().startswith("$"))


def _step(match: re.Match[str], names: list[str]) -> _AnyStep:
    if match["index"] is not None:
        return _Index(int(match["index"]))
    if match["all"]:
        return _Items(None)
    if match["nth"]:
        names.append(match["nth"])
        return _Items(match["nth"])
    if match["star"]:
        return _Names(None, None)
    for quoted in ("quoted", "name2"):
        if match[quoted] is not None:
            return _Key(match[quoted])
    literal, regex, capture = name_pattern(match["name"], names)
    return _Key(literal) if literal is not None else _Names(regex, capture)
