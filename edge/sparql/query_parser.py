"""Parser of queries of all forms to algebra (SPARQL 1.1 Query Language, 18.2 and 19.8).

Recursive descent over tokens. The text has been validated before, so this parser need not detect every mistake. But it
raises `SparqlError` for every text that it does not understand, and never returns a tree with another meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from edge.sparql.algebra import Blank, Fresh, Join, Node, Query, Triple, Variable
from edge.sparql.cursor import References
from edge.sparql.errors import LimitOfText, SparqlError
from edge.sparql.select_parser import SelectParser
from edge.sparql.terms import AnyTerm

T = TypeVar("T")


def all_of(parser: SelectParser, read: Callable[[], T]) -> T:
    """Return the result of `read`, a method of the parser, and check that no tokens are left.

    A `SparqlError` without a place gets that of the last token that was read.
    """
    try:
        result = read()
        parser.end()
    except RecursionError:
        raise LimitOfText("The text is nested too deeply", parser.token.start, "Write it with fewer levels.") from None
    except SparqlError as error:
        if error.position is None and (read_tokens := parser.tokens_read()):
            error.position = read_tokens[-1].start
        raise
    return result


class QueryParser(SelectParser):
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
        # Short form (16.2.4): the pattern is also the template.
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
        resources: list[AnyTerm | Variable] = []
        named: References = []
        star = self.accept("*")
        while not star and self.token.kind in ("var", "iri", "name"):
            if self.token.kind == "var":
                named.append((Variable(self.token.text[1:]), self.token))
            resources.append(self.variable() if self.token.kind == "var" else self.iri())
        dataset = self.dataset()
        has_where = self.token.text == "{" or self.token.word() == "WHERE"
        # Without a WHERE clause: one empty solution, so the resources are described once.
        pattern = self.modified(self.where() if has_where else Join(()))
        self.check_grouped(named)
        return Query("DESCRIBE", pattern, (), *dataset, resources=tuple(self.visible) if star else tuple(resources))
