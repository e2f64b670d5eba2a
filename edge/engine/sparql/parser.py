"""Parser from SPARQL text to algebra with terms of Oxigraph: `edge.sparql.query_parser` with the engine's restrictions.

Oxigraph has validated the text before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edge.engine.sparql.terms_text import Names
from edge.protocol.syntax import reported
from edge.sparql.algebra import Blank, Expression, Fresh, Node, Query, Reference, Slot, Triple, Variable
from edge.sparql.cursor import NO_PARAMETERS, Parameters
from edge.sparql.query_parser import QueryParser, all_of
from edge.sparql.tokens import Token, read_prologue


@reported
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
    declared = Names(prologue, base).declared()
    parser = _Parser(tokens[index:], declared, parameters)
    query = all_of(parser, parser.query)
    _note_used(parser, used)
    return replace(query, base=declared.base)


@reported
def parse_group(
    tokens: Sequence[Token],
    names: Names,
    parameters: Parameters = NO_PARAMETERS,
    used: set[int] | None = None,
) -> Node:
    """Parse the content of an update's WHERE braces. See `parse_query`."""
    parser = _Parser(tokens, names.declared(), parameters)
    node = all_of(parser, parser.group_body)
    _note_used(parser, used)
    return node


@reported
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
    parser = _Parser(tokens, names.declared(), parameters, graph=graph, blank=blank, paths=False)
    quads = all_of(parser, parser.quads)
    _note_used(parser, used)
    return quads


class _Parser(QueryParser):
    """Refuses what Oxigraph evaluates in another way than the standard."""

    def sub_select(self) -> Node:
        """Read a sub-query without its braces."""
        if isinstance(self.graph, Variable):
            # By the standard the graph's variable is not in scope in the sub-query, although it determines the graph of
            # its triples. Oxigraph treats it as a different variable. So the engine refuses this case.
            self.fail("no sub-query where the graph is a variable")
        return super().sub_select()

    def sign_after_path(self) -> None:
        """Refuse `:p +1`: Oxigraph may read it as `:p+ 1`."""
        self.fail("a path or an object, and not what may be either,")

    def key_name(self, key: Expression) -> Variable:
        """Read the name of a key."""
        if isinstance(key, Reference):
            self.fail("a key that is not a variable")  # Oxigraph ignores its name
        return super().key_name(key)


def _note_used(parser: QueryParser, used: set[int] | None) -> None:
    if used is not None:
        used |= parser.used
