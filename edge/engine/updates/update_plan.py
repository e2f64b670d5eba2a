"""Update plans: the compiled operations of a SPARQL 1.1 Update request.

One frame holds all slots of an operation (see `layout`): fixed constants, parameters, and the variables of its WHERE.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import NamedTuple, TypeGuard, TypeVar

import pyoxigraph as ox

from edge.engine.operators.expression import Now
from edge.engine.operators.layout import Frame, Places
from edge.engine.operators.lookups import Lookups
from edge.engine.operators.operators import Operator
from edge.engine.requests import Dataset
from edge.engine.store.graph import DEFAULT_GRAPH
from edge.engine.store.terms import Dictionary
from edge.engine.store.triple_index import Quad
from edge.engine.updates.straight_line import StraightLine
from edge.protocol.results import Term

T = TypeVar("T")

Quads = tuple[Sequence[ox.Quad], Sequence[ox.Quad]]
"""Quads that an operation removes, and quads that it adds afterwards."""


@dataclass(frozen=True, slots=True)
class OxigraphWhere:
    """A WHERE clause for Oxigraph on the mirror: its text and its dataset."""

    prologue: str
    group: str
    dataset: Dataset
    """Dataset of USING, or of the protocol."""
    graph: ox.NamedNode | None
    """Graph of WITH, which becomes the default graph. USING takes precedence over it."""


@dataclass(frozen=True, slots=True)
class OperatorWhere:
    """A WHERE clause that our operators evaluate on the live graph."""

    operator: Operator
    evaluation_time: Now
    """Value of NOW() in the clause."""
    patterns: tuple[tuple[int, int, int, int], ...] = ()
    """Frame positions of subject, predicate, object and graph of each triple pattern."""
    graph_names: bool = False
    """Whether the solutions can change when a named graph is created or disappears."""
    lookups: Lookups | None = None
    """Finds the only solution without a search; None if the clause may need one."""


class QuadTemplate(NamedTuple):
    """Template of a quad in an INSERT or DELETE clause."""

    instance: Callable[[Frame], tuple[int | None, int | None, int | None, int | None]]
    """Return the ids of the quad for a frame; None for unbound positions."""
    places: Places
    """Frame positions of subject, predicate, object and graph."""
    legal: bool
    """Whether the quad is legal RDF for all values of its variables."""


@dataclass(frozen=True)
class Modify:
    """DELETE / INSERT / WHERE in all its forms. Short INSERT DATA and DELETE DATA have no WHERE (None)."""

    blank: Frame
    """A frame that holds only the default graph."""
    terms: tuple[tuple[int, Term], ...]
    """Frame positions of fixed constants, with their terms in value form."""
    parameters: tuple[tuple[int, int], ...]
    """Frame positions of parameters, with the index of their constant."""
    variables: Mapping[str, int]
    """Frame positions of the variables in the templates."""
    fresh: tuple[int, ...]
    """Frame positions of blank nodes that each solution creates."""
    targets: tuple[int, ...]
    """Frame positions of the graphs that the templates name."""
    deletes: tuple[QuadTemplate, ...]
    inserts: tuple[QuadTemplate, ...]
    where: OperatorWhere | OxigraphWhere | None
    code: StraightLine | None = None
    """Generated code for this operation; None if it may have several solutions or creates blank nodes."""

    def frame(self, dictionary: Dictionary, constants: Sequence[int]) -> Frame:
        """Return a new frame with all constants. `constants`: term ids."""
        frame = self.blank.copy()
        for place, term in self.terms:
            frame[place] = dictionary.intern_value(term)
        for place, index in self.parameters:
            frame[place] = constants[index]
        return frame

    @cached_property
    def size(self) -> int:
        """Number of quads that the templates create for each solution."""
        return len(self.deletes) + len(self.inserts)

    @cached_property
    def lookups(self) -> int:
        """Steps of the look-ups that find the only solution; 0 without WHERE."""
        where = self.where
        return 0 if not isinstance(where, OperatorWhere) or where.lookups is None else where.lookups.size

    def data(self, constants: Sequence[Term]) -> Data:
        """Convert an operation without WHERE to `Data`. `constants`: the values of the parameters, in value form."""
        terms: list[Term | ox.DefaultGraph] = [ox.DefaultGraph()] * len(self.blank)
        for place, term in self.terms:
            terms[place] = term
        for place, index in self.parameters:
            terms[place] = constants[index]
        for place in self.fresh:
            terms[place] = ox.BlankNode()
        numbers: Frame = list(range(len(terms)))  # applied to this frame, a template returns its frame positions
        places = array("I")
        for template in self.inserts or self.deletes:
            places.extend(template.instance(numbers))  # type: ignore[arg-type]  # all positions are bound
        filled = set(places[3::4])
        empty = [terms[place] for place in self.targets if place not in filled]
        return Data(bool(self.inserts), Pieces([terms]), places, empty)  # type: ignore[arg-type]  # names of graphs


class Pieces(Collection[T]):
    """Items in pieces, to be used in their order.

    One sequence of 200,000 terms holds all threads for milliseconds when it is created, when a garbage collection
    visits it, and when it is freed.
    """

    __slots__ = ("pieces",)

    def __init__(self, pieces: Sequence[Sequence[T]]) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        """Return the number of items."""
        return sum(map(len, self.pieces))

    def __iter__(self) -> Iterator[T]:
        """Return an iterator over the items."""
        return chain.from_iterable(self.pieces)

    def __contains__(self, item: object) -> bool:
        """Return whether one of the items is equal to `item`."""
        return any(item in piece for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Data:
    """INSERT DATA or DELETE DATA of any length, in a compact form."""

    inserts: bool
    terms: Pieces[Term | ox.DefaultGraph]
    """The terms in value form, each of them once."""
    places: Sequence[int]
    """Indexes of terms: subject, predicate, object and graph of the first quad, of the second, and so on."""
    empty: Sequence[ox.NamedNode] = ()
    """Graphs that the operation names without quads."""

    @property
    def size(self) -> int:
        """Number of quads."""
        return len(self.places) // 4

    def quads(self, dictionary: Dictionary) -> Iterator[Quad]:
        """Yield the quads. Each call creates new blank nodes."""
        return self.quads_of(list(self.ids(dictionary)))

    def ids(self, dictionary: Dictionary) -> Iterator[int]:
        """Intern the terms one by one and yield their ids. Each call creates new blank nodes."""
        for term in self.terms:
            if isinstance(term, ox.DefaultGraph):
                yield DEFAULT_GRAPH
            else:
                yield dictionary.intern_value(ox.BlankNode() if isinstance(term, ox.BlankNode) else term)

    def quads_of(self, ids: Sequence[int]) -> Iterator[Quad]:
        """Yield the quads, from the ids of all terms."""
        each = map(ids.__getitem__, self.places)
        return zip(each, each, each, each, strict=True)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of a graph management operation: one graph, DEFAULT, NAMED or ALL."""

    which: str
    graph: ox.NamedNode | None = None


