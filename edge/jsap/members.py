"""Access to the members of an object by name and type, with notes about unused members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

from edge.jsap.findings import Findings
from edge.jsap.names import expand, meant, shown
from edge.jsap.nodes import Node

Choice = TypeVar("Choice", bound=str)

_KINDS: Final[dict[type, str]] = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


class Members:
    """An object, or an empty one. Each accessor reports an invalid member to `findings`."""

    def __init__(self, node: Node | None, findings: Findings) -> None:
        self._findings = findings
        self._members: Mapping[str, Node] = {}
        self._asked: set[str] = set()
        if node is not None and node.value is not None:
            if isinstance(node.value, dict):
                self._members = node.value
            else:
                findings.problem(node.problem("must be an object"))

    def __contains__(self, name: str) -> bool:
        """Return whether the member exists, with any type."""
        return name in self._members

    def node(self, *names: str) -> Node | None:
        """Return the first existing member of these names."""
        # Reading a member marks it as known, even if it is missing. `rest` reports the unknown ones.
        self._asked.update(names)
        found = (self._members[name] for name in names if name in self._members)
        return next((node for node in found if node.value is not None), None)

    def items(self, name: str) -> Iterator[tuple[str, Node]]:
        """Yield the members of a member that is an object."""
        node = self._of_type(dict, name)
        if node is not None and isinstance(node.value, dict):
            yield from node.value.items()

    def object(self, name: str) -> Members:
        """Return a member that is an object."""
        return Members(self.node(name), self._findings)

    def text(self, *names: str) -> str | None:
        """Return a member that is a text."""
        node = self._of_type(str, *names)
        return node.value if node is not None and isinstance(node.value, str) else None

    def flag(self, name: str) -> bool | None:
        """Return a member that is true or false."""
        node = self._of_type(bool, name)
        return node.value if node is not None and isinstance(node.value, bool) else None

    def choice(self, name: str, choices: Mapping[str, Choice]) -> Choice | None:
        """Return the value in `choices` for a member that is one of its keys, in any case."""
        text = self.text(name)
        if text is None:
            return None
        found = choices.get(text.upper(), choices.get(text.lower()))
        if found is None:
            self.wrong(name, f"{shown(text)} is not one of {', '.join(dict.fromkeys(choices.values()))}")
        return found

    def port(self) -> int | None:
        """Return the member `port`, which may be a text."""
        node = self.node("port")
        if node is None:
            return None
        # Some profiles write the port as a text.
        value = (
            int(node.value)
            if isinstance(node.value, str) and node.value.isdecimal() and len(node.value) < 10
            else node.value
        )
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536:
            return value
        self._findings.problem(node.problem("a port is a whole number from 1 to 65535"))
        return None

    def iri(self, name: str, namespaces: Mapping[str, str]) -> str | None:
        """Return a member that is an IRI, absolute or with a prefix."""
        node = self._of_type(str, name)
        return None if node is None else self._iri(node, namespaces)

    def iris(self, name: str, namespaces: Mapping[str, str]) -> tuple[str, ...] | None:
        """Return a member that is an IRI or a list of IRIs."""
        node = self.node(name)
        if node is None:
            return None
        nodes = node.value if isinstance(node.value, list) else [node]
        found = [self._iri(each, namespaces) for each in nodes]
        return tuple([iri for iri in found if iri is not None])

    def wrong(self, name: str, reason: str) -> None:
        """Report an existing member as invalid."""
        self._findings.problem(self._members[name].problem(reason))

    def rest(self) -> None:
        """Add a note for each unused member."""
        for name, node in self._members.items():
            if name not in self._asked:
                hint = meant(name, self._asked - self._members.keys())
                self._findings.note(node.key_problem(f'the member "{name}" means nothing here{hint}'))

    def _of_type(self, kind: type, *names: str) -> Node | None:
        node = self.node(*names)
        if node is None or isinstance(node.value, kind):
            return node
        self._findings.problem(node.problem(f"must be {_KINDS[kind]}"))
        return None

    def _iri(self, node: Node, namespaces: Mapping[str, str]) -> str | None:
        try:
            if not isinstance(node.value, str):
                raise ValueError("must be an IRI")  # noqa: TRY004 - it is the file that is wrong
            return expand(node.value, namespaces)
        except ValueError as error:
            self._findings.problem(node.problem(str(error)))
            return None
