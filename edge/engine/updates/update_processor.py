"""Update processor: runs an update plan on the live graph and returns the exact changes.

An operation evaluates its WHERE once. All its deletions precede all its insertions, over all solutions. Later
operations see the effects of earlier ones (SPARQL 1.1 Update, 3.1.3 and 4.3). A request that fails is undone as a
whole.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyoxigraph as ox

from edge.engine.operators.layout import Frame
from edge.engine.operators.stages import long_texts
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import too_long, too_many
from edge.engine.requests import STORE_DATASET, UpdateRequest
from edge.engine.sparql.plan_cache import LONGEST_TEXT, PlanCache
from edge.engine.store.changes import NO_CHANGE, Statement
from edge.engine.store.forked_mirror import ForkedMirror
from edge.engine.store.graph import DEFAULT_GRAPH
from edge.engine.store.terms import POSITIONS, describe_problem
from edge.engine.store.transaction import Deposit, Transaction
from edge.engine.store.triple_index import Quad
from edge.engine.updates import forced_bindings
from edge.engine.updates.loaded_documents import Loader, fetch
from edge.engine.updates.modify_compiler import Given
from edge.engine.updates.oxigraph_where import oxigraph_rows
from edge.engine.updates.prepared_update import PreparedUpdate
from edge.engine.updates.staged_change import Operation, StagedChange
from edge.engine.updates.update_attempt import (
    FIRST_QUADS,
    Documents,
    LargeUpdate,
    LongUpdate,
    Mode,
    Recorded,
)
from edge.engine.updates.update_compiler import UpdateCompiler
from edge.engine.updates.update_plan import (
    Data,
    Load,
    Manage,
    Modify,
    OperatorWhere,
    OxigraphWhere,
    Quads,
    QuadTemplate,
    Target,
    Transfer,
    UpdatePlan,
)
from edge.engine.updates.whole_graphs import no_graph
from edge.protocol.access import Access
from edge.protocol.errors import ResultTooLarge, UpdateFailed
from edge.protocol.results import Term

_MAX_BOUND: Final = 256
"""Number of texts with forced bindings whose plans are found without parsing. The cache is cleared at this size."""


class UpdateProcessor:
    """Executes update requests as transactions on one live graph."""

    def __init__(self, world: World, load: Loader, plans: int = 1024) -> None:
        """`plans`: number of compiled updates in the cache."""
        self._world = world
        self._graph = world.graph
        self._rules = world.rules
        self._load = load
        self._bound: dict[Hashable, tuple[UpdatePlan, Sequence[Term]]] = {}
        """Plans and constants of texts with forced bindings, by text, dataset, names and kinds."""
        self._plans: PlanCache[Given, UpdatePlan] = PlanCache(UpdateCompiler(world.graph, world.rules).compile, plans)
        self.steps = 0
        """Steps that the last run took, plus the quads that it changed."""
        self._changed = 0
        """Quads that the operations of the current run have changed so far."""
        self.ledger: int | None = None
        """Id of the pseudo graph of the ledger. Quads added to it go to the ledger. None: the engine has no ledger."""

    def plan(self, request: UpdateRequest) -> tuple[UpdatePlan, Sequence[Term]]:
        """Return the plan of an update and its constants. A new text template is compiled. May run on any thread.

        Raises `ParsingFailed`, `Forbidden`, and `UpdateFailed` if the forced bindings do not fit.
        """
        bindings = request.bindings
        if not bindings:
            return self._plan(request)
        # A text with forced bindings is usually the same one again, so it needs no comparison with a template.
        # Hashing a dataset takes longer than hashing the rest, and nearly all requests have that of the store.
        dataset = None if request.dataset is STORE_DATASET else request.dataset
        key = (request.sparql, dataset, request.access.read, *bindings, *map(type, bindings.values()))
        known = self._bound.get(key)
        if known is None:
            known = self._plan(request)
            if len(self._bound) >= _MAX_BOUND:
                self._bound.clear()
            if len(request.sparql) <= LONGEST_TEXT:
                self._bound[key] = known
        plan, constants = known
        return plan, forced_bindings.with_values(constants, bindings)

    def _plan(self, request: UpdateRequest) -> tuple[UpdatePlan, Sequence[Term]]:
        """Return the plan of an update, and the constants of its text."""
        bindings = request.bindings
        dataset = request.dataset.seen_by(request.access)
        usual = not bindings and not dataset.given and dataset.readable is None
        given = None if usual else Given(dataset, forced_bindings.kinds(bindings))
        return self._plans.get(request.sparql, given)

    def run(
        self,
        update: PreparedUpdate,
        now: int,
        *,
        mode: Mode = Mode.WHOLE,
        recorded: Recorded | None = None,
        found: Sequence[Quads | None] | None = None,
        documents: Documents | None = None,
    ) -> Transaction:
        """Execute an update. `now`: microseconds since 1970.

        `recorded` collects the removals and additions of each operation; `found` supplies those of an evaluation
        elsewhere. `documents`: the documents of LOAD, if fetched. Raises `EdgeError`, and `LongUpdate` in the modes
        FIRST and LAST. After an error nothing has changed.
        """
        access, to_ledger = update.access, update.to_ledger
        writable = None if access.write is None else self._ids(access.write)
        transaction = (Deposit if to_ledger else Transaction)(self._graph, writable, self.ledger)
        ids = self._graph.dictionary.intern_values(update.constants)
        budget = self._graph.budget
        budget.begin(mode.steps)
        begun = budget.left
        self._changed = 0
        first = mode.on_writer and not to_ledger
        # Generated code checks neither permissions nor terms, and records nothing.
        straight = writable is None and recorded is None and not to_ledger and self._graph.dictionary.plain
        try:
            for number, operation in enumerate(update.plan.operations):
                known = None if found is None else found[number]
                # The usual case comes first: each test takes as long as the look-up of a triple.
                if known is not None:
                    removed, added = (list(map(self._graph.intern_quad, quads)) for quads in known)
                elif isinstance(operation, Modify):
                    if straight and self._straight(operation, ids, transaction, mode):
                        continue
                    removed, added = self._modify(operation, ids, update.bindings, transaction, now, mode)
                elif isinstance(operation, Data):
                    removed, added = self._data(operation, transaction)
                elif isinstance(operation, Load):
                    self._check_target(operation, transaction)
                    document = self.fetch(operation) if documents is None else documents[number]
                    removed, added = [], list(map(self._graph.intern_quad, document))
                else:
                    self._change_graphs(operation, transaction, recorded, first=first)
                    continue
                self._count(len(removed) + len(added), first=first)
                if recorded is not None:
                    recorded.note(*(list(map(self._statement, dict.fromkeys(quads))) for quads in (removed, added)))
                transaction.apply(removed, self._checked(added))
        except BaseException as error:
            transaction.undo()
            self._world.mirror.note(NO_CHANGE)  # the mirror drops the staged changes of this request
            # Only a step budget of the writer turns into a second attempt; other limits are final.
            if mode.on_writer and isinstance(error, ResultTooLarge) and budget.left < 0:
                raise LongUpdate from None
            raise
        finally:
            self.steps = begun - budget.left + self._changed
        return transaction

    def _data(self, operation: Data, transaction: Transaction) -> tuple[list[Quad], list[Quad]]:
        """Return the quads that an operation removes and adds."""
        for name in operation.empty:
            transaction.check_named(self._graph.intern_graph(name))
        quads = list(operation.quads(self._graph.dictionary))
        return ([], quads) if operation.inserts else (quads, [])

    def check_targets(self, plan: UpdatePlan, access: Access) -> None:
        """Check the write permission for the graphs of LOAD, before any fetch. Raises `Forbidden`."""
        writable = None if access.write is None else self._ids(access.write)
        transaction = Transaction(self._graph, writable, self.ledger)
        for operation in plan.operations:
            if isinstance(operation, Load):
                self._check_target(operation, transaction)

    def _check_target(self, operation: Load, transaction: Transaction) -> None:
        transaction.check(self._graph.intern_graph(operation.graph or ox.DefaultGraph()))

    def fetch(self, operation: Load) -> Sequence[ox.Quad]:
        """Return the quads of a document. May run on any thread. Raises `UpdateFailed`, `ResultTooLarge`."""
        return fetch(operation, self._load, self._rules.max_changes)

    def outside(self, mirror: ForkedMirror) -> UpdateProcessor:
        """Return a copy of this processor for a forked process."""
        other = copy.copy(self)
        other._world = replace(self._world, mirror=mirror)  # type: ignore[arg-type]  # it has what updates use
        return other

    def _statement(self, quad: Quad) -> Statement:
        terms = self._graph.dictionary.terms
        s, p, o, g = quad
        return (terms[s], terms[p], terms[o], terms[g] if g else None)  # type: ignore[return-value]

    def stage(self, access: Access, operations: Sequence[Operation]) -> StagedChange:
        """Start a change that is prepared in pieces."""
        writable = None if access.write is None else self._ids(access.write)
        whole = any(isinstance(operation, Manage | Transfer) for operation in operations)
        texts = 0

        def check(added: Iterable[Quad], size: int) -> None:
            nonlocal texts
            self.check_size(size)
            added = self._checked(added)
            if whole:
                texts += self._long_texts(added)
                self._check_length(texts)

        return StagedChange(self._graph, operations, Transaction(self._graph, writable, self.ledger), check)

    def size(self, operation: Operation | Modify) -> int:
        """Return the maximum number of quads that an operation changes in the current graph."""
        if isinstance(operation, Data | Modify):
            return operation.size
        if isinstance(operation, Manage):
            if operation.verb == "CREATE":
                return 0
            return sum(self._graph.graphs[name].size for name in self._targets("", operation.target, silent=True))
        if isinstance(operation, Transfer):
            sources = self._targets("", operation.source, silent=True)
            return sum(self._graph.graphs[name].size for name in sources)
        return sum(map(len, operation))

    def replaced(self, operation: Operation | Modify) -> int:
        """Return the number of quads in the current graph that an operation replaces by others."""
        if not isinstance(operation, Transfer) or operation.verb == "ADD":
            return 0
        destinations = self._targets("", operation.destination, silent=True)
        return sum(self._graph.graphs[name].size for name in destinations)

    def _count(self, quads: int, *, first: bool) -> None:
        """Count changed quads. Raises `ResultTooLarge`, and `LargeUpdate` in a first attempt."""
        self._changed += quads
        if self._changed > self._rules.max_changes:
            self.check_size(self._changed)
        if first and self._changed > FIRST_QUADS:
            raise LargeUpdate

    def check_size(self, quads: int) -> None:
        """Check the number of quads that a request changes. Raises `ResultTooLarge`."""
        if quads > self._rules.max_changes:
            raise ResultTooLarge(
                f"The request changes more than {self._rules.max_changes} quads (a fifth of engine.max_steps), which "
                "would hold up other clients for long; change them in parts"
            )

    def _ids(self, graphs: Collection[str]) -> Collection[int]:
        return {self._graph.intern_graph(ox.NamedNode(iri) if iri else ox.DefaultGraph()) for iri in graphs}

    def _straight(self, operation: Modify, constants: Sequence[int], transaction: Transaction, mode: Mode) -> bool:
        """Apply an operation by its generated code. False: there is none, or it cannot apply the operation."""
        if operation.code is None:
            return False
        found = operation.code.run(constants, self._graph, transaction)
        if found is None:
            return False
        # A template with an unbound variable counts as well, although it gives no quad.
        lookups, size = operation.lookups, operation.size if found else 0
        # As the interpreter: the quads take steps if other updates wait and there is a WHERE clause.
        bounded = mode.on_writer and operation.where is not None
        self._graph.budget.spend(lookups + size if bounded else lookups)
        self._count(size, first=mode.on_writer)
        return True

    def _modify(
        self,
        operation: Modify,
        constants: Sequence[int],
        bindings: Mapping[str, Term],
        transaction: Transaction,
        now: int,
        mode: Mode,
    ) -> tuple[list[Quad], list[Quad]]:
        """Return the quads that an operation removes and adds."""
        bounded, each = mode.on_writer and operation.where is not None, operation.size
        if bounded and each > FIRST_QUADS:
            raise LongUpdate  # creating a frame of that size takes long, too
        frame = operation.frame(self._graph.dictionary, constants)
        for place in operation.targets:
            transaction.check_named(frame[place])  # type: ignore[arg-type]  # these positions hold constants
        removed: list[Quad] = []
        added: list[Quad] = []
        most = self._rules.max_solutions
        for number, _ in enumerate(self._solutions(operation, frame, bindings, transaction, now, mode)):
            if number >= most:
                raise too_many(self._rules)
            removed += self._instances(operation.deletes, frame)
            if operation.inserts:
                for place in operation.fresh:
                    frame[place] = self._graph.dictionary.intern(ox.BlankNode())
                added += self._instances(operation.inserts, frame)
            if bounded:
                self._graph.budget.spend(each)
                if self._changed + len(removed) + len(added) > FIRST_QUADS:
                    raise LongUpdate
        if self._graph.dictionary.long:
            self._check_length(self._long_texts(added))
        return removed, added

    def _checked(self, added: Iterable[Quad]) -> Iterable[Quad]:
        """Check quads before their insertion and return them. Raises `UpdateFailed` if the graph cannot hold a term.

        Every committed quad must be restorable: a single quad that the journal cannot read back would make all later
        records unreadable.
        """
        unstorable, terms = self._graph.dictionary.unstorable, self._graph.dictionary.terms
        if not unstorable:
            return added
        added = list(added)
        for quad in added:
            for position, term_id in zip(POSITIONS, quad, strict=True):
                if term_id in unstorable:
                    raise UpdateFailed(describe_problem(position, terms[term_id]))
        return added

    def _long_texts(self, added: Iterable[Quad]) -> int:
        """Count the characters of the long terms in quads, each term once."""
        return long_texts(self._graph.dictionary, dict.fromkeys(added, 1))

    def _check_length(self, texts: int) -> None:
        """Check that the inserted texts can be written to the journal. Raises `ResultTooLarge`."""
        if texts > self._rules.longest_result:
            raise too_long(self._rules, "The inserted text")

    def _instances(self, templates: Sequence[QuadTemplate], frame: Frame) -> list[Quad]:
        """Instantiate templates for one solution. Quads with unbound or illegal positions are left out."""
        quads: list[Quad] = []
        for instance, _, legal in templates:
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
        """Yield for each solution of the WHERE clause, after writing it into the frame."""
        where = operation.where
        if where is None:
            return (None,)
        if isinstance(where, OperatorWhere):
            if where.lookups is not None and (found := where.lookups.solve(frame)) is not None:
                return (None,) if found else ()
            where.evaluation_time.now = now
            return where.operator.solutions(frame)
        return self._general(where, operation.variables, frame, bindings, transaction, now, mode)

    def _general(
        self,
        where: OxigraphWhere,
        places: Mapping[str, int],
        frame: Frame,
        bindings: Mapping[str, Term],
        transaction: Transaction,
        now: int,
        mode: Mode,
    ) -> Iterator[None]:
        """Yield for each solution of a WHERE clause that the mirror evaluates, in the current state of the request."""
        self._world.mirror.stage(transaction.change_set())
        names, rows = oxigraph_rows(where, bindings, self._world, now, mode)
        columns = [(index, places[name]) for index, name in enumerate(names) if name in places]
        intern, long = self._graph.dictionary.intern, self._graph.dictionary.long
        budget = self._graph.budget
        for row in rows:
            for index, place in columns:
                term = row[index]
                found = frame[place] = None if term is None else intern(term)
                if found in long:
                    budget.spend(budget.reading(long[found]))
            yield

    def _change_graphs(
        self, operation: Manage | Transfer, transaction: Transaction, recorded: Recorded | None, *, first: bool
    ) -> None:
        if recorded is not None:
            recorded.note_other()
        if isinstance(operation, Manage):
            self._manage(operation, transaction, first=first)
        else:
            self._transfer(operation, transaction, first=first)

    def _manage(self, operation: Manage, transaction: Transaction, *, first: bool) -> None:
        target = operation.target
        if operation.verb == "CREATE":
            graph = self._graph.intern_graph(target.graph or ox.DefaultGraph())
            transaction.check(graph)
            if graph in self._graph.graphs and not operation.silent:
                raise UpdateFailed(f"CREATE: the graph {target.graph} exists already; CREATE SILENT ignores this")
            transaction.create(graph)
            return
        if target.which in ("ALL", "NAMED"):
            transaction.check_all()
        elif target.graph is not None:
            transaction.check(self._graph.intern_graph(target.graph))
        act = transaction.clear if operation.verb == "CLEAR" else transaction.drop
        graphs = self._targets(operation.verb, target, silent=operation.silent)
        self._count(sum(self._graph.graphs[graph].size for graph in graphs), first=first)
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
        raise UpdateFailed(no_graph(verb, target))

    def _transfer(self, operation: Transfer, transaction: Transaction, *, first: bool) -> None:
        """Execute ADD, COPY or MOVE (SPARQL 1.1 Update, 3.2.3 to 3.2.5). A graph onto itself changes nothing."""
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
        self._count(len(added), first=first)
        self._check_length(self._long_texts(added))
        transaction.apply((), added)
        if operation.verb == "MOVE":
            for source in sources:
                transaction.drop(source)
