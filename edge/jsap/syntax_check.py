"""Syntax check of SPARQL 1.1 by Oxigraph's parser, without evaluation and without network access."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import pyoxigraph as ox

from edge.protocol.syntax import tokenize
from edge.sparql.explanation import diagnose
from edge.sparql.tokens import read_prologue

_BASE: Final = "http://localhost/"
"""Base IRI for relative IRIs, as in the gateway."""

_FAILING: Final = "DROP GRAPH <urn:x-jsap:none>;"
"""An operation that fails on an empty store.

All operations are parsed before the first one runs, and the failure of the first stops the others.
"""

_DEPTH: Final = {"{": 1, "}": -1}
_BLANKED: Final = re.compile(r"[^\n]")


class SyntaxFault(NamedTuple):
    """Reason for a syntax error, and its position in the text."""

    position: int
    reason: str


class _Parsed(Exception):
    """Signals that the query was parsed."""


def check_syntax(kind: Literal["update", "query"], text: str) -> SyntaxFault | None:
    """Return None for a valid update or query, else the error. Raises `ParsingFailed` for invalid tokens."""
    if kind == "query":
        try:
            # Oxigraph asks for the first graph after parsing. `_stop` raises an exception there, so nothing is
            # evaluated.
            ox.Store().query(text, base_iri=_BASE, default_graph=map(_stop, [None]))  # type: ignore[arg-type]
        except _Parsed:
            return None
        except (SyntaxError, ValueError) as error:
            return _fault(kind, text, error)
    faults = (_judge_operations(text, *parts) for parts in _runs(text)) if kind == "update" else ()
    return next((fault for fault in faults if fault is not None), None)


def _judge_operations(text: str, prologue: str, operations: str) -> SyntaxFault | None:
    try:
        ox.Store().update(prologue + _FAILING + operations, base_iri=_BASE)
    except RuntimeError:
        # The inserted operation has failed as intended, so all operations were parsed.
        return None
    except (SyntaxError, ValueError):
        pass
    try:
        ox.Store().update(prologue + operations, base_iri=_BASE)  # parse again, for the position of the error
    except (SyntaxError, ValueError) as error:
        return _fault("update", text, error)
    return None


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """Yield operations of an update up to the next declarations, with all declarations before them.

    Oxigraph accepts declarations at the beginning only. Blanks replace all other preceding text, so that positions stay
    the same.
    """
    tokens = tokenize(text)
    prologue, start = "", 0
    index = 0
    while index < len(tokens):
        declared, after = read_prologue(text, tokens, index)
        begin = tokens[after].start if after < len(tokens) else len(text)
        if declared or not index:
            if index:
                yield prologue, text[start : tokens[index - 1].start]
            first = tokens[index].start if declared else 0
            prologue = prologue + _BLANKED.sub(" ", text[start:first]) + text[first:begin]
            start = begin
        index, depth = after, 0
        while index < len(tokens) and (depth or tokens[index].text != ";"):
            depth += _DEPTH.get(tokens[index].text, 0)
            index += 1
        index += 1
    yield prologue, text[start:]


def _stop(_: object) -> ox.NamedNode:
    """Raise `_Parsed`: Oxigraph requests this graph of the dataset after parsing and before evaluation."""
    raise _Parsed


def _fault(kind: Literal["update", "query"], text: str, error: Exception) -> SyntaxFault:
    found = diagnose(kind, text, tokenize(text), str(error))
    return SyntaxFault(found.position, f"{found.problem}. {found.remedy}")
