"""Oxigraph's word on whether a text is SPARQL 1.1. It parses; nothing is evaluated and nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import pyoxigraph as ox

from edge.protocol.syntax import read_prologue, tokenize
from edge.sparql.explanation import diagnose

_BASE: Final = "http://localhost/"
"""Against what relative IRIs are resolved, as the gateway does."""

_FAILING: Final = "DROP GRAPH <urn:x-jsap:none>;"
"""An operation that fails on an empty store: all operations are parsed before the first runs, and none then does."""

_DEPTH: Final = {"{": 1, "}": -1}
_BLANKED: Final = re.compile(r"[^\n]")


class Fault(NamedTuple):
    """Why a text is no SPARQL, and from which of its characters on."""

    position: int
    reason: str


class _Parsed(Exception):
    """The query has been parsed."""


def check_syntax(kind: Literal["update", "query"], text: str) -> Fault | None:
    """None: the text is a legal update or query. Raises `ParsingFailed` for a text that has no tokens."""
    if kind == "query":
        try:
            ox.Store().query(text, base_iri=_BASE, default_graph=map(_stop, [None]))  # type: ignore[arg-type]
        except _Parsed:
            return None
        except (SyntaxError, ValueError) as error:
            return _fault(kind, text, error)
    faults = (_judge_operations(text, *parts) for parts in _runs(text)) if kind == "update" else ()
    return next((fault for fault in faults if fault is not None), None)


def _judge_operations(text: str, prologue: str, operations: str) -> Fault | None:
    try:
        ox.Store().update(prologue + _FAILING + operations, base_iri=_BASE)
    except RuntimeError:
        return None
    except (SyntaxError, ValueError):
        pass
    try:
        ox.Store().update(prologue + operations, base_iri=_BASE)  # again, for the position of the error
    except (SyntaxError, ValueError) as error:
        return _fault("update", text, error)
    return None


def _runs(text: str) -> Iterator[tuple[str, str]]:
    """The operations of an update, up to where declarations stand, and all declarations before them.

    Oxigraph takes declarations at the beginning only. All else that stands before is blanks, so that places stay.
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
    """A graph of the dataset, which Oxigraph asks for when it has parsed a query and before it evaluates it."""
    raise _Parsed


def _fault(kind: Literal["update", "query"], text: str, error: Exception) -> Fault:
    found = diagnose(kind, text, tokenize(text), str(error))
    return Fault(found.position, f"{found.problem}. {found.remedy}")
