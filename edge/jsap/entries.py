"""Updates and queries of a profile (Listing 15): compiled once, then filled in for each request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import pyoxigraph as ox

from edge.jsap.bindings import ForcedBinding, Term, Value
from edge.jsap.errors import BindingError
from edge.jsap.findings import Findings
from edge.jsap.members import Members
from edge.jsap.nodes import Node
from edge.jsap.targets import Kind, Sparql11Target, SubscribeTarget, Targets
from edge.jsap.template import TextTemplate
from edge.jsap.texts import Draft, template_of


@dataclass(frozen=True, slots=True)
class Graphs:
    """Dataset of a request; None: the request names none.

    `using-graph-uri` and `using-named-graph-uri` of an update, `default-` and `named-` of a query.
    """

    default: tuple[str, ...] | None = None
    named: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ProfileEntry:
    """One update or query of a profile (Listing 15), ready to be sent."""

    name: str
    kind: Kind
    forced: Mapping[str, ForcedBinding]
    """By variable name, without question mark."""
    graphs: Graphs
    sparql11: Sparql11Target
    """Endpoint of the update or query."""
    sparql11se: SubscribeTarget
    """Endpoint for subscriptions to a query."""
    template: TextTemplate = field(repr=False)
    namespaces: Mapping[str, str] = field(repr=False)
    own_address: bool = False
    """Whether the entry names another broker than the profile does for all its entries."""

    def text(self, bindings: Mapping[str, Value] | None = None) -> str:
        """Return the SPARQL with these values, and defaults for the others, in place of the forced variables.

        PREFIX lines for undeclared prefixes are added. Raises `BindingError` for a missing, unknown or unsuitable
        value.
        """
        given = bindings or {}
        if unknown := given.keys() - self.forced.keys():
            name = min(unknown)
            listed = ", ".join(f"?{each}" for each in self.forced) or "none"
            raise BindingError(f'{self.kind} "{self.name}" has no forced binding ?{name}; there are: {listed}')
        terms: dict[str, Term] = {}
        for name, binding in self.forced.items():
            if name in given:
                try:
                    terms[name] = binding.term(given[name], self.namespaces)
                except BindingError as error:
                    raise BindingError(f'{self.kind} "{self.name}": {error}') from None
            elif binding.default is not None:
                terms[name] = binding.default
            else:
                raise BindingError(f'{self.kind} "{self.name}" needs a value for ?{name}, which has no default')
        return self.template.filled(terms)


@dataclass(frozen=True, slots=True)
class Common:
    """Settings of a profile for all its entries."""

    namespaces: Mapping[str, str]
    targets: Targets
    graphs: Mapping[Kind, Graphs]


def read_graphs(members: Members, kind: Kind, namespaces: Mapping[str, str]) -> Graphs:
    """Return the graphs of an update or query from a member `graphs`."""
    default, named = ("using-graph-uri", "using-named-graph-uri")
    if kind == "query":
        default, named = ("default-graph-uri", "named-graph-uri")
    return Graphs(members.iris(default, namespaces), members.iris(named, namespaces))


def read_entry(kind: Kind, name: str, node: Node, common: Common, findings: Findings) -> ProfileEntry | None:
    """Parse an entry. Returns None if it has no text; `findings` has the reason."""
    members = Members(node, findings)
    sparql = members.node("sparql")
    text = members.text("sparql")
    forced = {
        variable: binding
        for variable, each in members.items("forcedBindings")
        if (binding := _forced(variable, each, common.namespaces, findings)) is not None
    }
    graphs = members.object("graphs")
    own = {each: read_graphs(graphs, each, common.namespaces) for each in ("query", "update")}
    graphs.rest()
    members.node("host", "authentication", "sparql11protocol", "sparql11seprotocol")
    sparql11 = common.targets.sparql11_of(kind, members, findings)
    sparql11se = common.targets.subscribe_of(members, findings)
    nothing = Members(None, Findings())
    usual = common.targets.sparql11_of(kind, nothing, Findings()), common.targets.subscribe_of(nothing, Findings())
    members.rest()
    if sparql is None:
        findings.problem(node.key_problem(f'{kind} "{name}" has no member "sparql"'))
    if sparql is None or text is None:
        return None
    places = dict(members.items("forcedBindings"))
    template = template_of(Draft(kind, name, sparql, text, forced), places, common.namespaces, findings)
    if template is None:
        return None
    return ProfileEntry(
        name,
        kind,
        forced,
        own[kind] if "graphs" in members else common.graphs[kind],
        sparql11,
        sparql11se,
        template,
        common.namespaces,
        own_address=(sparql11.url, sparql11se.url) != tuple(target.url for target in usual),
    )


_TYPES: Final[Mapping[str, Literal["uri", "literal", "bnode"]]] = {"uri": "uri", "literal": "literal", "bnode": "bnode"}


def _forced(variable: str, node: Node, namespaces: Mapping[str, str], findings: Findings) -> ForcedBinding | None:
    members = Members(node, findings)
    type_ = members.choice("type", _TYPES)
    if members.node("type") is None:
        findings.problem(node.key_problem(f'?{variable} has no member "type"'))
    datatype, language = members.iri("datatype", namespaces), members.text("language")
    value = members.node("value")
    members.rest()
    if type_ is None:
        return None
    for member in ("datatype", "language"):
        if type_ != "literal" and members.node(member) is not None:
            members.wrong(member, f"a {type_} has no {member}")
    if datatype is not None and language is not None:
        members.wrong("language", "a literal has a datatype or a language, not both")
        return None
    if language is not None:
        try:
            # Oxigraph validates the language tag.
            ox.Literal("", language=language)
        except ValueError as error:
            members.wrong("language", f"no language tag: {error}")
            return None
    binding = ForcedBinding(variable, type_, datatype, language)
    if value is not None and value.value == "" and type_ != "literal":
        findings.note(value.problem(f"an empty text is not a valid {type_}, so ?{variable} has no default"))
        value = None
    if value is None:
        return binding
    if isinstance(value.value, dict | list) or value.value is None:
        findings.problem(value.problem("must be a text, a number or a truth value"))
        return binding
    try:
        return ForcedBinding(variable, type_, datatype, language, binding.term(value.value, namespaces))
    except BindingError as error:
        findings.problem(value.problem(str(error)))
        return binding