@dataclass(frozen=True, slots=True)
class Manage:
    """CREATE, CLEAR or DROP."""

    verb: str
    target: Target
    silent: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """ADD, COPY or MOVE."""

    verb: str
    source: Target
    destination: Target
    silent: bool


@dataclass(frozen=True, slots=True)
class Load:
    """LOAD of a document into a graph (None for the default graph)."""

    document: ox.NamedNode
    graph: ox.NamedNode | None
    silent: bool


Operation = Modify | Data | Manage | Transfer | Load


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The operations of one request, in order."""

    operations: tuple[Operation, ...]

    loads: bool = field(init=False)
    """Whether the request loads a document."""
    needs_mirror: bool = field(init=False)
    """Whether Oxigraph evaluates one of the WHERE clauses."""
    only_modifies: bool = field(init=False)
    """Whether the request has neither long data nor documents nor operations on whole graphs."""
    named: int = field(init=False)
    """Number of quads in its data, and in its templates without a WHERE clause."""

    def __post_init__(self) -> None:
        wheres = [operation.where for operation in self.operations if isinstance(operation, Modify)]
        object.__setattr__(self, "loads", any(isinstance(operation, Load) for operation in self.operations))
        object.__setattr__(self, "only_modifies", len(wheres) == len(self.operations))
        object.__setattr__(self, "needs_mirror", any(isinstance(where, OxigraphWhere) for where in wheres))
        object.__setattr__(self, "named", sum(operation.size for operation in self.operations if is_data(operation)))


def is_data(operation: Operation) -> TypeGuard[Modify | Data]:
    """Return whether an operation is INSERT DATA or DELETE DATA."""
    return isinstance(operation, Data) or (isinstance(operation, Modify) and operation.where is None)
