"""Evaluators: the result of one subscribed query as a table of term ids, computed on the live graph or on the mirror.

Every query form has a table: SELECT its own, ASK one row with `boolean`, CONSTRUCT and DESCRIBE one row
`subject`, `predicate`, `object` a triple.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyoxigraph as ox

from edge.engine.analysis import dependencies
from edge.engine.delta import Bag, DeltaPattern, IdRow
from edge.engine.general import EvaluationFailed, ListedQuery, Rules, bounded, evaluate, prepare_query
from edge.engine.graph import DEFAULT_GRAPH, LiveGraph
from edge.engine.lutt import EVERYTHING, Dependencies, Watch
from edge.engine.mirror import Mirror
from edge.engine.pattern import Layout, Pattern, Places, compile_pattern
from edge.engine.requests import Dataset, QueryRequest
from edge.engine.sparql.algebra import Blank, Fresh, Variable
from edge.engine.sparql.parser import parse_query
from edge.engine.sparql.syntax import Token, closing, tokenize
from edge.engine.sparql.template import Names, parse_iri, parse_quads
from edge.engine.terms import XSD
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term

TRIPLE_VARIABLES: tuple[str, ...] = ("subject", "predicate", "object")
BOOLEAN_VARIABLES: tuple[str, ...] = ("boolean",)
_BOOLEANS = tuple(ox.Literal(text, datatype=ox.NamedNode(XSD + "boolean")) for text in ("false", "true"))


@dataclass(frozen=True, slots=True)
class World:
    """What evaluators look at."""

    graph: LiveGraph
    mirror: Mirror
    rules: Rules


class Evaluator(Protocol):
    """Computes the whole result of one query in the current state."""

    variables: tuple[str, ...]
    """The columns of the result, known from the first evaluation on."""
    moving: bool
    """Whether an evaluation can change what the result depends on."""
    distinct: bool
    """Whether a row counts once, however often it is in the bag."""
    delta: DeltaPattern | None
    """For results that need not be computed as a whole after each change."""
    columns: Sequence[int]
    """Where `delta` has the selected variables."""

    def evaluate(self, world: World, now: int) -> Bag:
        """The result as a bag of rows. `now` in microseconds since 1970. Raises `EvaluationFailed`."""

    def dependencies(self) -> Dependencies:
        """What the result depends on, as of the last evaluation."""


class PatternEvaluator:
    """A SELECT of a plain pattern, run on the live graph's own index."""

    moving = False
    delta: DeltaPattern | None
    columns: Sequence[int]

    def __init__(self, variables: tuple[str, ...], layout: Layout, pattern: Pattern, *, distinct: bool) -> None:
        self.variables = variables
        self.distinct = distinct
        self.columns = [layout.place(Variable(name)) for name in variables]
        self.delta = DeltaPattern(pattern, layout)
        self._layout = layout
        self._pattern = pattern

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        frame = self._layout.frame(world.graph, {})
        columns = self.columns
        solutions = bounded(self._pattern.solutions(world.graph, frame), world.rules)
        return Counter(tuple(row[place] for place in columns) for row in solutions)

    def dependencies(self) -> Dependencies:
        """See `Evaluator`."""
        slots = {place: slot for slot, place in self._layout.places.items()}

        def watch(quad: Places) -> Watch:
            s, p, o, g = (
                None if slots[place] is None or isinstance(slots[place], Variable | Blank | Fresh) else slots[place]
                for place in quad
            )
            return Watch(s, p, o, g, default_graph=slots[quad[3]] is None)  # type: ignore[arg-type]

        watches = tuple(dict.fromkeys(watch(quad) for block in self._pattern.blocks for quad in block.quads))
        return Dependencies(watches, graph_names=False)


class _Whole:
    """Results that are computed as a whole, on the mirror."""

    moving = False
    distinct = False
    delta: DeltaPattern | None = None
    columns: Sequence[int] = ()
    _depends: Dependencies

    def dependencies(self) -> Dependencies:
        """See `Evaluator`."""
        return self._depends


class SelectEvaluator(_Whole):
    """Any SELECT."""

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        self.variables: tuple[str, ...] = ()
        self._query = query
        self._dataset = dataset
        self._depends = depends

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        self.variables, rows = _select(world, self._query.text, self._query.tokens, self._dataset, now)
        return Counter(rows)


