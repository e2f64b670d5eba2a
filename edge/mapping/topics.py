"""Topic patterns: MQTT wildcards, named captures, and an index that finds the patterns of a topic level by level."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from edge.mapping.errors import BadKeyError
from edge.mapping.fault_reasons import because

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_FORMS = "literal levels, +, # (last), {name}, {name:glob*|other}, {name...} (last)"

LITERAL: Final = 0
PARTIAL: Final = 1
ANY: Final = 2
MANY: Final = 3


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a pattern. The kind is also its rank: a smaller one is more specific."""

    kind: int
    text: str
    name: str | None = None
    regex: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A compiled pattern: its levels, and captures by name."""

    text: str
    levels: tuple[Level, ...]
    names: tuple[str, ...]
    many: frozenset[str]
    """Captures of several levels."""
    exact: str | None
    """The only topic that it matches, if it has no captures and wildcards."""

    @property
    def specificity(self) -> tuple[int, ...]:
        """Sort key: more specific patterns come first (literal < part of a level < whole level < many levels)."""
        return tuple(level.kind for level in self.levels)

    def captures(self, levels: list[str]) -> dict[str, str]:
        """Return the captures of a topic (as levels) that the pattern matches."""
        found: dict[str, str] = {}
        for index, level in enumerate(self.levels):
            if level.kind == MANY:
                if level.name is not None:
                    found[level.name] = "/".join(levels[index:])
            elif level.name is not None:
                found[level.name] = levels[index]
            elif level.regex is not None and (match := level.regex.fullmatch(levels[index])):
                found.update(match.groupdict())
        return found


def glob_regex(glob: str) -> str:
    """Convert a glob (`*`, `?`, alternatives with `|`) to a regular expression."""
    wild = {"*": ".*", "?": "."}
    return "|".join("".join(wild.get(char, re.escape(char)) for char in one) for one in glob.split("|"))


def name_pattern(text: str, names: list[str]) -> tuple[str | None, re.Pattern[str] | None, str | None]:
    """A name with captures: (literal, None, None), (None, regex, None), or (None, None, capture of all of it).

    New capture names are appended to `names`. Raises `BadKeyError`.
    """
    if "{" not in text and "}" not in text:
        return text, None, None
    regex: list[str] = []
    literal: list[str] = []
    captures = 0
    position = 0
    for token in _TOKEN.finditer(text):
        literal.append(text[position : token.start()])
        regex.append(re.escape(text[position : token.start()]))
        position = token.end()
        if token.group() in ("{{", "}}"):
            literal.append(token.group()[0])
            regex.append(re.escape(token.group()[0]))
            continue
        inner = token.group(1)
        name, colon, glob = (inner or "").partition(":")
        if inner is None or not _NAME.fullmatch(name) or (colon and not glob):
            raise BadKeyError(
                because("not_a_capture", name=token.group(), text=text), allowed="{name}, {name:glob*|other}"
            )
        if name in names:
            raise BadKeyError(f'"{text}" captures {{{name}}} twice.')
        names.append(name)
        captures += 1
        if token.group() == text and not colon:
            return None, None, name
        regex.append(f"(?P<{name}>{glob_regex(glob) if colon else '.+?'})")
    literal.append(text[position:])
    regex.append(re.escape(text[position:]))
    if not captures:
        return "".join(literal), None, None
    return None, re.compile("".join(regex), re.DOTALL), None


def parse_topic(text: str) -> TopicPattern:
    """Parse a topic pattern. Raises `BadKeyError`."""
    if not text or len(text) > 65_535 or "\0" in text:
        raise BadKeyError(because("topic_length"))
    names: list[str] = []
    many: set[str] = set()
    levels: list[Level] = []
    parts = text.split("/")
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "+":
            levels.append(Level(ANY, part))
        elif part == "#" or part.endswith("...}"):
            if not last:
                raise BadKeyError(because("the_last_level", name=part), allowed=_FORMS)
            levels.append(_many(part, names, many))
        elif wildcard := re.search("[+#]", _TOKEN.sub("", part)):
            raise BadKeyError(because("whole_level", name=wildcard.group(), text=part), allowed=_FORMS)
        else:
            literal, regex, name = name_pattern(part, names)
            if literal is not None:
                levels.append(Level(LITERAL, literal))
            else:
                levels.append(Level(ANY if name else PARTIAL, part, name, regex))
    exact = "/".join(level.text for level in levels) if all(level.kind == LITERAL for level in levels) else None
    return TopicPattern(text, tuple(levels), tuple(names), frozenset(many), exact)


def _many(part: str, names: list[str], many: set[str]) -> Level:
    if part == "#":
        return Level(MANY, part)
    name = part[1:-4]
    if not part.startswith("{") or not _NAME.fullmatch(name):
        raise BadKeyError(f'"{part}" is not a capture of several levels.', allowed="{name...} as the last level")
    if name in names:
        raise BadKeyError(because("captured_twice", name=name))
    names.append(name)
    many.add(name)
    return Level(MANY, part, name)


Item = TypeVar("Item")


@dataclass(slots=True)
class _Node(Generic[Item]):
    literals: dict[str, _Node[Item]] = field(default_factory=dict)
    partials: dict[str, tuple[re.Pattern[str], _Node[Item]]] = field(default_factory=dict)
    any: _Node[Item] | None = None
    here: list[Item] = field(default_factory=list)
    # MQTT 3.1.1, section 4.7.1.2: "a/#" also matches the parent level "a". A capture `{name...}` does not.
    parent_too: list[Item] = field(default_factory=list)
    rest: list[Item] = field(default_factory=list)


class TopicIndex(Generic[Item]):
    """Index of items by topic pattern: exact topics in a dict, the others in a tree."""

    def __init__(self) -> None:
        self._exact: dict[str, list[Item]] = {}
        self._root: _Node[Item] = _Node()

    def add(self, pattern: TopicPattern, item: Item) -> None:
        """Add `item` under `pattern`."""
        if pattern.exact is not None:
            self._exact.setdefault(pattern.exact, []).append(item)
            return
        node = self._root
        for level in pattern.levels:
            if level.kind == LITERAL:
                node = node.literals.setdefault(level.text, _Node())
            elif level.regex is not None:
                node = node.partials.setdefault(level.regex.pattern, (level.regex, _Node()))[1]
            elif level.kind == ANY:
                node.any = node.any or _Node()
                node = node.any
            else:
                node.rest.append(item)
                if level.name is None:
                    node.parent_too.append(item)
                return
        node.here.append(item)

    def find(self, topic: str, levels: list[str]) -> list[Item]:
        """Return the items of the patterns that match `topic`; `levels` are its levels."""
        found = list(self._exact.get(topic, ()))
        # MQTT 3.1.1, section 4.7.2: wildcards at the first level do not match topics that begin with "$".
        found.extend(_walk(self._root, levels, 0, wild=not topic.startswith("$")))
        return found


def _walk(node: _Node[Item], levels: list[str], depth: int, *, wild: bool) -> Iterator[Item]:
    if depth == len(levels):
        yield from node.here
        yield from node.parent_too
        return
    level = levels[depth]
    if wild:
        yield from node.rest
        if node.any is not None:
            yield from _walk(node.any, levels, depth + 1, wild=True)
        for regex, child in node.partials.values():
            if regex.fullmatch(level):
                yield from _walk(child, levels, depth + 1, wild=True)
    child_node = node.literals.get(level)
    if child_node is not None:
        yield from _walk(child_node, levels, depth + 1, wild=True)
