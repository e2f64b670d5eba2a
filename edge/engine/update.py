"""The update processor: runs an update plan on the live graph and says exactly what changed.

Within an operation all deletions come before all insertions, over all solutions of its WHERE, which is evaluated once;
later operations see what earlier ones did (SPARQL 1.1 Update, 3.1.3 and 4.3). A request that fails half way is undone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NoReturn

import pyoxigraph as ox

from edge.engine import forced
from edge.engine.attempt import FIRST_STEPS, LongUpdate, Mode, Quads, Recorded
from edge.engine.changes import NO_CHANGE, ChangeSet, Statement
from edge.engine.evaluator import World
from edge.engine.forked_mirror import ForkedMirror
from edge.engine.general import too_long, too_many
from edge.engine.general_where import general_rows
from edge.engine.graph import DEFAULT_GRAPH, LiveGraph, Quad
from edge.engine.modify_compiler import Given
from edge.engine.operators.layout import Frame
from edge.engine.operators.stages import long_texts
from edge.engine.plan import (
    Data,
    GeneralWhere,
    Load,
    Manage,
    Modify,
    NativeWhere,
    Target,
    Template,
    Transfer,
    UpdatePlan,
)
from edge.engine.requests import UpdateRequest
from edge.engine.sparql.plans import PlanCache
from edge.engine.terms import problem
from edge.engine.update_compiler import UpdateCompiler
from edge.protocol.access import Access
from edge.protocol.errors import EdgeError, Forbidden, ResultTooLarge, UpdateFailed
from edge.protocol.results import Term

Loader = Callable[[str], Iterable[ox.Quad]]
"""Fetches and parses the document of a LOAD; raises `EdgeError`."""


class Transaction:
    """The changes of one request so far: applied to the live graph, net, and able to be undone."""

    def __init__(self, graph: LiveGraph, writable: Collection[int] | None = None, ledger: int | None = None) -> None:
        """`writable`: ids of the graphs that may be changed; None: all. `ledger`: that of the one that is none."""
        self._graph = graph
        self._writable = writable
        self._ledger = ledger
        self.beside: dict[Quad, None] = {}
        """What was added to that graph, so to the ledger."""
        self._quads: dict[Quad, bool] = {}
        self._graphs: dict[int, bool] = {}

    def apply(self, removed: Iterable[Quad], added: Iterable[Quad]) -> None:
        """Remove quads that are there, and then add others, and their graphs if these do not exist."""
        graph, quads = self._graph, self._quads
        if self._writable is not None:
            removed, added = list(removed), list(added)
            for name in {quad[3] for quad in (*removed, *added)}:
                self.check(name)
        for quad in removed:
            if graph.remove(quad) and not quads.pop(quad, False):
                quads[quad] = False
        for quad in added:
            if quad[3] not in graph.graphs:
                if quad[3] == self._ledger:
                    self.beside[quad] = None
                    continue
                self.create(quad[3])
            if graph.add(quad) and quads.pop(quad, True):
                quads[quad] = True

    def create(self, graph: int) -> None:
        """Begin a named graph if there is none of that name."""
        self.check(graph)
        if graph != self._ledger and self._graph.create(graph) and self._graphs.pop(graph, True):
            self._graphs[graph] = True

    def drop(self, graph: int) -> None:
        """Remove a graph's triples, and the graph if it has a name."""
        self.clear(graph)
        if self._graph.drop(graph) and not self._graphs.pop(graph, False):
            self._graphs[graph] = False

    def clear(self, graph: int) -> None:
        """Remove a graph's triples."""
        self.check(graph)
        self.apply([(s, p, o, graph) for s, p, o in self._graph.graphs[graph].match(None, None, None)], ())

    def check(self, graph: int) -> None:
        """Raises `Forbidden` where the client may not change a graph: whether or not it would, so it learns nothing."""
        if self._writable is not None and graph not in self._writable:
            name = self._graph.decode_graph(graph)
            raise Forbidden(f"This client may not change the graph {name}; who runs the gateway can allow it")

    def check_named(self, graph: int) -> None:
        """The same for a graph that a template names, before it is known whether its WHERE has solutions."""
        self.check(graph)

    def check_all(self) -> None:
        """Raises `Forbidden` where the client may not change every graph."""
        if self._writable is not None:
            raise Forbidden("This client may not change all graphs: name those that it may")

    @property
    def quads(self) -> Mapping[Quad, bool]:
        """The net change: True for a quad that is new, False for one that is gone."""
        return self._quads

    @property
    def graphs(self) -> Mapping[int, bool]:
        """The named graphs that began (True) or ceased (False) to exist."""
        return self._graphs

    def entries(self) -> list[Statement]:
        """What was added to the ledger, as terms."""
        terms = self._graph.dictionary.terms
        return [(terms[s], terms[p], terms[o], terms[g] if g else None) for s, p, o, g in self.beside]  # type: ignore[misc]

    def change_set(self) -> ChangeSet:
        """The net change, as terms."""
        terms = self._graph.dictionary.terms
        added: list[Statement] = []
        removed: list[Statement] = []
        for (s, p, o, g), present in self._quads.items():
            statement = (terms[s], terms[p], terms[o], terms[g] if g else None)  # 0 is the default graph
            (added if present else removed).append(statement)  # type: ignore[arg-type]
        if not self._graphs:
            return ChangeSet(added, removed)
        created = [terms[graph] for graph, present in self._graphs.items() if present]
        dropped = [terms[graph] for graph, present in self._graphs.items() if not present]
        return ChangeSet(added, removed, created, dropped)  # type: ignore[arg-type]

    def undo(self) -> None:
        """Bring the live graph back to where it was before. Nothing else may have changed it since."""
        self._set(forward=False)
        self._quads.clear()
        self._graphs.clear()
        self.beside.clear()

    @contextmanager
    def reverted(self) -> Iterator[None]:
        """The state before the transaction, for a look."""
        self._set(forward=False)
        try:
            yield
        finally:
            self._set(forward=True)

    def _set(self, *, forward: bool) -> None:
        for graph, present in self._graphs.items():
            if present == forward:
                self._graph.create(graph)
        for quad, present in self._quads.items():
            (self._graph.add if present == forward else self._graph.remove)(quad)
        for graph, present in self._graphs.items():
            if present != forward:
                self._graph.drop(graph)


