"""Look-up of the rules for the members of a JSON document, by the names of the members.

A mapping may have a hundred rules, and a message a dozen members. If each rule tried its path on each message, every
member that a mapping knows would cost time. Here the names on the way to a member lead through a tree, whose nodes hold
the rules for it. Messages with new names extend the tree. A name that paths contain is found in an index of a node, so
that a message with all names of many rules costs no more than their number.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final

from edge.mapping.jsonpath import Hit, JsonPath, Place

_NODES: Final = 1024
"""Names from messages that one tree remembers. The tree forgets them all then, and keeps the names of the paths."""
_FEW: Final = 8
"""Paths of fixed names that are walked one by one: that looks at fewer members than the tree does."""
_LONGEST_NAME: Final = 128
"""Longest name from a message that is remembered."""


@dataclass(frozen=True, slots=True)
class MemberPath:
    """Path of a rule; `number` orders the rules."""

    number: int
    path: JsonPath
    always: bool
    """Whether the rule has no conditions, and so takes each member that its path leads to."""


@dataclass(frozen=True, slots=True)
class _Match:
    """A path that leads to a member, or below it, with the captures on the way."""

    rule: MemberPath
    captures: dict[str, str]


@dataclass(slots=True)
class _Node:
    """A member, by the names on the way to it."""

    ends: tuple[_Match, ...] = ()
    """Paths to this member, in the order of the rules. Patterns end at the first rule that always takes it."""
    passing: tuple[_Match, ...] = ()
    """Paths to members of this member."""
    kept: bool = False
    """Whether all names on the way to it are those of paths, so that messages cannot add such nodes without limit."""
    children: dict[str, _Node] = field(default_factory=dict)
    index: tuple[dict[str, list[int]], list[int]] | None = None
    """Positions in `passing` by the fixed name that comes next, and those of patterns; None: not yet made."""

    def candidates(self, depth: int, key: str) -> tuple[list[int], bool]:
        """Return positions in `passing`, in their order, that may lead to `key`, and whether a path names it."""
        if self.index is None:
            names: dict[str, list[int]] = {}
            patterns: list[int] = []
            for position, match in enumerate(self.passing):
                name = match.rule.path.name_at(depth)
                (patterns if name is None else names.setdefault(name, [])).append(position)
            self.index = names, patterns
        names, patterns = self.index
        named = names.get(key)
        return (patterns if named is None else sorted(named + patterns)), named is not None

    def without_names_of_messages(self) -> _Node:
        """Return a copy with the kept nodes only."""
        children = {key: child.without_names_of_messages() for key, child in list(self.children.items()) if child.kept}
        return _Node(self.ends, self.passing, self.kept, children, self.index)


_NOTHING: Final = _Node()
"""Node of all names to which no rule leads."""


class MemberPaths:
    """Finds the values in a document that the rules of a mapping read. Thread-safe."""

    def __init__(self, paths: Iterable[MemberPath], taken: frozenset[str]) -> None:
        """Prepare the look-up. `taken`: members of the document that rules outside of it take in any case."""
        paths = tuple(paths)
        few = sum(bool(each.path.fixed_names) for each in paths) <= _FEW
        # Items of lists have no names to look up.
        walked = [each for each in paths if not each.path.by_names or (few and each.path.fixed_names)]
        self._walked = {each.number: each.path for each in walked}
        passing = tuple(_Match(each, {}) for each in paths if each.number not in self._walked)
        self._root = _Node(passing=passing, kept=True)
        self._taken = taken
        self._any = bool(paths)
        self.size = 0
        """Number of names from messages that it remembers."""

    def __bool__(self) -> bool:
        return self._any

    def by_rule(self, document: object, taken: Container[Place]) -> Iterator[tuple[int, Iterable[Hit]]]:
        """Yield the numbers of the rules in their order, with the values that they lead to.

        `taken`: places that rules have used. Some hits may be in such a place.
        """
        found: list[tuple[int, Hit | None]] = [(number, None) for number in self._walked]
        if self._root.passing and isinstance(document, dict):
            self._collect(self._root, 0, document, found)
        found.sort(key=itemgetter(0))
        for number, hits in groupby(found, itemgetter(0)):
            path = self._walked.get(number)
            if path is None:
                yield number, [hit for _, hit in hits if hit is not None]
            else:
                yield number, path.walk(document, taken if path.wild else ())

    def _collect(
        self, node: _Node, depth: int, document: dict[str, object], found: list[tuple[int, Hit | None]]
    ) -> None:
        """Add the hits below a node. A path has at most 32 steps, which bounds the recursion."""
        children = node.children
        for key, value in document.items():
            child = children.get(key)
            if child is None:
                child = self._child(node, depth, key)
            if child.ends:
                found.extend([(each.rule.number, Hit(value, document, key, each.captures)) for each in child.ends])
            if child.passing and isinstance(value, dict):
                self._collect(child, depth + 1, value, found)

    def _child(self, node: _Node, depth: int, key: str) -> _Node:
        candidates, named = node.candidates(depth, key)
        if not candidates:
            return _NOTHING
        ends: list[_Match] = []
        passing: list[_Match] = []
        taken = depth == 0 and key in self._taken
        for position in candidates:
            match = node.passing[position]
            path = match.rule.path
            captures = path.captured(depth, key, match.captures)
            if captures is None:
                continue
            if depth < len(path.steps) - 1:
                passing.append(_Match(match.rule, captures))
            elif not (taken and path.wild):
                ends.append(_Match(match.rule, captures))
                taken = taken or match.rule.always
        kept = node.kept and named
        child = _Node(tuple(ends), tuple(passing), kept) if ends or passing else _NOTHING
        if kept:
            node.children[key] = child
        elif len(key) <= _LONGEST_NAME:
            if self.size >= _NODES:
                # Replaced as a whole: another thread may be reading the old tree.
                self._root = self._root.without_names_of_messages()
                self.size = 0
            self.size += 1
            node.children[key] = child
        return child
