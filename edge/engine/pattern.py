"""Basic graph patterns on the live graph: what common updates and subscriptions consist of, run without any copy.

A pattern here is a sequence of triple patterns, `GRAPH` blocks of triple patterns and `OPTIONAL` blocks of those. What
has more in it (FILTER, BIND, paths, sub-queries ...) is left to the mirror.

All slots of a request live in one *frame*, a list of term ids: constants are filled in before anything runs, variables
while it runs. To a pattern a constant is then nothing but a variable that is bound already, and so is a forced binding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyoxigraph as ox

from edge.engine.graph import DEFAULT_GRAPH, LiveGraph, TripleIndex
from edge.engine.sparql.algebra import Blank, Fresh, Slot, Variable
from edge.engine.sparql.syntax import Token, closing
from edge.engine.sparql.template import Names, QuadTemplate, parse_quads
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term

Frame = list[int | None]
"""Term ids by slot; None: not bound."""

Places = tuple[int, int, int, int]
"""Where in the frame the subject, predicate, object and graph of a quad stand."""


@dataclass(slots=True)
class Layout:
    """Which slot stands at which place of the frame."""

    places: dict[Slot | None, int] = field(default_factory=dict)
    """None is the default graph."""
    fresh: list[int] = field(default_factory=list)
    """The places of the blank nodes of templates: a new one for each solution."""

    def place(self, slot: Slot | None) -> int:
        """The place of a slot, given one if it has none."""
        return self.places.setdefault(slot, len(self.places))

    def template(self, quads: Iterable[QuadTemplate], graph: Slot | None) -> tuple[Places, ...]:
        """The places of a template's quads. Its blank nodes are none of the pattern's, whatever their labels."""
        places = tuple(self.quad(q.with_fresh_blanks(), graph) for q in quads)
        self.fresh = [place for slot, place in self.places.items() if isinstance(slot, Fresh)]
        return places

    def quad(self, quad: QuadTemplate, graph: Slot | None) -> Places:
        """The places of a quad; `graph` is where it belongs if it does not say so itself."""
        return (
            self.place(quad.subject),
            self.place(quad.predicate),
            self.place(quad.object),
            self.place(graph if quad.graph is None else quad.graph),
        )

    def frame(self, graph: LiveGraph, bindings: Mapping[str, Term]) -> Frame:
        """A new frame with the constants and the forced bindings filled in."""
        intern = graph.dictionary.intern
        frame: Frame = [None] * len(self.places)
        for slot, place in self.places.items():
            if slot is None:
                frame[place] = DEFAULT_GRAPH
            elif isinstance(slot, Variable):
                if slot.name in bindings:
                    frame[place] = intern(bindings[slot.name])
            elif not isinstance(slot, Blank | Fresh):
                frame[place] = intern(slot)
        return frame


@dataclass(frozen=True, slots=True)
class Block:
    """Triple patterns that are joined; an optional block is left-joined to what stands before it."""

    quads: tuple[Places, ...]
    optional: bool


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. Its slots are those of the layout it was compiled with."""

    blocks: tuple[Block, ...]

    def solutions(self, graph: LiveGraph, frame: Frame) -> Iterator[Frame]:
        """Every solution, with its multiplicity, as the same frame filled in anew: copy what is to be kept.

        Evaluation is the algebra's join and left join (SPARQL 1.1 Query, 18.5), as nested loops over the index.
        """
        blocks = [(_ordered(graph, frame, block.quads), block.optional) for block in self.blocks]
        return _blocks(graph, frame, blocks, 0)


_OPERATORS: Final = frozenset("/|^*!?=<>{}&~")
_TERM_WORDS: Final = frozenset({"a", "true", "false"})


def compile_pattern(
    text: str, tokens: Sequence[Token], names: Names, layout: Layout, default_graph: Slot | None
) -> Pattern | None:
    """Compile what stands between the braces of a WHERE clause, or None if it is more than a pattern of this kind."""
    blocks: list[Block] = []
    try:
        for segment, optional in _segments(tokens):
            quads = parse_quads(text, segment, names, variables=True)
            if any(isinstance(slot, ox.Triple) for quad in quads for slot in (quad.subject, quad.object)):
                return None
            places = tuple(layout.quad(quad, default_graph) for quad in quads)
            if blocks and not blocks[-1].optional and not optional:
                blocks[-1] = Block(blocks[-1].quads + places, optional=False)
            elif places:
                blocks.append(Block(places, optional))
    except ParsingFailed:
        return None
    return Pattern(tuple(blocks))