class AskEvaluator(_Whole):
    """An ASK: one row that says true or false."""

    variables = BOOLEAN_VARIABLES

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        self._query = query
        self._dataset = dataset
        self._depends = depends

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        answer = evaluate(
            world.mirror.open(), self._query.text, self._query.tokens, dataset=self._dataset, rules=world.rules, now=now
        )
        return Counter({(world.graph.dictionary.intern(_BOOLEANS[bool(answer)]),): 1})


class ConstructEvaluator(_Whole):
    """A CONSTRUCT: its WHERE as a SELECT, its template filled here, so that a solution's blank nodes keep their names.

    Evaluated anew, Oxigraph would name them anew, and every triple that holds one would be removed and added.
    """

    variables = TRIPLE_VARIABLES

    def __init__(
        self, where: str, dataset: Dataset, layout: Layout, template: tuple[Places, ...], depends: Dependencies
    ) -> None:
        self._where = where
        self._tokens = tokenize(where)
        self._dataset = dataset
        self._layout = layout
        self._template = template
        self._depends = depends

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        graph, places, fresh = world.graph, self._layout.places, self._layout.fresh
        frame = self._layout.frame(graph, {})
        names, rows = _select(world, self._where, self._tokens, self._dataset, now)
        columns = [(index, places[Variable(name)]) for index, name in enumerate(names) if Variable(name) in places]
        triples: Bag = Counter()
        for row, count in Counter(rows).items():
            for index, place in columns:
                frame[place] = row[index]
            for copy in range(count if fresh else 1):
                for place in fresh:
                    frame[place] = graph.dictionary.intern(self._blank(graph, row, place, copy))
                for s, p, o, _ in self._template:
                    triple = (frame[s], frame[p], frame[o])
                    if None not in triple and graph.legal((*triple, DEFAULT_GRAPH)):  # type: ignore[arg-type]
                        triples[triple] = 1
        return triples

    @staticmethod
    def _blank(graph: LiveGraph, row: IdRow, place: int, copy: int) -> ox.BlankNode:
        terms = graph.dictionary.terms
        solution = " ".join("" if cell is None else str(terms[cell]) for cell in row)
        return ox.BlankNode("c" + hashlib.sha256(f"{place} {copy} {solution}".encode()).hexdigest()[:32])


class DescribeEvaluator(_Whole):
    """A DESCRIBE: the triples that Oxigraph gives, the resource's own and those of blank nodes that hang on it."""

    variables = TRIPLE_VARIABLES
    moving = True

    def __init__(
        self,
        query: ListedQuery,
        dataset: Dataset,
        resources: tuple[Term, ...],
        where: str | None,
        depends: Dependencies,
    ) -> None:
        """`resources` are the IRIs it names, `where` the query that finds the others."""
        self._query = query
        self._dataset = dataset
        self._resources = resources
        self._where = where
        self._depends = depends
        self._subjects: set[Term] = set(resources)

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        intern, terms = world.graph.dictionary.intern, world.graph.dictionary.terms
        subjects = set(self._resources)
        if self._where is not None:
            _, rows = _select(world, self._where, tokenize(self._where), self._dataset, now)
            subjects.update(terms[cell] for row in rows for cell in row if cell is not None)
        result = evaluate(
            world.mirror.open(), self._query.text, self._query.tokens, dataset=self._dataset, rules=world.rules, now=now
        )
        assert isinstance(result, ox.QueryTriples)  # noqa: S101
        triples: Bag = Counter()
        try:
            for triple in bounded(result, world.rules):
                subjects.add(triple.subject)
                if isinstance(triple.object, ox.BlankNode):  # it may have nothing to say yet
                    subjects.add(triple.object)
                triples[intern(triple.subject), intern(triple.predicate), intern(triple.object)] = 1
        except (RuntimeError, OSError) as error:
            raise EvaluationFailed(f"The query could not be evaluated: {error}") from None
        self._subjects = subjects
        return triples

    def dependencies(self) -> Dependencies:
        """See `Evaluator`. They follow the resources that the last evaluation described."""
        described = tuple(Watch(subject=subject) for subject in self._subjects if not isinstance(subject, ox.Literal))
        return Dependencies(self._depends.watches + described, self._depends.graph_names)