class Deposit(Transaction):
    """The changes of a request that leaves the live graph alone: all that it adds goes to the ledger."""

    def apply(self, removed: Iterable[Quad], added: Iterable[Quad]) -> None:
        """Take in what is added; nothing can be removed from a ledger."""
        if self._ledger is not None:
            self.check(self._ledger)
        self.beside.update(dict.fromkeys(added))

    def check_named(self, graph: int) -> None:
        """Whatever graph the client names, what it adds goes to the ledger."""

    def create(self, graph: int) -> None:
        """Raises `UpdateFailed`."""
        self._refuse()

    def drop(self, graph: int) -> None:
        """Raises `UpdateFailed`."""
        self._refuse()

    def clear(self, graph: int) -> None:
        """Raises `UpdateFailed`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UpdateFailed("What is sent here is stored in the history, which only grows: insert triples")


class UpdateProcessor:
    """Turns update requests into transactions on one live graph."""

    def __init__(self, world: World, load: Loader, plans: int = 1024) -> None:
        """`plans` is how many compiled updates are kept."""
        self._world = world
        self._graph = world.graph
        self._rules = world.rules
        self._load = load
        self._plans: PlanCache[Given, UpdatePlan] = PlanCache(UpdateCompiler(world.graph, world.rules).compile, plans)
        self.steps = 0
        """Steps that the last run took, and quads that it changed."""
        self.ledger: int | None = None
        """The id of the graph that is none: what is added to it goes to the ledger. None: there is no ledger."""

    def plan(self, request: UpdateRequest) -> tuple[UpdatePlan, Sequence[Term]]:
        """The plan of an update, compiled on first sight of its shape, and the constants that it leaves open.

        Raises `ParsingFailed`, `Forbidden`, and `UpdateFailed` if the forced bindings do not fit. Any thread.
        """
        bindings = request.bindings
        dataset = request.dataset.seen_by(request.access)
        usual = not bindings and not dataset.given and dataset.readable is None
        given = None if usual else Given(dataset, forced.kinds(bindings))
        plan, constants = self._plans.get(request.sparql, given)
        return plan, forced.with_values(constants, bindings)

    def run(
        self,
        plan: UpdatePlan,
        constants: Sequence[Term],
        bindings: Mapping[str, Term],
        access: Access,
        now: int,
        *,
        beside: bool = False,
        mode: Mode = Mode.WHOLE,
        recorded: Recorded | None = None,
        found: Sequence[Quads | None] | None = None,
    ) -> Transaction:
        """Apply a plan to its constants. `now`: microseconds since 1970. Raises `EdgeError`: nothing changed.

        `beside`: what it adds goes to the ledger, and nothing else can be done. `recorded` takes what each operation
        removes and adds; `found` has that of an evaluation elsewhere. Raises `LongUpdate` in mode FIRST.
        """
        writable = None if access.write is None else self._ids(access.write)
        transaction = (Deposit if beside else Transaction)(self._graph, writable, self.ledger)
        ids = self._graph.dictionary.intern_values(constants)
        effort = self._graph.effort
        effort.begin(FIRST_STEPS if mode is Mode.FIRST else None)
        begun, changed = effort.left, 0
        try:
            for number, operation in enumerate(plan.operations):
                if isinstance(operation, Modify | Data):
                    known = None if found is None else found[number]
                    if known is not None:
                        removed, added = (list(map(self._graph.intern_quad, quads)) for quads in known)
                    elif isinstance(operation, Data):
                        quads = list(operation.quads(self._graph.dictionary))
                        removed, added = ([], quads) if operation.inserts else (quads, [])
                    else:
                        removed, added = self._modify(operation, ids, bindings, transaction, now, mode)
                    changed += len(removed) + len(added)
                    self._check_size(len(removed) + len(added))
                    if recorded is not None:
                        recorded.note(*(list(map(self._statement, dict.fromkeys(quads))) for quads in (removed, added)))
                    transaction.apply(removed, self._checked(added))
                    continue
                if recorded is not None:
                    recorded.note_other()
                if isinstance(operation, Manage):
                    self._manage(operation, transaction)
                elif isinstance(operation, Transfer):
                    self._transfer(operation, transaction)
                else:
                    self._load_document(operation, transaction)
        except BaseException as error:
            transaction.undo()
            self._world.mirror.note(NO_CHANGE)
            if mode is Mode.FIRST and isinstance(error, ResultTooLarge) and effort.left < 0:
                raise LongUpdate from None
            raise
        finally:
            self.steps = begun - effort.left + changed
        return transaction

    def outside(self, mirror: ForkedMirror) -> UpdateProcessor:
        """One that works in a forked process."""
        other = copy.copy(self)
        other._world = replace(self._world, mirror=mirror)  # type: ignore[arg-type]  # it has what updates use
        return other

    def _statement(self, quad: Quad) -> Statement:
        terms = self._graph.dictionary.terms
        s, p, o, g = quad
        return (terms[s], terms[p], terms[o], terms[g] if g else None)  # type: ignore[return-value]

    def _check_size(self, quads: int) -> None:
        """Raises `ResultTooLarge` where an operation changes more quads than a request may."""
        if quads > self._rules.max_changes:
            raise ResultTooLarge(
                f"The request changes more than {self._rules.max_changes} quads (engine.max_changes), which would hold "
                "up other clients for long; change them in parts"
            )

    def _ids(self, graphs: Collection[str]) -> Collection[int]:
        return {self._graph.intern_graph(ox.NamedNode(iri) if iri else ox.DefaultGraph()) for iri in graphs}

    def _modify(
        self,
        operation: Modify,
        constants: Sequence[int],
        bindings: Mapping[str, Term],
        transaction: Transaction,
        now: int,
        mode: Mode,
    ) -> tuple[list[Quad], list[Quad]]:
        """The quads that an operation removes and adds."""
        frame = operation.frame(self._graph.dictionary, constants)
        for place in operation.targets:
            transaction.check_named(frame[place])  # type: ignore[arg-type]  # a constant stands there
        removed: list[Quad] = []
        added: list[Quad] = []
        first, effort, each = mode is Mode.FIRST, self._graph.effort, len(operation.deletes) + len(operation.inserts)
        for number, _ in enumerate(self._solutions(operation, frame, bindings, transaction, now, mode)):
            if number >= self._rules.max_solutions:
                raise too_many(self._rules)
            removed += self._instances(operation.deletes, frame)
            if operation.inserts:
                for place in operation.fresh:
                    frame[place] = self._graph.dictionary.intern(ox.BlankNode())
                added += self._instances(operation.inserts, frame)
            if first:
                effort.spend(each)
        if self._graph.dictionary.long:
            self._check_length(added)
        return removed, added

    def _checked(self, added: Iterable[Quad]) -> Iterable[Quad]:
        """Return quads that are about to be inserted. Raises `UpdateFailed` where the graph cannot hold a term.

        What is committed must be restorable: a single quad that the journal cannot read back would make everything
        after it unreadable.
        """
        unstorable, terms = self._graph.dictionary.unstorable, self._graph.dictionary.terms
        if not unstorable:
            return added
        added = list(added)
        for quad in added:
            for position, term_id in zip(_POSITIONS, quad, strict=True):
                if term_id in unstorable:
                    term = terms[term_id]
                    raise UpdateFailed(
                        f"The graph cannot hold the {position} of a quad that is inserted: "
                        f"{_excerpt(term)} {problem(term)}"
                    )
        return added

    def _check_length(self, added: Iterable[Quad]) -> None:
        """Whether what a few words insert can be written to the journal. Raises `ResultTooLarge`."""
        if long_texts(self._graph.dictionary, dict.fromkeys(added, 1)) > self._rules.longest_result:
            raise too_long(self._rules, "What is inserted")

    def _instances(self, templates: Sequence[Template], frame: Frame) -> list[Quad]:
        """The quads of templates for one solution; what is unbound or in an illegal position yields none."""
        quads: list[Quad] = []
        for instance, legal in templates:
            quad = instance(frame)
            if None not in quad and (legal or self._graph.legal(quad)):  # type: ignore[arg-type]
                quads.append(quad)  # type: ignore[arg-type]
        return quads

    def _solutions(
        self,
        operation: Modify,
        frame: Frame,
        bindings: Mapping[str, Term],
        transaction: Transaction,
        now: int,
        mode: Mode,
    ) -> Iterable[None]:
        """The solutions of an operation's WHERE, one after the other in the frame."""
        where = operation.where
        if where is None:
            return (None,)
        if isinstance(where, NativeWhere):
            where.moment.now = now
            return where.operator.solutions(frame)
        return self._general(where, operation.variables, frame, bindings, transaction, now, mode)

    def _general(
        self,
        where: GeneralWhere,
        places: Mapping[str, int],
        frame: Frame,
        bindings: Mapping[str, Term],
        transaction: Transaction,
        now: int,
        mode: Mode,
    ) -> Iterator[None]:
        """The solutions of a WHERE clause that the mirror evaluates, in the state that the request has reached."""
        self._world.mirror.stage(transaction.change_set())
        names, rows = general_rows(where, bindings, self._world, now, mode)
        columns = [(index, places[name]) for index, name in enumerate(names) if name in places]
        intern, long = self._graph.dictionary.intern, self._graph.dictionary.long
        effort = self._graph.effort
        for row in rows:
            for index, place in columns:
                term = row[index]
                found = frame[place] = None if term is None else intern(term)
                if found in long:
                    effort.spend(effort.reading(long[found]))
            yield

    def _manage(self, operation: Manage, transaction: Transaction) -> None:
        target = operation.target
        if operation.verb == "CREATE":
            graph = self._graph.intern_graph(target.graph or ox.DefaultGraph())
            transaction.check(graph)
            if graph in self._graph.graphs and not operation.silent:
                raise UpdateFailed(f"CREATE: the graph {target.graph} exists already; CREATE SILENT does not mind")
            transaction.create(graph)
            return
        if target.which in ("ALL", "NAMED"):
            transaction.check_all()
        elif target.graph is not None:
            transaction.check(self._graph.intern_graph(target.graph))
        act = transaction.clear if operation.verb == "CLEAR" else transaction.drop
        graphs = self._targets(operation.verb, target, silent=operation.silent)
        self._check_size(sum(self._graph.graphs[graph].size for graph in graphs))
        for graph in graphs:
            act(graph)

    def _targets(self, verb: str, target: Target, *, silent: bool) -> list[int]:
        if target.which == "DEFAULT":
            return [DEFAULT_GRAPH]
        if target.which == "ALL":
            return list(self._graph.graphs)
        if target.which == "NAMED":
            return [graph for graph in self._graph.graphs if graph != DEFAULT_GRAPH]
        graph = self._graph.intern_graph(target.graph or ox.DefaultGraph())
        if graph in self._graph.graphs:
            return [graph]
        if silent:
            return []
        raise UpdateFailed(f"{verb}: there is no graph {target.graph}; {verb} SILENT does not mind")

    def _transfer(self, operation: Transfer, transaction: Transaction) -> None:
        """ADD, COPY, MOVE (SPARQL 1.1 Update, 3.2.3 to 3.2.5). A graph onto itself is no change."""
        destination = self._graph.intern_graph(operation.destination.graph or ox.DefaultGraph())
        transaction.check(destination)
        if operation.verb == "MOVE":
            transaction.check(self._graph.intern_graph(operation.source.graph or ox.DefaultGraph()))
        sources = self._targets(operation.verb, operation.source, silent=operation.silent)
        if sources == [destination]:
            return
        triples = [triple for source in sources for triple in self._graph.graphs[source].match(None, None, None)]
        if operation.verb != "ADD" and destination in self._graph.graphs:
            transaction.drop(destination)
        added = [(s, p, o, destination) for s, p, o in triples]
        self._check_size(len(added))
        self._check_length(added)
        transaction.apply((), added)
        if operation.verb == "MOVE":
            for source in sources:
                transaction.drop(source)

    def _load_document(self, operation: Load, transaction: Transaction) -> None:
        transaction.check(self._graph.intern_graph(operation.graph or ox.DefaultGraph()))
        try:
            quads = list(self._load(operation.document.value))
        except EdgeError as error:
            if operation.silent:
                return
            raise UpdateFailed(f"LOAD {operation.document}: {error.description}") from None
        blanks: dict[str, Term] = {}
        added: list[Quad] = []
        for quad in quads:
            name = operation.graph or _renamed(quad.graph_name, blanks)
            fresh = ox.Quad(_renamed(quad.subject, blanks), quad.predicate, _renamed(quad.object, blanks), name)  # type: ignore[arg-type]
            added.append(self._graph.intern_quad(fresh))
        try:
            transaction.apply((), self._checked(added))
        except UpdateFailed as error:
            if not operation.silent:
                raise UpdateFailed(f"LOAD {operation.document}: {error.description}") from None


def _renamed(term: Term | ox.DefaultGraph, blanks: dict[str, Term]) -> Term | ox.DefaultGraph:
    """Blank nodes of a document are none that the graph has already."""
    return blanks.setdefault(term.value, ox.BlankNode()) if isinstance(term, ox.BlankNode) else term


_POSITIONS: Final = ("subject", "predicate", "object", "graph name")


def _excerpt(term: Term) -> str:
    """The beginning of a term, for an error message."""
    text = f"<<( {term} )>>" if isinstance(term, ox.Triple) else str(term)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."


_EXCERPT: Final = 120
"""Characters."""
