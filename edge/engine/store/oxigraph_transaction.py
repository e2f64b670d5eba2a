"""Change an Oxigraph store in one transaction, so that concurrent readers see all of a change or none of it.

Oxigraph's `add`, `remove` and `extend` are one transaction each. A SPARQL update request is a single transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import pyoxigraph as ox

from edge.protocol.results import Term

GraphName = ox.NamedNode | ox.BlankNode


def apply_atomically(
    store: ox.Store, removed: Sequence[ox.Quad], added: Sequence[ox.Quad], graphs: Mapping[GraphName, bool]
) -> None:
    """Remove quads, create (True) and drop (False) named graphs, and add quads, in one transaction.

    An empty named graph whose name is a blank node changes in its own transaction, because SPARQL cannot name it.
    """
    if not removed and not graphs:
        store.extend(added)
        return
    old, old_blank = _split(removed)
    new, new_blank = _split(added)
    operations = [f"DELETE DATA {{ {_data(old)} }}"] if old else []
    if old_blank:
        operations.append(_by_functions(len(new_blank), len(new_blank) + len(old_blank), "DELETE"))
    for name, present in graphs.items():
        if isinstance(name, ox.NamedNode):
            operations.append(f"{'CREATE' if present else 'DROP'} SILENT GRAPH {name}")
        elif present:
            store.add_graph(name)
    if new:
        operations.append(f"INSERT DATA {{ {_data(new)} }}")
    if new_blank:
        operations.append(_by_functions(0, len(new_blank), "INSERT"))
    store.update(" ;\n".join(operations), custom_functions=_functions(new_blank + old_blank))
    for name, present in graphs.items():
        if not present and isinstance(name, ox.BlankNode):
            store.remove_graph(name)


def _split(quads: Iterable[ox.Quad]) -> tuple[list[ox.Quad], list[ox.Quad]]:
    """Split quads into those without and with blank nodes, which DATA would relabel. Triple terms count as blank."""
    plain: list[ox.Quad] = []
    blank: list[ox.Quad] = []
    for quad in quads:
        (blank if _has_blank(quad) else plain).append(quad)
    return plain, blank


def _has_blank(quad: ox.Quad) -> bool:
    return any(isinstance(term, ox.BlankNode | ox.Triple) for term in (quad.subject, quad.object, quad.graph_name))


def _data(quads: Iterable[ox.Quad]) -> str:
    return "\n".join(
        f"{quad.subject} {quad.predicate} {quad.object} ."
        if isinstance(quad.graph_name, ox.DefaultGraph)
        else f"GRAPH {quad.graph_name} {{ {quad.subject} {quad.predicate} {quad.object} }}"
        for quad in quads
    )


_FUNCTION: Final = "urn:x-edge:term-"
_POSITIONS: Final = ("subject", "predicate", "object", "graph")


def _by_functions(start: int, end: int, verb: str) -> str:
    """Return an operation on the quads `start` to `end`. Functions return the terms, which preserves blank nodes."""
    numbers = " ".join(str(number) for number in range(start, end))
    binds = " ".join(f"BIND(<{_FUNCTION}{position}>(?i) AS ?{position})" for position in _POSITIONS)
    # A template with an unbound variable is dropped. So the GRAPH template applies only where ?graph is bound, and the
    # default-graph template only where it is not.
    default = f"BIND(IF(BOUND(?graph), 1/0, <{_FUNCTION}predicate>(?i)) AS ?default)"
    template = "?subject ?default ?object . GRAPH ?graph { ?subject ?predicate ?object }"
    return f"{verb} {{ {template} }} WHERE {{ VALUES ?i {{ {numbers} }} {binds} {default} }}"


def _functions(quads: Sequence[ox.Quad]) -> dict[ox.NamedNode, Callable[..., Term | None]] | None:
    if not quads:
        return None

    def subject(number: Term) -> Term:
        return quads[int(number.value)].subject  # type: ignore[union-attr]

    def predicate(number: Term) -> Term:
        return quads[int(number.value)].predicate  # type: ignore[union-attr]

    def object_(number: Term) -> Term:
        return quads[int(number.value)].object  # type: ignore[union-attr]

    def graph(number: Term) -> Term | None:
        name = quads[int(number.value)].graph_name  # type: ignore[union-attr]
        return None if isinstance(name, ox.DefaultGraph) else name

    functions = (subject, predicate, object_, graph)
    return {
        ox.NamedNode(_FUNCTION + position): function for position, function in zip(_POSITIONS, functions, strict=True)
    }
