"""Straight-line code: one generated Python function for an operation that has at most one solution.

Most updates replace the value of a known thing: look-ups find the only solution, and each template gives at most one
quad. Interpreting that takes a loop for the frame, for the look-ups, for the templates and for the index, most of them
over one or two items. The generated function does the same without loops, as `dataclasses` generate `__init__`. It is
generated when an operation has run often, because that takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from edge.engine.operators.layout import Places
from edge.engine.operators.lookups import LookupGroup, LookupStep
from edge.engine.store.graph import LiveGraph
from edge.engine.store.transaction import Transaction
from edge.protocol.results import Term

OFTEN: Final = 32
"""Runs after which the function is generated."""
MOST: Final = 32
"""Number of quads in templates up to which a function is generated."""

_Function = Callable[[Sequence[int], Sequence[int], LiveGraph, Transaction], bool | None]


class TemplatePlaces(NamedTuple):
    """Template of a quad, as places of the frame."""

    places: Places
    legal: bool
    """Whether the quad is legal RDF for all values of its variables."""


class Parts(NamedTuple):
    """Parts of an operation from which its function is generated. `terms` and `parameters`: see `Modify`."""

    terms: Sequence[tuple[int, Term]]
    parameters: Sequence[tuple[int, int]]
    default_graph: int | None
    """Place of the default graph, if the operation uses it."""
    deletes: Sequence[TemplatePlaces]
    inserts: Sequence[TemplatePlaces]
    lookups: Sequence[LookupGroup]


class StraightLine:
    """The code of one operation."""

    __slots__ = ("_function", "_parts", "_runs", "_terms")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._terms = [term for _, term in parts.terms]
        self._function: _Function | None = None
        self._runs = 0

    @property
    def text(self) -> str:
        """The Python text of the function."""
        return _Code(self._parts).text

    def run(self, constants: Sequence[int], graph: LiveGraph, transaction: Transaction) -> bool | None:
        """Apply the operation. Return whether it has a solution. `constants`: term ids of the parameters.

        None: nothing was done, because there may be several solutions, a graph does not exist or is being merged, or
        the function has not been generated yet.
        """
        function = self._function
        if function is None:
            self._runs += 1
            if self._runs < OFTEN:
                return None
            function = self._function = _Code(self._parts).compile()
        return function(graph.dictionary.intern_values(self._terms), constants, graph, transaction)


class _Code:
    """Generator of the function. A variable of the function holds the id at one place of the frame (see `layout`)."""

    def __init__(self, parts: Parts) -> None:
        self._fixed = [place for place, _ in parts.terms]
        self._parameters = parts.parameters
        self._default_graph = parts.default_graph
        self._lookups = parts.lookups
        certain = {*self._fixed, *(place for place, _ in parts.parameters), parts.default_graph}
        certain.update(place for group in parts.lookups if not group.optional for place in group.binds)
        self._certain = certain
        """Places that always have a value when the templates are filled."""
        bound = certain.union(*(group.binds for group in parts.lookups))
        # A template with an unbound variable gives no quad (SPARQL 1.1 Update, section 3.1.3).
        self._deletes = [each for each in parts.deletes if bound.issuperset(each.places)]
        self._inserts = [each for each in parts.inserts if bound.issuperset(each.places)]

    def compile(self) -> _Function:
        """Return the function."""
        names: dict[str, _Function] = {}
        exec(compile(self.text, "<straight-line update>", "exec"), names)  # noqa: S102  only numbers vary in the text
        return names["modify"]

    @property
    def text(self) -> str:
        """The Python text."""
        return "\n".join(["def modify(fixed, given, graph, transaction):", *(f"    {line}" for line in self._lines())])

    def _lines(self) -> Iterator[str]:
        if self._fixed:
            yield f"{', '.join(map(_at, self._fixed))}, = fixed"
        for place, index in self._parameters:
            yield f"{_at(place)} = given[{index}]"
        if self._default_graph is not None:
            yield f"{_at(self._default_graph)} = 0"
        yield from self._indexes()
        for group in self._lookups:
            if group.optional:
                yield from self._optional(group)
            else:
                yield from self._required(group)
        yield from self._changes()
        yield "return True"

    def _indexes(self) -> Iterator[str]:
        """Look up the triple indexes of all graphs. The function does not create graphs."""
        yield "graphs = graph.graphs"
        changed = dict.fromkeys(each.places[3] for each in (*self._deletes, *self._inserts))
        read = dict.fromkeys(step.graph for group in self._lookups for step in group.steps)
        for place in changed | read:
            yield f"index{place} = graphs.get({_at(place)})"
            yield f"if index{place} is None or index{place}.pending is not None:"
            yield "    return None"
        for place in read:
            yield f"spo{place}, pos{place} = index{place}.spo, index{place}.pos"
        for place in changed:
            if place not in read:
                yield f"spo{place} = index{place}.spo"

    def _required(self, group: LookupGroup) -> Iterator[str]:
        for step in group.steps:
            yield from _leaf(step)
            if step.free is None:
                yield f"if {_differs(_at(step.object))}:"
                yield "    return False"
                continue
            yield "if leaf is None:"
            yield "    return False"
            yield "if leaf.__class__ is set:"
            yield "    return None"
            yield f"{_at(step.free)} = leaf"

    def _optional(self, group: LookupGroup) -> Iterator[str]:
        for place in group.binds:
            yield f"{_at(place)} = None"
        # Its variables have a value only if all its patterns match, so the look-ups write to other names first.
        own = {place: f"own{place}" for place in group.binds if len(group.steps) > 1}
        margin = ""
        for step in group.steps:
            for line in _leaf(step, own):
                yield margin + line
            if step.free is None:
                yield f"{margin}if not ({_differs(own.get(step.object, _at(step.object)))}):"
                margin += "    "
                continue
            yield f"{margin}if leaf.__class__ is set:"
            yield f"{margin}    return None"
            yield f"{margin}if leaf is not None:"
            margin += "    "
            yield f"{margin}{own.get(step.free, _at(step.free))} = leaf"
        for place, name in own.items():
            yield f"{margin}{_at(place)} = {name}"
        if not group.binds:
            yield f"{margin}pass"

    def _changes(self) -> Iterator[str]:
        """Apply the templates: deletions, replacements, insertions.

        All deletions precede all insertions (SPARQL 1.1 Update, section 3.1.3). A replacement inserts before the next
        one deletes, which has the same effect if their predicates differ.
        """
        deletes, inserts = list(self._deletes), list(self._inserts)
        replaced: dict[int, tuple[TemplatePlaces, TemplatePlaces]] = {}
        for delete in self._deletes:
            s, p, _, g = delete.places
            insert = next((each for each in inserts if (each.places[:2], each.places[3]) == ((s, p), g)), None)
            if insert is not None and p in self._certain and p not in replaced:
                replaced[p] = delete, insert
                deletes.remove(delete)
                inserts.remove(insert)
        for one, other in combinations(replaced, 2):
            yield f"if {_at(one)} == {_at(other)}:"
            yield "    return None"
        for delete in deletes:
            yield from _if(self._bound(delete.places), [f"transaction.remove({_quad(delete)})"])
        for delete, insert in replaced.values():
            yield from self._replacement(delete, insert)
        for insert in inserts:
            yield from self._insertion(insert)

    def _replacement(self, delete: TemplatePlaces, insert: TemplatePlaces) -> Iterator[str]:
        """Apply two templates that differ in the object only. One of them may give no quad."""
        replace = [f"transaction.replace({_quad(delete)}, {_quad(insert)})"]
        yield from _if(
            self._bound(delete.places),
            [*_if(self._given(insert), replace, [f"transaction.remove({_quad(delete)})"])],
            [*self._insertion(insert)],
        )

    def _insertion(self, insert: TemplatePlaces) -> Iterator[str]:
        s, p, o, g = insert.places
        # Most of these quads exist already: the type of an instant, and the link to it.
        exists = [
            f"branch = spo{g}.get({_at(s)})",
            f"leaf = None if branch is None else branch.get({_at(p)})",
            *_if(_differs(_at(o)), [f"transaction.add({_quad(insert)})"]),
        ]
        yield from _if(self._given(insert), exists)

    def _given(self, insert: TemplatePlaces) -> str:
        """Return the test whether a template gives a quad; empty if it always does."""
        tests = [self._bound(insert.places), "" if insert.legal else f"graph.legal({_quad(insert)})"]
        return " and ".join(filter(None, tests))

    def _bound(self, places: Collection[int]) -> str:
        """Return the test whether all places have a value; empty if they always have."""
        uncertain = dict.fromkeys(place for place in places if place not in self._certain)
        return " and ".join(f"{_at(place)} is not None" for place in uncertain)


def _if(test: str, lines: Sequence[str], otherwise: Sequence[str] = ()) -> Iterator[str]:
    """Yield a conditional statement. Without a test its lines always run."""
    if not test:
        yield from lines
        return
    yield f"if {test}:"
    yield from (f"    {line}" for line in lines)
    if otherwise:
        yield "else:"
        yield from (f"    {line}" for line in otherwise)


def _leaf(step: LookupStep, own: Mapping[int, str] | None = None) -> Iterator[str]:
    """Look up the objects or subjects of a pattern."""
    own = own or {}
    index, first, second = (
        ("pos", step.predicate, step.object) if step.free == step.subject else ("spo", step.subject, step.predicate)
    )
    yield f"branch = {index}{step.graph}.get({own.get(first, _at(first))})"
    yield f"leaf = None if branch is None else branch.get({own.get(second, _at(second))})"


def _differs(name: str) -> str:
    """Return the test whether the leaf does not have an id."""
    return f"leaf != {name} and (leaf.__class__ is not set or {name} not in leaf)"


def _at(place: int) -> str:
    return f"at{place}"


def _quad(template: TemplatePlaces) -> str:
    return f"({', '.join(map(_at, template.places))})"
