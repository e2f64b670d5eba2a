"""Check of the SPARQL of an entry, and its compilation to a template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyoxigraph as ox

from edge.jsap.bindings import ForcedBinding, Term, written
from edge.jsap.findings import Findings
from edge.jsap.names import meant
from edge.jsap.nodes import Node
from edge.jsap.syntax_check import check_syntax
from edge.jsap.targets import Kind
from edge.jsap.template import Edit, TextTemplate, blank_prefix, cut, edits, original
from edge.protocol.errors import ParsingFailed
from edge.sparql.tokens import Token, read_prologue, variables

_QUERIES: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})
_UPDATES: Final = frozenset({"INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"})

_EXAMPLE: Final = "urn:x-jsap:example"
_PLACE: Final = re.compile(r" \(line (\d+), column (\d+)\)")


@dataclass(frozen=True, slots=True)
class Draft:
    """Text of an update or query with its position in the file."""

    kind: Kind
    name: str
    node: Node
    text: str
    forced: Mapping[str, ForcedBinding]

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'


def template_of(
    draft: Draft, places: Mapping[str, Node], namespaces: Mapping[str, str], findings: Findings
) -> TextTemplate | None:
    """Return the template of a text, with PREFIX lines for undeclared prefixes, or None.

    Problems are reported at their position in the text, or at the forced binding, whose position `places` has.
    """
    try:
        changes, refusals, tokens = edits(draft.text, {name: each.type for name, each in draft.forced.items()})
    except ParsingFailed as error:
        _not_sparql(draft, error, findings)
        return None
    names = list(variables(tokens))
    for name, node in places.items():
        if name not in names:
            findings.problem(node.key_problem(f"{draft} has no variable ?{name}{meant(name, names)}"))
    for position, reason in refusals:
        findings.problem(draft.node.problem(reason, position))
    used = _undeclared(tokens)
    for prefix, position in used.items():
        if prefix not in namespaces:
            reason = f'the prefix "{prefix}:" is declared neither here nor in namespaces{meant(prefix, namespaces)}'
            findings.problem(draft.node.problem(reason, position))
    prologue = "".join(f"PREFIX {prefix}: <{namespaces[prefix]}>\n" for prefix in used if prefix in namespaces)
    template = cut(prologue, draft.text, changes, blank_prefix(tokens))
    # Earlier problems would only cause misleading syntax errors.
    if _is_of_kind(draft, tokens, findings) and not refusals and places.keys() == draft.forced.keys():
        # Unknown prefixes are already reported. They are declared here so that the parser reports other problems.
        unknown = "".join(f"PREFIX {prefix}: <urn:x-jsap:> " for prefix in used if prefix not in namespaces)
        _assess(draft, template, changes, len(prologue), unknown, findings)
    return template


def _is_of_kind(draft: Draft, tokens: Sequence[Token], findings: Findings) -> bool:
    """Return whether it is an update among updates, or a query among queries."""
    _, index = read_prologue(draft.text, tokens, 0)
    if index >= len(tokens):
        findings.problem(draft.node.problem(f"{draft} is empty"))
        return False
    word = tokens[index].word()
    if word in (_UPDATES if draft.kind == "query" else _QUERIES):
        other = "a query, which belongs under queries" if word in _QUERIES else "an update, which belongs under updates"
        findings.problem(draft.node.problem(f"{draft} is {other}", tokens[index].start))
        return False
    return True


def _assess(
    draft: Draft, template: TextTemplate, changes: Sequence[Edit], prologue: int, unknown: str, findings: Findings
) -> None:
    """Parse the text by Oxigraph with an example term in each slot: only the kinds of terms matter.

    `prologue`: characters of the template before the text. `unknown`: missing declarations.
    """
    terms = {name: _example(binding) for name, binding in draft.forced.items()}
    fault = check_syntax(draft.kind, unknown + template.filled(terms))
    if fault is None:
        return
    iris: dict[str, Term] = dict.fromkeys(terms, ox.NamedNode(_EXAMPLE))
    # If the text is also invalid with IRIs in all slots, the text itself is wrong. Otherwise the kind of a term is.
    own = check_syntax(draft.kind, unknown + template.filled(iris))
    misplaced = [] if own else _misplaced(draft, template, terms, changes, unknown)
    for edit in misplaced:
        reason = f"?{edit.variable} is declared as {draft.forced[edit.variable or ''].type}, which cannot stand here"
        findings.problem(draft.node.problem(reason, edit.start))
    if not misplaced:
        lengths = {name: len(written(term, template.blanks)) for name, term in (iris if own else terms).items()}
        position = original(changes, max(0, (own or fault).position - len(unknown) - prologue), lengths)
        findings.problem(draft.node.problem(f"{draft}: {(own or fault).reason}", position))


def _misplaced(
    draft: Draft, template: TextTemplate, terms: Mapping[str, Term], changes: Sequence[Edit], unknown: str
) -> list[Edit]:
    """Return the slots where a literal or blank node is not allowed. With IRIs in all slots the text is valid."""
    places = [edit for edit in changes if edit.variable is not None]
    # Slots are numbered, because one variable can have several of them.
    numbered = replace(template, slots=tuple((str(at), text) for at, (_, text) in enumerate(template.slots)))
    iris: dict[str, Term] = {str(at): ox.NamedNode(_EXAMPLE) for at in range(len(places))}
    return [
        edit
        for at, edit in enumerate(places)
        if check_syntax(draft.kind, unknown + numbered.filled({**iris, str(at): terms[edit.variable or ""]}))
        is not None
    ]


def _example(binding: ForcedBinding) -> Term:
    """Return an example term of the kind of a binding."""
    if binding.default is not None:
        return binding.default
    if binding.type == "uri":
        return ox.NamedNode(_EXAMPLE)
    if binding.type == "bnode":
        return ox.BlankNode("example")
    if binding.language is not None:
        return ox.Literal("", language=binding.language)
    return ox.Literal("", datatype=ox.NamedNode(binding.datatype)) if binding.datatype else ox.Literal("")


def _undeclared(tokens: Sequence[Token]) -> dict[str, int]:
    """Return prefixes used before their declaration, with their first positions."""
    declared: set[str] = set()
    found: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if token.kind == "name":
            prefix = token.text.partition(":")[0]
            if index and tokens[index - 1].word() == "PREFIX":
                declared.add(prefix)
            elif prefix not in declared:
                found.setdefault(prefix, token.start)
    return found


def _not_sparql(draft: Draft, error: ParsingFailed, findings: Findings) -> None:
    """Report the position and reason of a tokenizer error."""
    place = _PLACE.search(error.description)
    position = 0
    if place is not None:
        lines = draft.text.split("\n")[: int(place[1]) - 1]
        position = sum(len(line) + 1 for line in lines) + int(place[2]) - 1
    reason = _PLACE.sub("", error.description)
    findings.problem(draft.node.problem(f"{draft}: {reason}", position))
