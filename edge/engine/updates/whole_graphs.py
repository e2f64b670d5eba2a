"""Operations on whole graphs in pieces: what the operations of one request do to a single triple.

CLEAR, DROP, ADD, COPY and MOVE treat each triple of a graph alike and look at no other triple (SPARQL 1.1 Update,
3.1.3 and 3.2). So what a request of such operations and of data leaves of one triple follows from the graphs that have
it. That is found out triple by triple, and again for a triple that others change meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge.engine.store.graph import DEFAULT_GRAPH, LiveGraph, Quad
from edge.engine.store.transaction import Transaction
from edge.engine.updates.update_plan import Manage, Target, Transfer
from edge.protocol.errors import ResultTooLarge, UpdateFailed

_MOST_OPERATIONS: Final = 64
"""Operations on whole graphs in one request that changes many quads: each is carried out for each triple."""

Data = Mapping[Quad, bool]
"""Quads that an operation adds (True) or removes."""


@dataclass(frozen=True, slots=True)
class _Clear:
    """CLEAR or DROP, or CREATE, which clears nothing."""

    operation: Manage
    graph: int | None
    """None: DEFAULT, NAMED or ALL."""

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
    """The triples that the source has when the operation is carried out."""


class WholeGraphs:
    """The operations of one request. Graphs and triples are ids; whoever calls holds references to them."""

    def __init__(
        self, graph: LiveGraph, operations: Sequence[Manage | Transfer | Data], transaction: Transaction
    ) -> None:
        """`operations`: in order. Raises `Forbidden` where the client may not change a graph, `ResultTooLarge`."""
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
        """The graphs of transfers: what a triple becomes in one of them may follow from the others."""
        self._read = {step.source for step in transfers}
        self._read |= {step.destination for step in transfers if step.operation.verb != "ADD"}
        self._written = {step.destination for step in transfers}
        self._written |= {step.source for step in transfers if step.operation.verb == "MOVE"}
        self.named = {*self._linked, *(step.graph for step in self._clears if step.graph is not None)}
        """The ids of the graphs that operations name."""

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
        """Whether what others change in a graph can change what the operations do."""
        return graph in self._linked or self._covers(graph)

    def _covers(self, graph: int) -> bool:
        return any(step.covers(graph) for step in self._clears)

    def walk(self) -> Iterator[Quad]:
        """The quads of the graphs that are cleared or copied. The graph may change between two steps.

        Those that are there all the time are among them; ask `effects` again for those that others change.
        """
        for name in [name for name in self._graph.graphs if name in self._read or self._covers(name)]:
            yield from self._graph.walk_ids(name)

    def effects(self, quads: Iterable[Quad]) -> Iterator[tuple[Quad, bool]]:
        """What becomes of the triples of these quads, as it is now: quads, and whether they are to be there."""
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
        """Which named graphs the operations begin (True) or end, as it is now.

        Raises `UpdateFailed` where one of them fails.
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
                    raise UpdateFailed(f"CREATE: the graph {target.graph} exists already; CREATE SILENT does not mind")
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
    """Carry out a transfer for one triple. `after`: which graphs have it."""
    if step.source == step.destination:
        return
    there = after[step.source]
    (step.moved.add if there else step.moved.discard)(triple)
    after[step.destination] = there or (step.operation.verb == "ADD" and after[step.destination])
    if step.operation.verb == "MOVE":
        after[step.source] = False


def no_graph(verb: str, target: Target) -> str:
    """What is said where an operation needs a graph that does not exist."""
    return f"{verb}: there is no graph {target.graph}; {verb} SILENT does not mind"
