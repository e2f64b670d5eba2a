"""Profile: named updates and queries with forced bindings, graphs and endpoints (Listing 12); loading and checking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final

from edge.jsap import files
from edge.jsap.entries import Common, ProfileEntry, read_entry, read_graphs
from edge.jsap.errors import Problem, ProfileError, UnknownEntry
from edge.jsap.findings import Findings
from edge.jsap.members import Members
from edge.jsap.names import NAMESPACES, absolute, shown
from edge.jsap.nodes import Node
from edge.jsap.targets import Kind, Targets
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize


@dataclass(frozen=True, slots=True)
class SemanticMapping:
    """Initial mapping of an MQTT topic to the observation for its values (Listing 17). IRIs are absolute."""

    topic: str
    observation: str
    unit: str | None = None
    location: str | None = None
    comment: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class Profile:
    """An application: all its updates and queries."""

    name: str
    updates: Mapping[str, ProfileEntry]
    queries: Mapping[str, ProfileEntry]
    extended: Mapping[str, object]
    """Application data of the profile as JSON: objects are dicts, numbers int or float."""
    namespaces: Mapping[str, str]
    """Prefix to IRI."""
    mappings: tuple[SemanticMapping, ...]
    """Topics and their observations, from `extended.semantic-mappings` (Listing 17)."""

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Profile:
        """Load and check the profile of a file, JSON or YAML, with its includes.

        Raises `ProfileError` with all problems, `OSError` if the file cannot be read.
        """
        findings = Findings()
        return _usable(profile_of(files.read(Path(path), findings), str(path), findings), findings)

    @classmethod
    def parse(cls, text: str, name: str = "profile.jsap", *, includes: bool = True) -> Profile:
        """Parse a profile from a text. `name` is the file name for messages, against which includes are resolved.

        `includes`: whether it may include files.
        """
        findings = Findings()
        return _usable(profile_of(files.parse(text, name, findings, includes=includes), name, findings), findings)

    def update(self, name: str) -> ProfileEntry:
        """Return the update with this name. Raises `UnknownEntry`."""
        return self._entry("update", self.updates, name)

    def query(self, name: str) -> ProfileEntry:
        """Return the query with this name. Raises `UnknownEntry`."""
        return self._entry("query", self.queries, name)

    def _entry(self, kind: Kind, entries: Mapping[str, ProfileEntry], name: str) -> ProfileEntry:
        if name not in entries:
            raise UnknownEntry(self.name, kind, name, entries)
        return entries[name]


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a check of a profile, with all problems at once."""

    profile: Profile | None
    """None if there are problems."""
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    """Accepted but suspicious items, for example unknown members."""


def check(path: str | PathLike[str]) -> Report:
    """Read and check a profile with its included files. Raises `OSError` if the profile itself cannot be read."""
    findings = Findings()
    profile = profile_of(files.read(Path(path), findings), str(path), findings)
    return Report(None if findings.problems else profile, findings.problems, findings.notes)


def _usable(profile: Profile | None, findings: Findings) -> Profile:
    if profile is None or findings.problems:
        raise ProfileError(findings.problems)
    return profile


def profile_of(node: Node | None, name: str, findings: Findings) -> Profile | None:
    """Return the valid part of the profile of a document; `findings` has all problems."""
    if node is None:
        return None
    members = Members(node, findings)
    namespaces = dict(NAMESPACES)
    for prefix, each in members.items("namespaces"):
        namespaces[prefix] = _namespace(prefix, each, findings)
    graphs = members.object("graphs")
    common = Common(
        namespaces,
        Targets.of(members, findings),
        {"update": read_graphs(graphs, "update", namespaces), "query": read_graphs(graphs, "query", namespaces)},
    )
    graphs.rest()
    found: dict[Kind, dict[str, ProfileEntry]] = {"update": {}, "query": {}}
    for kind, member in _ENTRIES.items():
        for identifier, each in members.items(member):
            entry = read_entry(kind, identifier, each, common, findings)
            if entry is not None:
                found[kind][identifier] = entry
    extended = members.object("extended")
    mappings = _semantic_mappings(extended, namespaces, findings)
    plain = {key: each.plain() for key, each in members.items("extended")}
    # `files` has already processed the includes.
    members.node("include", "#include")
    members.rest()
    return Profile(name, found["update"], found["query"], plain, namespaces, mappings)


_ENTRIES: Final[Mapping[Kind, str]] = {"update": "updates", "query": "queries"}


def _semantic_mappings(
    extended: Members, namespaces: Mapping[str, str], findings: Findings
) -> tuple[SemanticMapping, ...]:
    """Read the member `semantic-mappings`. Topics are literal, not patterns."""
    found = []
    for topic, node in extended.items("semantic-mappings"):
        entry = Members(node, findings)
        observation = entry.iri("observation", namespaces)
        if entry.node("observation") is None:
            findings.problem(node.key_problem(f'the mapping of "{topic}" names no observation'))
        unit, location = entry.iri("unit", namespaces), entry.iri("location", namespaces)
        comment, label = entry.text("comment"), entry.text("label")
        entry.rest()
        if observation is not None:
            found.append(SemanticMapping(topic, observation, unit, location, comment, label))
    return tuple(found)


def _namespace(prefix: str, node: Node, findings: Findings) -> str:
    try:
        # The tokenizer decides whether SPARQL accepts the prefix.
        tokens = tokenize(f"{prefix}:")
        if len(tokens) != 1 or tokens[0].kind != "name":
            raise ParsingFailed("no prefix")
    except ParsingFailed:
        findings.problem(node.key_problem(f"{shown(prefix)} cannot be a prefix in SPARQL"))
    try:
        return absolute(node.value) if isinstance(node.value, str) else absolute("")
    except ValueError as error:
        findings.problem(node.problem(str(error)))
        # A placeholder: the entries can still be checked, and all problems are reported at once.
        return "urn:x-jsap:"
