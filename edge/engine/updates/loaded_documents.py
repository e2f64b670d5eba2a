"""Documents of LOAD: fetched, parsed and checked before they reach the writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import pyoxigraph as ox

from edge.engine.store.terms import POSITIONS, describe_problem, problem
from edge.engine.updates.update_plan import Load
from edge.protocol.errors import EdgeError, ResultTooLarge, UpdateFailed
from edge.protocol.results import Term

Loader = Callable[[str], Iterable[ox.Quad]]
"""Fetches and parses the document of a LOAD. Raises `EdgeError`, also during the iteration."""


def fetch(operation: Load, load: Loader, most: int) -> Sequence[ox.Quad]:
    """Return the quads that a LOAD inserts, with new blank nodes; none if a silent LOAD fails. May run on any thread.

    `most`: limit of quads. Raises `ResultTooLarge`, and `UpdateFailed` if the document is missing or holds terms that
    the graph cannot hold.
    """
    try:
        return _read(operation, load, most)
    except EdgeError as error:
        if operation.silent:
            return ()
        kind = ResultTooLarge if isinstance(error, ResultTooLarge) else UpdateFailed
        raise kind(f"LOAD {operation.document}: {error.description}") from None


def _read(operation: Load, load: Loader, most: int) -> Sequence[ox.Quad]:
    blanks: dict[str, Term] = {}
    quads: list[ox.Quad] = []
    for quad in load(operation.document.value):  # a loop in Python, so that other threads get the GIL between quads
        if len(quads) >= most:
            raise ResultTooLarge(
                f"the document has more than {most} quads (a fifth of engine.max_steps); load it in several parts"
            )
        terms = [
            _renamed(quad.subject, blanks),
            quad.predicate,
            _renamed(quad.object, blanks),
            operation.graph or _renamed(quad.graph_name, blanks),
        ]
        for position, term in zip(POSITIONS, terms, strict=True):
            if not isinstance(term, ox.DefaultGraph) and problem(term) is not None:
                raise UpdateFailed(describe_problem(position, term))
        quads.append(ox.Quad(*terms))  # type: ignore[arg-type]  # every position was checked
    return quads


def _renamed(term: Term | ox.DefaultGraph, blanks: dict[str, Term]) -> Term | ox.DefaultGraph:
    """Rename the blank nodes of a document, so that they differ from those of the graph."""
    return blanks.setdefault(term.value, ox.BlankNode()) if isinstance(term, ox.BlankNode) else term