def _segments(tokens: Sequence[Token]) -> Iterator[tuple[Sequence[Token], bool]]:
    """The runs of triples and GRAPH blocks, and whether each is optional. `ParsingFailed`: there is more than that."""
    start = index = 0
    while index < len(tokens):
        if tokens[index].word() == "OPTIONAL":
            end = closing(tokens, index + 1)
            yield _plain(tokens[start:index]), False
            yield _plain(tokens[index + 2 : end]), True
            start = index = end + 1
        else:
            index += 1
    yield _plain(tokens[start:]), False


def _plain(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens, if they can be nothing but triples and GRAPH blocks."""
    if tokens and tokens[0].text == ".":
        tokens = tokens[1:]
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "word" and token.text not in _TERM_WORDS and (token.word() != "GRAPH" or depth):
            raise ParsingFailed("not plain")
        if token.text in _OPERATORS:
            opens_graph = token.text == "{" and depth == 0 and index >= 2 and tokens[index - 2].word() == "GRAPH"
            if not opens_graph and not (token.text == "}" and depth == 1):
                raise ParsingFailed("not plain")
            if not opens_graph and tokens[index - 1].text == "{":
                raise ParsingFailed("GRAPH ?g { } asks which graphs exist")
            depth += 1 if opens_graph else -1
    return tokens


def _ordered(graph: LiveGraph, frame: Frame, quads: tuple[Places, ...]) -> Sequence[Places]:
    """The patterns of a block, the most selective first, then what is connected to those before."""
    if len(quads) < 2:
        return quads
    left = [(_estimate(graph, frame, quad), quad) for quad in quads]
    order: list[Places] = []
    bound: set[int] = set()
    while len(left) > 1:
        best = 0
        least = float("inf")
        for number, (estimate, (s, p, o, _)) in enumerate(left):
            # A tenth for each place that is bound by then.
            cost = estimate * _TENTHS[(s in bound) + (p in bound) + (o in bound)]
            if cost < least:
                best, least = number, cost
        quad = left.pop(best)[1]
        order.append(quad)
        bound.update([place for place in quad if frame[place] is None])
    order.append(left[0][1])
    return order


_TENTHS: Final = (1.0, 0.1, 0.01, 0.001)


def _estimate(graph: LiveGraph, frame: Frame, quad: Places) -> int:
    """About how many matches a pattern has, by what is bound before anything runs."""
    s, p, o, g = quad
    graph_id = frame[g]
    index = graph.graphs.get(DEFAULT_GRAPH if graph_id is None else graph_id)
    return 0 if index is None else index.estimate(frame[s], frame[p], frame[o])


def _blocks(
    graph: LiveGraph, frame: Frame, blocks: list[tuple[Sequence[Places], bool]], number: int
) -> Iterator[Frame]:
    if number == len(blocks):
        yield frame
        return
    quads, optional = blocks[number]
    found = False
    for _ in _join(graph, frame, quads):
        found = True
        yield from _blocks(graph, frame, blocks, number + 1)
    if optional and not found:
        yield from _blocks(graph, frame, blocks, number + 1)


def _join(graph: LiveGraph, frame: Frame, quads: Sequence[Places]) -> Iterator[None]:
    """Every way to match all patterns. One level of the nested loops for each, on a stack: there may be hundreds."""
    last = len(quads)
    levels = [_match(graph, frame, quads[0])]
    while levels:
        for _ in levels[-1]:
            if len(levels) < last:
                levels.append(_match(graph, frame, quads[len(levels)]))
                break
            yield
        else:
            levels.pop()


def _match(graph: LiveGraph, frame: Frame, quad: Places) -> Iterator[None]:
    """Every way to match one pattern; what it binds is unbound again at the end."""
    g = quad[3]
    name = frame[g]
    if name is not None:
        index = graph.graphs.get(name)
        if index is not None:
            yield from _triples(index, frame, quad)
        return
    for candidate, index in graph.graphs.items():
        if candidate != DEFAULT_GRAPH:
            frame[g] = candidate
            yield from _triples(index, frame, quad)
    frame[g] = None


def _triples(index: TripleIndex, frame: Frame, quad: Places) -> Iterator[None]:
    s, p, o, _ = quad
    subject, predicate, object_ = frame[s], frame[p], frame[o]
    for triple in index.match(subject, predicate, object_):
        if subject is None:
            frame[s] = triple[0]
        if predicate is None:
            if p == s and triple[1] != triple[0]:
                continue
            frame[p] = triple[1]
        if object_ is None:
            if (o == s and triple[2] != triple[0]) or (o == p and triple[2] != triple[1]):
                continue
            frame[o] = triple[2]
        yield
    if subject is None:
        frame[s] = None
    if predicate is None:
        frame[p] = None
    if object_ is None:
        frame[o] = None
