"""The RDF dataset of a request for the operators: the merged default graphs, and the graphs that GRAPH may name.

Operators find every graph of the store. So a GRAPH clause in a dataset must name a constant graph of the dataset, and
that constant must not be a parameter of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyoxigraph as ox

from edge.engine.operators.expression import UnsupportedConstruct
from edge.engine.operators.scope import STORE_DEFAULT
from edge.engine.operators.variables import nodes
from edge.engine.queries.oxigraph_queries import graphs
from edge.engine.requests import Dataset
from edge.sparql.algebra import GraphPattern, Node, Path, Triple
from edge.sparql.cursor import Parameters
from edge.sparql.tokens import Token


def without_graph_names(parameters: Parameters, tokens: Sequence[Token], more: Sequence[Token] = ()) -> Parameters:
    """Return the constants that may become parameters of a plan in a dataset: all but those that GRAPH names.

    `more`: further names of graphs.
    """
    names = {name.start for word, name in pairwise(tokens) if word.word() == "GRAPH"}
    names.update(token.start for token in more)
    fixed = {index for start, (_, index) in parameters.items() if start in names}
    return {start: place for start, place in parameters.items() if place[1] not in fixed}


def default_graphs(dataset: Dataset, pattern: Node) -> Sequence[ox.NamedNode | None]:
    """Return the graphs of the default graph, as for `Compiler`.

    Raises `UnsupportedConstruct` if operators may find graphs outside of the dataset for the pattern, and
    `ParsingFailed` for relative IRIs.
    """
    if not dataset.given:
        return STORE_DEFAULT
    default, _ = graphs(dataset)
    for node in nodes(pattern):
        if isinstance(node, GraphPattern):
            _check(node, dataset)
    return [graph if isinstance(graph, ox.NamedNode) else None for graph in default or ()]


def _check(node: GraphPattern, dataset: Dataset) -> None:
    if not isinstance(node.name, ox.NamedNode):
        raise UnsupportedConstruct("GRAPH with a variable in a dataset")
    # An empty graph of the dataset exists, and one of the store does not.
    if not any(isinstance(each, Triple | Path) for each in nodes(node.pattern)):
        raise UnsupportedConstruct("GRAPH around a pattern that may match no triple of the graph")
    if node.name.value not in (dataset.named_graphs or ()):
        raise UnsupportedConstruct("GRAPH with a name that is not in the dataset")
