"""Update plans: what a SPARQL 1.1 Update request does, operation by operation.

All slots of an operation live in one frame (see `layout`): its constants, those that are open, what its WHERE binds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard

import pyoxigraph as ox

from edge.engine.operators.expression import Now
from edge.engine.operators.layout import Frame
from edge.engine.operators.operators import Operator
from edge.engine.requests import Dataset
from edge.engine.store.graph import DEFAULT_GRAPH, Quad
from edge.engine.store.terms import Dictionary
from edge.protocol.results import Term

Quads = tuple[Sequence[ox.Quad], Sequence[ox.Quad]]
"""Quads that an operation removes, and quads that it adds afterwards."""


@dataclass(frozen=True, slots=True)
class OxigraphWhere:
    """A WHERE clause that the mirror evaluates: its group as written, and what it is evaluated on."""

    prologue: str
    group: str
    dataset: Dataset
    """Of USING, or of the protocol."""
    graph: ox.NamedNode | None
    """Of WITH: the default graph of the evaluation. USING goes before it."""


@dataclass(frozen=True, slots=True)
class OperatorWhere:
    """A WHERE clause that runs on the live graph."""

    operator: Operator
    moment: Now
    """What its NOW() is."""
    patterns: tuple[tuple[int, int, int, int], ...] = ()
    """The places of subject, predicate, object and graph of each triple pattern in it."""
    graph_names: bool = False
    """Whether its solutions change when a named graph begins or ceases to exist."""


class QuadTemplate(NamedTuple):
    """A quad of an INSERT or DELETE clause."""

    instance: Callable[[Frame], tuple[int | None, int | None, int | None, int | None]]
    """The quad for what a frame holds; None is what is not bound."""
    legal: bool
    """Whether it is a quad of RDF whatever its variables are."""


@dataclass(frozen=True, slots=True)
class Modify:
    """DELETE / INSERT / WHERE in all its forms, and short INSERT DATA and DELETE DATA, whose WHERE is None."""

    blank: Frame
    """A frame with nothing in it but the default graph."""
    terms: tuple[tuple[int, Term], ...]
    """Places of the frame, and the terms that stand there, in value form."""
    parameters: tuple[tuple[int, int], ...]
    """Places of the frame, and which of the constants stand there."""
    variables: Mapping[str, int]
    """The places of the variables of the templates."""
    fresh: tuple[int, ...]
    """The places of blank nodes that are new for each solution."""
    targets: tuple[int, ...]
    """Places of the graphs that the templates name."""
    deletes: tuple[QuadTemplate, ...]
    inserts: tuple[QuadTemplate, ...]
    where: OperatorWhere | OxigraphWhere | None

    def frame(self, dictionary: Dictionary, constants: Sequence[int]) -> Frame:
        """A new frame with everything filled in that does not vary. `constants` are ids."""
        frame = self.blank.copy()
        for place, term in self.terms:
            frame[place] = dictionary.intern_value(term)
        for place, index in self.parameters:
            frame[place] = constants[index]
        return frame

    @property
    def size(self) -> int:
        """Quads that its templates make for a solution."""
        return len(self.deletes) + len(self.inserts)

    def data(self, constants: Sequence[Term]) -> Data:
        """The same operation as data; it has no WHERE clause. `constants`: those that are open, in value form."""
        terms: list[Term | ox.DefaultGraph] = [ox.DefaultGraph()] * len(self.blank)
        for place, term in self.terms:
            terms[place] = term
        for place, index in self.parameters:
            terms[place] = constants[index]
        for place in self.fresh:
            terms[place] = ox.BlankNode()
        numbers: Frame = list(range(len(terms)))  # a template takes its places from this frame
        places = array("I")
        for template in self.inserts or self.deletes:
            places.extend(template.instance(numbers))  # type: ignore[arg-type]  # none of them is None
        filled = set(places[3::4])
        empty = [terms[place] for place in self.targets if place not in filled]
        return Data(bool(self.inserts), terms, places, empty)  # type: ignore[arg-type]  # names of graphs


@dataclass(frozen=True, slots=True)
class Data:
    """INSERT DATA or DELETE DATA of any length, as compact as can be."""

    inserts: bool
    terms: Sequence[Term | ox.DefaultGraph]
    """In value form, each of them once."""
    places: Sequence[int]
    """Which of these are the subject, predicate, object and graph of the first quad, of the second, and so on."""
    empty: Sequence[ox.NamedNode] = ()
    """Graphs that it names and has no quads for."""

    @property
    def size(self) -> int:
        """Quads in it."""
        return len(self.places) // 4

    def quads(self, dictionary: Dictionary) -> Iterator[Quad]:
        """The quads. Blank nodes are new ones each time."""
        return self.quads_of(list(self.ids(dictionary)))

    def ids(self, dictionary: Dictionary) -> Iterator[int]:
        """The ids of the terms, which are interned one by one. Blank nodes are new ones each time."""
        for term in self.terms:
            if isinstance(term, ox.DefaultGraph):
                yield DEFAULT_GRAPH
            else:
                yield dictionary.intern_value(ox.BlankNode() if isinstance(term, ox.BlankNode) else term)

    def quads_of(self, ids: Sequence[int]) -> Iterator[Quad]:
        """The quads, from the ids of all terms."""
        each = map(ids.__getitem__, self.places)
        return zip(each, each, each, each, strict=True)


@dataclass(frozen=True, slots=True)
class Target:
    """What a graph management operation works on: one graph, or DEFAULT, NAMED or ALL."""

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
    """LOAD of a document into a graph (None: the default graph)."""

    document: ox.NamedNode
    graph: ox.NamedNode | None
    silent: bool


Operation = Modify | Data | Manage | Transfer | Load


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The operations of one request, in order."""

    operations: tuple[Operation, ...]

    loads: bool = field(init=False)
    """Whether it loads a document."""
    needs_mirror: bool = field(init=False)
    """Whether Oxigraph evaluates a WHERE clause of it."""
    only_modifies: bool = field(init=False)
    """Whether it has neither long data nor documents nor operations on whole graphs."""
    named: int = field(init=False)
    """Quads that its data, and its templates without a WHERE clause, name."""

    def __post_init__(self) -> None:
        wheres = [operation.where for operation in self.operations if isinstance(operation, Modify)]
        object.__setattr__(self, "loads", any(isinstance(operation, Load) for operation in self.operations))
        object.__setattr__(self, "only_modifies", len(wheres) == len(self.operations))
        object.__setattr__(self, "needs_mirror", any(isinstance(where, OxigraphWhere) for where in wheres))
        object.__setattr__(self, "named", sum(operation.size for operation in self.operations if is_data(operation)))


def is_data(operation: Operation) -> TypeGuard[Modify | Data]:
    """Whether an operation is INSERT DATA or DELETE DATA."""
    return isinstance(operation, Data) or (isinstance(operation, Modify) and operation.where is None)
