"""Operations on whole graphs, computed for single triples, so that a large change can be prepared in pieces.

CLEAR, DROP, ADD, COPY and MOVE treat all triples of a graph alike and independently of each other (SPARQL 1.1 Update,
3.1.3 and 3.2). So the effect of a request of such operations and of data on one triple follows from the graphs that
contain this triple. The engine computes it triple by triple, and again for a triple that another update changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.store.transaction import Transaction
from edge.engine.store.triple_index import Quad
from edge.engine.updates.update_plan import Manage, Target, Transfer
from edge.protocol.errors import ResultTooLarge, UpdateFailed

_MOST_OPERATIONS: Final = 64
"""Limit of operations on whole graphs in one request that changes many quads: each of them runs for each triple."""

Data = Mapping[Quad, bool]
"""Quads that an operation adds (True) or removes."""


@dataclass(frozen=True, slots=True)
class _Clear:
    """CLEAR or DROP; or CREATE, which affects no triples."""

    operation: Manage
    graph: int | None
    """Id of the graph; None for DEFAULT, NAMED or ALL."""

    def covers(self, graph: int) -> bool:
        which = self.operation.target.which
        if self.operation.verb == "CREATE":
            return False
        if self.graph is not None:
            return graph == self.graph
        return which == "ALL" or (which == "DEFAULT") == (graph == DEFAULT_GRAPH)


@dataclass(frozen=True, slots=True)
class _Transfer:
    operation: Transfer
    source: int
    destination: int
    moved: set[tuple[int, int, int]] = field(default_factory=set)
    """Triples of the source at the time of the operation. MOVE and COPY of none create no graph."""


class WholeGraphs:
    """The operations of one request. Graphs and triples are ids; the caller holds references to their terms."""

    def __init__(
        self, graph: LiveGraph, operations: Sequence[Manage | Transfer | Data], transaction: Transaction
    ) -> None:
        """`operations`: in order. Raises `ResultTooLarge`, and `Forbidden` if the client may not change a graph."""
        self._graph = graph
        self._steps: list[_Clear | _Transfer | Data] = []
        for operation in operations:
            if isinstance(operation, Manage):
                self._steps.append(self._clear(operation, transaction))
            elif isinstance(operation, Transfer):
                source, destination = self._name(operation.source), self._name(operation.destination)
                transaction.check(destination)
                if operation.verb == "MOVE":
                    transaction.check(source)
                self._steps.append(_Transfer(operation, source, destination))
            else:
                self._steps.append(operation)
        transfers = [step for step in self._steps if isinstance(step, _Transfer) and step.source != step.destination]
        self._clears = [step for step in self._steps if isinstance(step, _Clear)]
        if len(transfers) + len(self._clears) > _MOST_OPERATIONS:
            raise ResultTooLarge(
                f"The request has more than {_MOST_OPERATIONS} operations on whole graphs and changes many quads; "
                "send them in several requests"
            )
        self._linked = tuple({name for step in transfers for name in (step.source, step.destination)})
        """Graphs of transfers: the effect on a triple in one of them may depend on the others."""
        self._read = {step.source for step in transfers}
        self._read |= {step.destination for step in transfers if step.operation.verb != "ADD"}
        self._written = {step.destination for step in transfers}
        self._written |= {step.source for step in transfers if step.operation.verb == "MOVE"}
        self.named = {*self._linked, *(step.graph for step in self._clears if step.graph is not None)}
        """Ids of the graphs that the operations name."""

    def _name(self, target: Target) -> int:
        return DEFAULT_GRAPH if target.graph is None else self._graph.intern_graph(target.graph)

    def _clear(self, operation: Manage, transaction: Transaction) -> _Clear:
        target = operation.target
        if target.which in ("ALL", "NAMED"):
            transaction.check_all()
        else:
            transaction.check(self._name(target))
        return _Clear(operation, None if target.graph is None else self._name(target))

    def follows(self, graph: int) -> bool:
        """Return whether changes of other updates in a graph can influence the effects of the operations."""
        return graph in self._linked or self._covers(graph)

    def _covers(self, graph: int) -> bool:
        return any(step.covers(graph) for step in self._clears)

    def walk(self) -> Iterator[Quad]:
        """Yield the quads of the graphs that are cleared or copied. The graph may change between two steps.

        The iteration includes all quads that are present throughout. Call `effects` again for those that change.
        """
        for name in [name for name in self._graph.graphs if name in self._read or self._covers(name)]:
            yield from self._graph.walk_ids(name)

    def effects(self, quads: Iterable[Quad]) -> Iterator[tuple[Quad, bool]]:
        """Yield the goal for the triples of these quads in the current state: quads, and whether they are present."""
        linked, graph = self._linked, self._graph
        for s, p, o, g in quads:
            names = linked if g in linked else (g,)
            after = {name: graph.contains((s, p, o, name)) for name in names}
            touched = set(self._written) if g in linked else set()
            for step in self._steps:
                if isinstance(step, _Clear):
                    covered = [name for name in names if step.covers(name)]
                    after.update(dict.fromkeys(covered, False))
                    touched.update(covered)
                elif isinstance(step, _Transfer):
                    if step.source in names:
                        _carry(step, after, (s, p, o))
                else:
                    for name in names:
                        present = step.get((s, p, o, name))
                        if present is not None:
                            after[name] = present
                            touched.add(name)
            for name in touched:
                yield (s, p, o, name), after[name]

    def existence(self) -> dict[int, bool]:
        """Return the named graphs that the operations create (True) or drop in the current state.

        Raises `UpdateFailed` if one of the operations fails.
        """
        graphs = self._graph.graphs
        after = dict.fromkeys((name for name in graphs if name != DEFAULT_GRAPH), True)
        for step in self._steps:
            if isinstance(step, _Clear):
                self._manage(step, after)
            elif isinstance(step, _Transfer):
                self._move(step, after)
            else:
                after.update(dict.fromkeys((g for (_, _, _, g), present in step.items() if present), True))
        after.pop(DEFAULT_GRAPH, None)
        return {name: exists for name, exists in after.items() if exists is not (name in graphs)}

    def _manage(self, step: _Clear, after: dict[int, bool]) -> None:
        verb, target, silent = step.operation.verb, step.operation.target, step.operation.silent
        if step.graph is not None:
            exists = after.get(step.graph, False)
            if verb == "CREATE":
                if exists and not silent:
                    raise UpdateFailed(f"CREATE: the graph {target.graph} exists already; CREATE SILENT ignores this")
                after[step.graph] = True
                return
            if not exists and not silent:
                raise UpdateFailed(no_graph(verb, target))
        if verb == "DROP":
            after.update(dict.fromkeys((name for name in after if step.covers(name)), False))

    @staticmethod
    def _move(step: _Transfer, after: dict[int, bool]) -> None:
        verb, source, destination = step.operation.verb, step.source, step.destination
        if source != DEFAULT_GRAPH and not after.get(source, False) and not step.operation.silent:
            raise UpdateFailed(no_graph(verb, step.operation.source))
        if source == destination:
            return
        if verb != "ADD":
            after[destination] = False
        if step.moved:
            after[destination] = True
        if verb == "MOVE":
            after[source] = False


def _carry(step: _Transfer, after: dict[int, bool], triple: tuple[int, int, int]) -> None:
    """Execute a transfer for one triple. `after`: whether each graph contains it."""
    if step.source == step.destination:
        return
    there = after[step.source]
    (step.moved.add if there else step.moved.discard)(triple)
    after[step.destination] = there or (step.operation.verb == "ADD" and after[step.destination])
    if step.operation.verb == "MOVE":
        after[step.source] = False


def no_graph(verb: str, target: Target) -> str:
    """Return the error text for an operation on a graph that does not exist."""
    return f"{verb}: the graph {target.graph} does not exist; {verb} SILENT ignores this"
