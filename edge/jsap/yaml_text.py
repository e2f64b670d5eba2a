"""YAML as nodes with positions. Scalars have their JSON meaning: `no` is a text, and so is `1:30`.

Quoted and block scalars are texts; plain ones are true, false, null, a JSON number, or a text.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import yaml

from edge.jsap.findings import Findings
from edge.jsap.json_text import number
from edge.jsap.nodes import MAX_DEPTH, MAX_NODES, Node, NotReadable, Scalar, Source

_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None, "~": None, "": None}
_TAGS: Final = frozenset({"str", "map", "seq"})
"""Implicit tags of scalars, objects and lists."""


def read_yaml(source: Source, findings: Findings) -> Node:
    """Parse a document. Raises `NotReadable` for the first syntax error, or a value that JSON does not have."""
    try:
        # BaseLoader resolves no implicit types (`no`, `1:30`) and constructs no Python objects.
        root = yaml.compose(source.text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        offset = mark.index if mark is not None else 0
        what = ": ".join(part for part in (error.context, error.problem) if part)
        raise NotReadable(source.problem(min(offset, len(source.text)), f"not YAML: {what}")) from None
    except yaml.reader.ReaderError as error:
        raise NotReadable(source.problem(error.position, f"not YAML: {error.reason}")) from None
    except RecursionError:
        raise NotReadable(source.problem(0, f"nested deeper than {MAX_DEPTH} levels")) from None
    if root is None:
        raise NotReadable(source.problem(0, "the file is empty"))
    return _Converter(source, findings).node(root, None, 0)


class _Converter:
    def __init__(self, source: Source, findings: Findings) -> None:
        self._source = source
        self._findings = findings
        self._nodes = 0

    def node(self, given: yaml.Node, key: int | None, depth: int) -> Node:
        self._nodes += 1
        start = given.start_mark.index
        if depth > MAX_DEPTH:
            raise self._end(given, f"nested deeper than {MAX_DEPTH} levels")
        # Aliases repeat nodes. The limit bounds documents that expand exponentially ("billion laughs").
        if self._nodes > MAX_NODES:
            raise self._end(given, f"more than {MAX_NODES} values")
        tag = str(given.tag)
        if tag.removeprefix("tag:yaml.org,2002:") not in _TAGS:
            self._wrong(given, f'the tag "{tag}" means nothing here')
        if isinstance(given, yaml.ScalarNode):
            inner = partial(_offset, self._source.text, given)
            return Node(_scalar(given), self._source, start, key, inner)
        if isinstance(given, yaml.SequenceNode):
            return Node([self.node(item, None, depth + 1) for item in given.value], self._source, start, key)
        members: dict[str, Node] = {}
        for name, value in given.value:
            if not isinstance(name, yaml.ScalarNode):
                self._wrong(name, "a member's name must be a text")
                continue
            if name.value in members:
                self._wrong(name, f'the member "{name.value}" stands here twice')
            members[name.value] = self.node(value, name.start_mark.index, depth + 1)
        return Node(members, self._source, start, key)

    def _wrong(self, given: yaml.Node, reason: str) -> None:
        self._findings.problem(self._source.problem(given.start_mark.index, reason))

    def _end(self, given: yaml.Node, reason: str) -> NotReadable:
        return NotReadable(self._source.problem(given.start_mark.index, reason))


def _scalar(given: yaml.ScalarNode) -> Scalar:
    text = str(given.value)
    # Quoted and block scalars have a style; plain ones do not.
    if given.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    found = number(text)
    return text if found is None else found


def _offset(text: str, given: yaml.ScalarNode, number_: int) -> int:
    """Return the position of character `number_` of a scalar; approximate if it was folded or escaped."""
    start: int = given.start_mark.index
    end: int = given.end_mark.index
    written, value = text[start:end], str(given.value)
    if (verbatim := written.find(value)) >= 0:
        return start + verbatim + number_
    if given.style != "|" or not value.strip():
        return start
    number_ = min(number_, len(value.rstrip("\n")))
    line, column = value.count("\n", 0, number_), number_ - value.rfind("\n", 0, number_) - 1
    lines = written.splitlines(keepends=True)[1:]
    if line >= len(lines):
        return start
    indent = max(0, lines[line].find(value.splitlines()[line]))
    return start + written.index("\n") + 1 + sum(map(len, lines[:line])) + indent + column
