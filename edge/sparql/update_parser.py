"""Parser of the blocks in braces of an update (SPARQL 1.1 Query Language, 19.8, rules 29 to 52), to check their rules.

The grammar has accepted the text before, so this module only has to find the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from edge.sparql.algebra import Fresh, Slot, Variable
from edge.sparql.query_parser import QueryParser, all_of
from edge.sparql.terms_text import Declarations, declarations_of
from edge.sparql.tokens import Token, closing, read_prologue


def check_update(text: str, tokens: Sequence[Token], base: str | None) -> None:
    """Raise `SparqlError` for the first block of an update that breaks a rule of the parser."""
    labels: set[str] = set()
    for block in _blocks(text, tokens, base):
        if block.clause == "WHERE":
            where = QueryParser(block.tokens, block.names)
            all_of(where, where.group_body)
        else:
            quads = _QuadsParser(block, labels)
            all_of(quads, quads.quads)
            if block.clause == "INSERT DATA":
                labels |= quads.labels


class _Block(NamedTuple):
    """The content of a pair of braces."""

    clause: str
    """INSERT DATA, DELETE DATA, DELETE WHERE, INSERT, DELETE or WHERE."""
    tokens: Sequence[Token]
    names: Declarations


def _blocks(text: str, tokens: Sequence[Token], base: str | None) -> Iterator[_Block]:
    declared: list[Token] = []
    index = 0
    while index < len(tokens):
        start = index
        _, index = read_prologue(text, tokens, index)
        declared += tokens[start:index]
        names = declarations_of(declared, base)
        while index < len(tokens) and tokens[index].text != ";":
            if tokens[index].text != "{":
                index += 1
                continue
            end = closing(tokens, index)
            words = [token.word() for token in tokens[max(0, index - 2) : index]]
            clause = " ".join(words if words[-1] == "DATA" or words == ["DELETE", "WHERE"] else words[-1:])
            yield _Block(clause, tokens[index + 1 : end], names)
            index = end + 1
        index += 1


class _QuadsParser(QueryParser):
    """Reads data and templates, in which only some kinds of terms are allowed (SPARQL 1.1 Update, 3.1)."""

    label_scope = "INSERT DATA"

    def __init__(self, block: _Block, labels: set[str]) -> None:
        """`labels`: labels of blank nodes of other INSERT DATA in the request."""
        super().__init__(block.tokens, block.names, blank=Fresh, paths=False)
        self._clause = block.clause
        if block.clause == "INSERT DATA":
            self._closed_labels = labels

    @property
    def labels(self) -> set[str]:
        """Labels of blank nodes of this block."""
        return self._labels

    def variable(self) -> Variable:
        """Read a variable."""
        if self._clause.endswith("DATA"):
            verb = self._clause.partition(" ")[0]
            remedy = f"Use a constant, or {verb} with a WHERE clause."
            self.refuse(f"A variable cannot stand in {self._clause}", remedy)
        return super().variable()

    def subject(self) -> tuple[Slot, bool]:
        """Read the subject of triples."""
        if self._clause.endswith("DATA") and (self.token.kind in ("string", "number") or self.at_signed_number()):
            self.refuse("A literal cannot be the subject of a triple", "Use an IRI as the subject.")
        return super().subject()

    def node(self) -> Slot:
        """Read a subject or object."""
        token = self.token
        # They would match every node (4.1.2).
        if self._clause.startswith("DELETE"):
            if token.kind == "blank" or token.text == "[":
                self.refuse("A blank node cannot stand in DELETE", "Use a variable, and a WHERE clause.")
            if token.text == "(" and self.following().text != ")":
                problem = "A list in round brackets contains blank nodes, which cannot stand in DELETE"
                self.refuse(problem, "Use variables for its nodes, and a WHERE clause.")
        return super().node()