def compile_evaluator(request: QueryRequest, rules: Rules) -> Evaluator:
    """The evaluator of a query. Raises `ParsingFailed`, `Forbidden`."""
    query = prepare_query(request.sparql, rules)
    dataset = request.dataset
    at = next(i for i, token in enumerate(query.tokens) if token.word() == query.form)
    names = Names(query.text[: query.tokens[at].start], rules.base_iri)
    if query.form == "SELECT" and not dataset.given and not rules.union_default_graph:
        simple = _pattern_evaluator(query, at, names)
        if simple is not None:
            return simple
    depends = _dependencies(query, dataset, rules)
    if query.form == "SELECT":
        return SelectEvaluator(query, dataset, depends)
    if query.form == "ASK":
        return AskEvaluator(query, dataset, depends)
    if query.form == "CONSTRUCT":
        return _construct_evaluator(query, at, names, dataset, depends)
    return _describe_evaluator(query, at, names, dataset, depends)


def _pattern_evaluator(query: ListedQuery, at: int, names: Names) -> PatternEvaluator | None:
    """The evaluator of `SELECT [DISTINCT] ?a ?b [WHERE] { plain pattern }`, or None if the query is more than that."""
    tokens = query.tokens
    index = at + 1
    distinct = tokens[index].word() == "DISTINCT"
    index += distinct
    variables: list[str] = []
    while tokens[index].kind == "var":
        variables.append(tokens[index].text[1:])
        index += 1
    index += tokens[index].word() == "WHERE"
    if tokens[index].text != "{" or closing(tokens, index) != len(tokens) - 1 or len(set(variables)) < len(variables):
        return None
    layout = Layout()
    pattern = compile_pattern(query.text, tokens[index + 1 : -1], names, layout, None)
    return None if pattern is None else PatternEvaluator(tuple(variables), layout, pattern, distinct=distinct)


def _construct_evaluator(
    query: ListedQuery, at: int, names: Names, dataset: Dataset, depends: Dependencies
) -> ConstructEvaluator:
    text, tokens = query.text, query.tokens
    if tokens[at + 1].text == "{":
        end = closing(tokens, at + 1)
        template, rest = tokens[at + 2 : end], text[tokens[end].end :]
    else:  # CONSTRUCT WHERE { template }
        start = next(i for i in range(at, len(tokens)) if tokens[i].text == "{")
        template, rest = tokens[start + 1 : closing(tokens, start)], text[tokens[at].end :]
    layout = Layout()
    places = layout.template(parse_quads(text, template, names, variables=True), None)
    return ConstructEvaluator(f"{names.prologue} SELECT * {rest}", dataset, layout, places, depends)


def _describe_evaluator(
    query: ListedQuery, at: int, names: Names, dataset: Dataset, depends: Dependencies
) -> DescribeEvaluator:
    text, tokens = query.text, query.tokens
    index = at + 1
    resources: list[Term] = []
    variables = ""
    while index < len(tokens) and (tokens[index].kind in ("var", "iri", "name") or tokens[index].text == "*"):
        if tokens[index].kind in ("iri", "name"):
            resources.append(parse_iri(tokens[index], names))
        else:
            variables += tokens[index].text + " "
        index += 1
    rest = text[tokens[index].start :] if index < len(tokens) else ""
    where = f"{names.prologue} SELECT {variables} {rest}" if variables and rest else None
    return DescribeEvaluator(query, dataset, tuple(resources), where, depends)


def _dependencies(query: ListedQuery, dataset: Dataset, rules: Rules) -> Dependencies:
    """What a query depends on. What cannot be parsed, though it is legal, is taken to depend on everything."""
    try:
        parsed = parse_query(query.text, query.tokens, rules.base_iri)
    except ParsingFailed:
        return EVERYTHING
    default = parsed.default_graphs
    graphs = None if default is None else [graph.value for graph in default]
    if dataset.given:
        graphs = list(dataset.default_graphs or ())
    return dependencies(parsed, graphs, union=rules.union_default_graph)


def _select(
    world: World, text: str, tokens: Sequence[Token], dataset: Dataset, now: int
) -> tuple[tuple[str, ...], list[IdRow]]:
    """The variables and rows of a SELECT, evaluated on the mirror."""
    result = evaluate(world.mirror.open(), text, tokens, dataset=dataset, rules=world.rules, now=now)
    assert isinstance(result, ox.QuerySolutions)  # noqa: S101
    names = tuple(variable.value for variable in result.variables)
    intern = world.graph.dictionary.intern
    try:
        rows = [
            tuple(None if term is None else intern(term) for term in solution)
            for solution in bounded(result, world.rules)
        ]
    except (RuntimeError, OSError) as error:
        raise EvaluationFailed(f"The query could not be evaluated: {error}") from None
    return names, rows
