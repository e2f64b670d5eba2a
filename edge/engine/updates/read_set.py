"""Read sets: the quad patterns that can influence the result of an update, conservatively."""

from __future__ import annotations

from collections.abc import Sequence

import pyoxigraph as ox

from edge.engine.operators.layout import Frame
from edge.engine.queries.dependencies import dependencies
from edge.engine.queries.oxigraph_queries import QueryRules
from edge.engine.queries.subscription_index import EVERYTHING, Dependencies, Key
from edge.engine.sparql.parser import parse_query
from edge.engine.store.graph import LiveGraph
from edge.engine.updates.update_plan import Manage, Modify, OperatorWhere, OxigraphWhere, Target, Transfer, UpdatePlan
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import tokenize


def read_set(plan: UpdatePlan, constants: Sequence[int], graph: LiveGraph, rules: QueryRules) -> tuple[set[Key], bool]:
    """Return the patterns of the quads that an update reads, and whether it depends on the set of named graphs.

    WHERE clauses read. Operations on whole graphs apply to the state at their execution: CLEAR and DROP read nothing.
    ADD, COPY and MOVE read those quads of the source that later WHERE clauses read in the destination. `constants`:
    term ids.
    """
    keys: set[Key] = set()
    graph_names = False
    for operation in reversed(plan.operations):  # `keys` holds the reads of the later operations
        if isinstance(operation, Modify):
            where = operation.where
            if isinstance(where, OperatorWhere):
                frame = _frame(operation, where, graph, constants)
                for s, p, o, g in where.patterns:
                    keys.add((frame[s], frame[p], frame[o], frame[g]))
                graph_names |= where.graph_names
            elif where is not None:
                depends = _general(where, rules)
                keys.update(watch.key(graph) for watch in depends.watches)
                graph_names |= depends.graph_names
        elif isinstance(operation, Transfer):
            # Whether the source exists decides between an error and an effect.
            graph_names = True
            source, destination = (_id(target, graph) for target in (operation.source, operation.destination))
            # Later WHERE clauses read the destination, which then has the quads that the source has now.
            keys |= {(s, p, o, source) for s, p, o, g in keys if g is None or g == destination}
        elif isinstance(operation, Manage):
            graph_names = True
    return keys, graph_names


def _frame(operation: Modify, where: OperatorWhere, graph: LiveGraph, constants: Sequence[int]) -> Frame:
    """Return a frame with the constants of the WHERE clause. Constants of templates may be many, and are left out."""
    frame = operation.blank.copy()
    places = {place for pattern in where.patterns for place in pattern}
    for place, term in operation.terms:
        if place in places:
            frame[place] = graph.dictionary.intern_value(term)
    for place, index in operation.parameters:
        frame[place] = constants[index]
    return frame


def _general(where: OxigraphWhere, rules: QueryRules) -> Dependencies:
    """Return the dependencies of a WHERE clause for Oxigraph. One beyond our grammar depends on everything."""
    text = f"{where.prologue}SELECT * WHERE {where.group}"
    default = None if where.graph is None else [where.graph.value]
    if where.dataset.given:
        default = list(where.dataset.default_graphs or ())
    try:
        query = parse_query(text, tokenize(text), rules.settings.base_iri)
        return dependencies(query, default, union=rules.settings.default_graph_as_union)
    except (ParsingFailed, ValueError, RecursionError):
        return EVERYTHING


def _id(target: Target, graph: LiveGraph) -> int:
    return graph.intern_graph(target.graph or ox.DefaultGraph())
