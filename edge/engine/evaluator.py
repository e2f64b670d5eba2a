"""Evaluators: the whole result of one subscribed query as a table of term ids, computed on the mirror.

Every query form has a table: SELECT its own, ASK one row with `boolean`, CONSTRUCT and DESCRIBE one row
`subject`, `predicate`, `object` a triple.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyoxigraph as ox

from edge.engine.analysis import dependencies
from edge.engine.booster import BOOLEAN_VARIABLES, TRIPLE_VARIABLES
from edge.engine.general import EvaluationFailed, ListedQuery, Rules, bounded, evaluate, prepare_query
from edge.engine.graph import LiveGraph
from edge.engine.lutt import EVERYTHING, Dependencies, Watch
from edge.engine.mirror import Mirror
from edge.engine.operators.layout import Layout
from edge.engine.operators.stages import BOOLEANS, Row, Template, Weights, add_weight
from edge.engine.requests import Dataset, QueryRequest
from edge.engine.sparql.algebra import Triple, Variable
from edge.engine.sparql.parser import parse_quads, parse_query
from edge.engine.sparql.syntax import Token, closing, read_prologue, tokenize
from edge.engine.sparql.terms_text import Names
from edge.protocol.errors import ParsingFailed
from edge.protocol.results import Term


@dataclass(frozen=True, slots=True)
class World:
    """What evaluators look at."""

    graph: LiveGraph
    mirror: Mirror
    rules: Rules


Bag = Counter[Row]
"""A result: rows, and how often each occurs."""


class Evaluator(ABC):
    """Computes the whole result of one query in the current state."""

    variables: tuple[str, ...] = ()
    """The columns of the result, known from the first evaluation on."""
    moving = False
    """Whether an evaluation can change what the result depends on."""

    def __init__(self, depends: Dependencies) -> None:
        self._depends = depends

    @abstractmethod
    def evaluate(self, world: World, now: int) -> Bag:
        """The result as a bag of rows. `now` in microseconds since 1970. Raises `EvaluationFailed`."""

    def dependencies(self) -> Dependencies:
        """What the result depends on, as of the last evaluation."""
        return self._depends


class SelectEvaluator(Evaluator):
    """Any SELECT."""

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        super().__init__(depends)
        self._query = query
        self._dataset = dataset

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        self.variables, rows = _select(world, self._query.text, self._query.tokens, self._dataset, now)
        return Counter(rows)


class AskEvaluator(Evaluator):
    """An ASK: one row that says true or false."""

    variables = BOOLEAN_VARIABLES

    def __init__(self, query: ListedQuery, dataset: Dataset, depends: Dependencies) -> None:
        super().__init__(depends)
        self._query = query
        self._dataset = dataset

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        answer = evaluate(
            world.mirror.open(), self._query.text, self._query.tokens, dataset=self._dataset, rules=world.rules, now=now
        )
        return Counter({(world.graph.dictionary.intern(BOOLEANS[bool(answer)]),): 1})


class ConstructEvaluator(Evaluator):
    """A CONSTRUCT: its WHERE as a SELECT, its template filled here, so that a solution's blank nodes keep their names.

    Evaluated anew, Oxigraph would name them anew, and every triple that holds one would be removed and added.
    """

    variables = TRIPLE_VARIABLES

    def __init__(self, where: str, dataset: Dataset, template: Sequence[Triple], depends: Dependencies) -> None:
        """`where`: the query whose solutions fill the template."""
        super().__init__(depends)
        self._where = where
        self._tokens = tokenize(where)
        self._dataset = dataset
        self._layout = Layout()
        self._template = self._layout.template(template)

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        layout = self._layout
        names, rows = _select(world, self._where, self._tokens, self._dataset, now)
        columns = [layout.place(Variable(name)) for name in names]
        frame = layout.frame(world.graph)
        solutions: Weights = {}
        for row in rows:
            for place, term_id in zip(columns, row, strict=True):
                frame[place] = term_id
            add_weight(solutions, tuple(frame), 1)
        template = Template(world.graph, self._template, layout.fresh)
        triples = template.change(solutions)
        template.release()
        return Counter(dict.fromkeys(triples, 1))


class DescribeEvaluator(Evaluator):
    """A DESCRIBE: the triples that Oxigraph gives, the resource's own and those of blank nodes that hang on it."""

    variables = TRIPLE_VARIABLES
    moving = True

    def __init__(
        self,
        query: ListedQuery,
        dataset: Dataset,
        resources: Sequence[Term],
        where: str | None,
        depends: Dependencies,
    ) -> None:
        """`resources` are the IRIs it names, `where` the query that finds the others."""
        super().__init__(depends)
        self._query = query
        self._dataset = dataset
        self._resources = resources
        self._where = where
        self._subjects: set[Term] = set(self._resources)

    def evaluate(self, world: World, now: int) -> Bag:
        """See `Evaluator`."""
        intern, terms = world.graph.dictionary.intern, world.graph.dictionary.terms
        subjects: set[Term] = set(self._resources)
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
    prologue = query.text[: query.tokens[at].start]
    names = Names(read_prologue(query.text, query.tokens, 0)[0], rules.base_iri)
    depends = _dependencies(query, dataset, rules)
    if query.form == "SELECT":
        return SelectEvaluator(query, dataset, depends)
    if query.form == "ASK":
        return AskEvaluator(query, dataset, depends)
    if query.form == "CONSTRUCT":
        template, rest = _template(query, at)
        return ConstructEvaluator(f"{prologue} SELECT * {rest}", dataset, parse_quads(template, names), depends)
    return _describe_evaluator(query, at, names, dataset, depends)


def _template(query: ListedQuery, at: int) -> tuple[Sequence[Token], str]:
    """The tokens of a CONSTRUCT's template, and its dataset and WHERE clause."""
    text, tokens = query.text, query.tokens
    if tokens[at + 1].text == "{":
        end = closing(tokens, at + 1)
        return tokens[at + 2 : end], text[tokens[end].end :]
    start = next(i for i in range(at, len(tokens)) if tokens[i].text == "{")  # CONSTRUCT WHERE { template }
    return tokens[start + 1 : closing(tokens, start)], text[tokens[at].end :]


def _describe_evaluator(
    query: ListedQuery, at: int, names: Names, dataset: Dataset, depends: Dependencies
) -> DescribeEvaluator:
    text, tokens = query.text, query.tokens
    index = at + 1
    resources: list[Term] = []
    found = ""
    while index < len(tokens) and (tokens[index].kind in ("var", "iri", "name") or tokens[index].text == "*"):
        if tokens[index].kind in ("iri", "name"):
            resources.append(names.declared().iri(tokens[index].text))
        else:
            found += tokens[index].text + " "
        index += 1
    rest = text[tokens[index].start :] if index < len(tokens) else ""
    where = f"{text[: tokens[at].start]} SELECT {found} {rest}" if found and rest else None
    return DescribeEvaluator(query, dataset, resources, where, depends)


def _dependencies(query: ListedQuery, dataset: Dataset, rules: Rules) -> Dependencies:
    """What a query depends on. What is legal, and beyond our grammar, is taken to depend on everything."""
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
) -> tuple[tuple[str, ...], list[Row]]:
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
