"""Parser from SPARQL text to algebra (SPARQL 1.1 Query Language, 18.2 and 19.8).

Recursive descent over tokens. Oxigraph has validated the text before, so this parser need not detect every mistake. But
it raises `ParsingFailed` for every text that it does not understand, and never returns a tree with another meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from edge.engine.sparql.algebra import Blank, Fresh, Join, Node, Query, Slot, Triple, Variable
from edge.engine.sparql.cursor import NO_PARAMETERS, Parameters
from edge.engine.sparql.select_parser import SelectParser
from edge.engine.sparql.terms_text import Names
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term
from edge.protocol.syntax import Token, read_prologue

T = TypeVar("T")


def parse_query(
    text: str,
    tokens: Sequence[Token],
    base: str | None,
    parameters: Parameters = NO_PARAMETERS,
    used: set[int] | None = None,
) -> Query:
    """Parse a query. `base`: IRI that resolves relative IRIs if the query has no BASE.

    `parameters`: constants that the template leaves open. `used` receives the indexes of those that became a
    `Parameter`; all others are fixed. Raises `ParsingFailed`.
    """
    prologue, index = read_prologue(text, tokens, 0)
    names = Names(prologue, base)
    parser = _QueryParser(tokens[index:], names, parameters)
    return replace(_all_of(parser, parser.query, used), base=names.declared().base)


def parse_group(
    tokens: Sequence[Token],
    names: Names,
    parameters: Parameters = NO_PARAMETERS,
    used: set[int] | None = None,
    *,
    graph: Slot | None = None,
) -> Node:
    """Parse the content of an update's WHERE braces. `graph`: graph of WITH. See `parse_query`."""
    parser = SelectParser(tokens, names, parameters, graph=graph)
    return _all_of(parser, parser.group_body, used)


def parse_quads(
    tokens: Sequence[Token],
    names: Names,
    parameters: Parameters = NO_PARAMETERS,
    used: set[int] | None = None,
    *,
    graph: Slot | None = None,
    blank: type[Blank] | type[Fresh] = Fresh,
) -> tuple[Triple, ...]:
    """Parse the content of the braces of a template or of data in an update. See `parse_query`.

    `graph`: graph of WITH. `blank`: node class of blank nodes.
    """
    parser = SelectParser(tokens, names, parameters, graph=graph, blank=blank, paths=False)
    return _all_of(parser, parser.quads, used)


def _all_of(parser: SelectParser, read: Callable[[], T], used: set[int] | None) -> T:
    """Return the result of `read`, and check that no tokens are left."""
    try:
        result = read()
        parser.end()
    except RecursionError:
        raise ParsingFailed("Brackets are nested too deep; write it with fewer levels") from None
    if used is not None:
        used |= parser.used
    return result


class _QueryParser(SelectParser):
    """Reads queries of all forms."""

    def query(self) -> Query:
        """Read a query after its prologue."""
        form = self.token.word()
        if form == "SELECT":
            pattern, variables, dataset = self.select()
            return Query(form, pattern, variables, *dataset)
        if form not in ("ASK", "CONSTRUCT", "DESCRIBE"):
            self.fail("a query")
        self.advance()
        if form == "CONSTRUCT":
            return self._construct()
        if form == "DESCRIBE":
            return self._describe()
        dataset = self.dataset()
        return Query(form, self.modified(self.where()), (), *dataset)

    def _construct(self) -> Query:
        if self.token.text == "{":
            template = self.template()
            dataset = self.dataset()
            return Query("CONSTRUCT", self.modified(self.where()), (), *dataset, template=template)
        dataset = self.dataset()
        pattern = self.where()
        template = tuple(map(self._as_template, pattern.parts if isinstance(pattern, Join) else (pattern,)))
        return Query("CONSTRUCT", self.modified(pattern), (), *dataset, template=template)

    def _as_template(self, node: Node) -> Triple:
        if not isinstance(node, Triple):
            self.fail("CONSTRUCT WHERE with nothing but triples")
        subject, object_ = (
            Fresh(slot.label) if isinstance(slot, Blank) else slot for slot in (node.subject, node.object)
        )
        return Triple(subject, node.predicate, object_, node.graph)

    def _describe(self) -> Query:
        resources: list[Term | Variable] = []
        star = self.accept("*")
        while not star and self.token.kind in ("var", "iri", "name"):
            resources.append(self.variable() if self.token.kind == "var" else self.iri())
        dataset = self.dataset()
        has_where = self.token.text == "{" or self.token.word() == "WHERE"
        pattern = self.modified(self.where() if has_where else Join(()))
        return Query("DESCRIBE", pattern, (), *dataset, resources=tuple(self.visible) if star else tuple(resources))
