"""SPARQL updates of one graph: the body of PATCH (SPARQL 1.1 Graph Store HTTP Protocol, section 5.7).

The graph of the request is the default graph of the update, which names no other graph. This module adds the name of
the graph to the text of each operation: the engine then runs it as any other update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import pyoxigraph as ox

from edge.protocol.errors import TooLarge, UnprocessableContent
from edge.protocol.syntax import closing, reported, tokenize
from edge.sparql import tokens as sparql_tokens
from edge.sparql.tokens import Token

_Edit = tuple[int, int, str]
"""Start and end of a range of the text, and the text that replaces it."""

_NAMING: Final = frozenset({"GRAPH", "USING", "WITH"})
_WHOLE: Final = frozenset({"ADD", "COPY", "CREATE", "DROP", "MOVE"})
_read_prologue: Final = reported(sparql_tokens.read_prologue)


def limited_to(graph: str, text: str, most: int) -> str:
    """Return an update that does to a graph what `text` does to the default graph. `graph`: empty for the default one.

    The check of the syntax is up to the engine. Raises `UnprocessableContent` if the text names graphs,
    `ParsingFailed`, `TooLarge` if the result would have more than `most` bytes.
    """
    name = str(ox.NamedNode(graph)) if graph else ""
    edits: list[_Edit] = []
    size = len(text.encode())
    for edit in chain.from_iterable(_edits(operation, name) for operation in _operations(text)):
        start, end, new = edit
        size += len(new.encode()) - len(text[start:end].encode())
        # During the loop: a short body with many operations and a long name would take their product in memory.
        if size > most:
            raise TooLarge(
                f"The update has more than {most} bytes when each operation names the graph, the limit "
                "http.max_message; send it in parts, or write more triples into each operation"
            )
        edits.append(edit)
    pieces: list[str] = []
    position = 0
    for start, end, new in sorted(edits):
        pieces += (text[position:start], new)
        position = end
    return "".join((*pieces, text[position:]))


def _operations(text: str) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each operation, without its declarations."""
    tokens = tokenize(text)
    index = 0
    while index < len(tokens):
        _, index = _read_prologue(text, tokens, index)
        start = index
        while index < len(tokens) and tokens[index].text != ";":
            index = closing(tokens, index) + 1 if tokens[index].text == "{" else index + 1
        if start < index:
            yield tokens[start:index]
        index += 1


def _edits(operation: Sequence[Token], name: str) -> Iterator[_Edit]:
    """Yield the changes of the text of an operation. `name`: the graph as an IRI of SPARQL, or empty."""
    words = [token.word() for token in operation]
    named = next((word for word in words if word in _NAMING), None)
    if named is not None:
        raise UnprocessableContent(
            f"The update names a graph ({named}), and PATCH changes only the graph of the URL: leave out {named}, or "
            "send the update to /update"
        )
    verb = words[0]
    if verb in _WHOLE or (verb == "CLEAR" and words[-1] != "DEFAULT"):
        raise UnprocessableContent(
            f"{verb} is for whole graphs, and PATCH changes only the graph of the URL: use CLEAR DEFAULT, PUT or "
            "DELETE, or send the update to /update"
        )
    if verb == "LOAD" and "INTO" in words:
        raise UnprocessableContent(
            "The update names a graph, and PATCH changes only the graph of the URL: leave out INTO"
        )
    if name:
        yield from _named(operation, words, name)


def _named(operation: Sequence[Token], words: Sequence[str], name: str) -> Iterator[_Edit]:
    first, last = operation[0], operation[-1]
    if words[0] == "LOAD":
        yield last.end, last.end, f" INTO GRAPH {name}"
    elif words[0] == "CLEAR":
        # SILENT: the default graph always exists, and the graph of the URL need not exist yet.
        silent = "" if "SILENT" in words else "SILENT "
        yield last.start, last.end, f"{silent}GRAPH {name}"
    elif words[0] in ("INSERT", "DELETE") and words[1:2] in (["DATA"], ["WHERE"]):
        # Anything else is not legal, and the engine reports it.
        if operation[2:3] and operation[2].text == "{" and last.text == "}":
            yield operation[2].end, operation[2].end, f" GRAPH {name} {{"
            yield last.start, last.start, "} "
    elif words[0] in ("INSERT", "DELETE"):
        yield first.start, first.start, f"WITH {name} "
