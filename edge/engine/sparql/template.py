"""Quad templates: the INSERT and DELETE clauses of updates, the templates of CONSTRUCT, and plain triple patterns.

A template is read by Oxigraph's TriG parser with its variables written as IRIs that nobody else can know. So prefixes,
escapes, numbers, lists and property lists mean exactly what they mean to Oxigraph.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyoxigraph as ox

from edge.engine.sparql.algebra import Blank, Fresh, Slot, Variable
from edge.engine.sparql.syntax import Token, closing
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term

_VARIABLE: Final = f"urn:x-edge:{uuid.uuid4()}:"


@dataclass(frozen=True, slots=True)
class QuadTemplate:
    """One quad with slots. `graph` None: the graph that the operation works on (WITH, or the default graph)."""

    subject: Slot
    predicate: Slot
    object: Slot
    graph: Slot | None

    def with_fresh_blanks(self) -> QuadTemplate:
        """The quad as a template's: its blank nodes are none of those that stand in the pattern."""
        subject, object_ = (Fresh(x.label) if isinstance(x, Blank) else x for x in (self.subject, self.object))
        return QuadTemplate(subject, self.predicate, object_, self.graph)


@dataclass(frozen=True, slots=True)
class Names:
    """How IRIs are written in a request: the prologue (PREFIX and BASE declarations) and the base IRI before it."""

    prologue: str
    base: str | None


def parse_quads(text: str, tokens: Sequence[Token], names: Names, *, variables: bool) -> tuple[QuadTemplate, ...]:
    """The quads written between (not including) the braces of a template.

    Raises `ParsingFailed` if they are not plain quads. `variables` False: none may occur (INSERT DATA, DELETE DATA).
    """
    document = [names.prologue]
    index = start = 0
    while index < len(tokens):
        if tokens[index].word() == "GRAPH":
            _block("", text, tokens[start:index], document)
            end = closing(tokens, index + 2)
            _block(_term_text(tokens[index + 1]), text, tokens[index + 3 : end], document)
            index = end + 1
            if index < len(tokens) and tokens[index].text == ".":
                index += 1
            start = index
        else:
            index += 1
    _block("", text, tokens[start:], document)
    try:
        quads = list(ox.parse("".join(document), format=ox.RdfFormat.TRIG, base_iri=names.base))
    except (SyntaxError, ValueError) as error:
        raise ParsingFailed(f"Not a list of quads: {error}") from None
    templates = tuple(_template(quad) for quad in quads)
    if not variables and any(isinstance(slot, Variable) for quad in templates for slot in _slots(quad)):
        raise ParsingFailed("INSERT DATA and DELETE DATA take no variables; use INSERT { } WHERE { }")
    return templates


def parse_iri(token: Token, names: Names) -> ox.NamedNode:
    """An IRI as written (`<..>` or a prefixed name), resolved."""
    text = f"{names.prologue}<x:> <x:> {token.text} ."
    try:
        (quad,) = ox.parse(text, format=ox.RdfFormat.TURTLE, base_iri=names.base)
    except (SyntaxError, ValueError) as error:
        raise ParsingFailed(f"Not an IRI: {token.text} ({error})") from None
    if not isinstance(quad.object, ox.NamedNode):
        raise ParsingFailed(f"Not an IRI: {token.text}")
    return quad.object


def _block(graph: str, text: str, tokens: Sequence[Token], document: list[str]) -> None:
    """Write one braced block of TriG, the original text with its variables replaced."""
    if not tokens:
        return
    document.append(graph + " {")
    position = tokens[0].start
    for token in tokens:
        if token.kind == "var":
            document.append(text[position : token.start])
            document.append(_term_text(token))
            position = token.end
    document.append(text[position : tokens[-1].end])
    document.append("\n}\n")


def _term_text(token: Token) -> str:
    return f"<{_VARIABLE}{token.text[1:]}>" if token.kind == "var" else token.text


def _template(quad: ox.Quad) -> QuadTemplate:
    graph = None if isinstance(quad.graph_name, ox.DefaultGraph) else _slot(quad.graph_name)
    return QuadTemplate(_slot(quad.subject), _slot(quad.predicate), _slot(quad.object), graph)


def _slot(term: Term) -> Slot:
    if isinstance(term, ox.NamedNode) and term.value.startswith(_VARIABLE):
        return Variable(term.value[len(_VARIABLE) :])
    if isinstance(term, ox.BlankNode):
        return Blank(term.value)
    if isinstance(term, ox.Triple):
        parts = (_slot(term.subject), _slot(term.predicate), _slot(term.object))
        if any(isinstance(part, Variable | Blank) for part in parts):
            raise ParsingFailed("Variables and blank nodes inside a triple term are not supported in templates")
    return term


def _slots(quad: QuadTemplate) -> Iterator[Slot]:
    yield quad.subject
    yield quad.predicate
    yield quad.object
    if quad.graph is not None:
        yield quad.graph
