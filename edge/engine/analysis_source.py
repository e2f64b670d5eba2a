"""A query as rdflib is given it: every IRI and string under a name of its own, every EXISTS as a query of its own.

So Oxigraph alone says what an IRI or an escaped string means, where rdflib resolves and unescapes in its own ways; and
EXISTS, which rdflib's algebra leaves half translated, is analysed like any other pattern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyoxigraph as ox
import rdflib

from edge.engine.sparql.syntax import Token, closing, tokenize
from edge.engine.sparql.template import Names, parse_iri
from edge.protocol.results import Term

_IRI: Final = "urn:x-edge:iri:"
_FORMS: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})


class QuerySource:
    """The text of a query, taken apart for analysis."""

    def __init__(self, text: str, base_iri: str) -> None:
        """`text` is a legal query. Raises `ParsingFailed` where it is not."""
        tokens = tokenize(text)
        at = next(index for index, token in enumerate(tokens) if token.word() in _FORMS)
        self._names = Names(text[: tokens[at].start], base_iri)
        self._tokens = tokens[at:]
        self._iris: list[ox.NamedNode] = []
        self._strings: list[str] = []

    def parts(self) -> Iterator[str]:
        """Queries that depend, together, on what the query depends on."""
        groups: list[tuple[str, Sequence[Token]]] = []
        yield self._write(self._tokens, "", groups)
        while groups:
            graph, group = groups.pop()
            text = self._write(group, graph, groups)
            yield f"SELECT * {{ GRAPH {graph} {{ {text} }} }}" if graph else f"SELECT * {{ {text} }}"

    def term(self, node: object) -> Term | None:
        """A constant of rdflib's algebra as the engine's term; None for variables and blank nodes."""
        if isinstance(node, rdflib.URIRef):
            return self._iri(node)
        if not isinstance(node, rdflib.Literal):
            return None
        if node.language:
            return ox.Literal(self._string(node), language=node.language)
        if node.datatype is None:
            return ox.Literal(self._string(node))
        written = str(node.datatype).startswith(_IRI)  # not where the datatype is that of a number or of true or false
        return ox.Literal(self._string(node) if written else str(node), datatype=self._iri(node.datatype))

    def _iri(self, node: rdflib.URIRef) -> ox.NamedNode:
        text = str(node)
        return self._iris[int(text[len(_IRI) :])] if text.startswith(_IRI) else ox.NamedNode(text)

    def _string(self, node: rdflib.Literal) -> str:
        return self._strings[int(str(node))]

    def _write(self, tokens: Sequence[Token], graph: str, groups: list[tuple[str, Sequence[Token]]]) -> str:
        """The tokens as text. The group of an EXISTS goes to `groups` with the GRAPH around it, and true is left."""
        pieces: list[str] = []
        around = [graph]
        index = end = 0
        while index < len(tokens):
            token = tokens[index]
            gap = "" if token.start == end else " "
            end = token.end
            if token.word() == "EXISTS":
                last = closing(tokens, index + 1)
                groups.append((around[-1], tokens[index + 2 : last]))
                if pieces and pieces[-1].strip().upper() == "NOT":
                    pieces.pop()
                pieces.append(" (true) ")
                index, end = last + 1, tokens[last].end
                continue
            if token.text == "{":
                named = index > 1 and tokens[index - 2].word() == "GRAPH"
                around.append(pieces[-1].strip() if named else around[-1])
            elif token.text == "}":
                around.pop()
            pieces.append(gap + self._token(token))
            index += 1
        return "".join(pieces)

    def _token(self, token: Token) -> str:
        if token.kind in ("iri", "name"):
            self._iris.append(parse_iri(token, self._names))
            return f"<{_IRI}{len(self._iris) - 1}>"
        if token.kind == "string":
            (quad,) = ox.parse(f"<x:> <x:> {token.text} .", format=ox.RdfFormat.TURTLE)
            self._strings.append(quad.object.value)
            return f'"{len(self._strings) - 1}"'
        return token.text
