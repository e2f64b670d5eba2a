"""Evaluation of general SPARQL text on a mirror, under the rules that the engine adds to Oxigraph's.

The time is the engine's; a function that does not exist is refused; a protocol dataset is strict (what is not named is
not there); nothing is fetched from elsewhere unless the operator allowed it; variables of `SELECT *` come in the order
in which the query names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pyoxigraph as ox

from edge.engine.queries.function_calls import at_time, check_calls
from edge.engine.requests import STORE_DATASET, Dataset
from edge.engine.sparql.oxigraph_text import corrections, edited
from edge.engine.sparql.parser import parse_query
from edge.engine.sparql.size_limits import MAX_JOINED, check_size
from edge.engine.sparql.terms_text import Names
from edge.engine.store.step_budget import MAX_STEPS, MAX_TEXT
from edge.protocol.access import DEFAULT_GRAPH
from edge.protocol.errors import EdgeError, Forbidden, ParsingFailed, ResultTooLarge
from edge.protocol.syntax import Token, has_word, read_prologue, tokenize, variables
from edge.sparql.explanation import explain

T = TypeVar("T")

CACHED_LENGTH: Final = 16_384
"""Longer texts are data, not templates: what was made of them is not kept, in characters."""

_DefaultGraph = ox.NamedNode | ox.BlankNode | ox.DefaultGraph


@dataclass(frozen=True, slots=True)
class QueryRules:
    """What the operator decides about evaluation."""

    base_iri: str = "http://localhost/"
    """Against what relative IRIs are resolved where the request has no BASE."""
    union_default_graph: bool = False
    """Whether the default graph of the store is the union of all graphs."""
    allow_service: bool = False
    allow_load: bool = False
    max_solutions: int = 500_000
    """Solutions of an update's WHERE, and of a subscribed query, at the most: all others wait for them."""
    max_steps: int = MAX_STEPS
    """Steps to find them on the live graph, at the most."""
    max_changes: int = 1_000_000
    """Quads that an update may change, at the most: applying them cannot be interrupted."""
    update_timeout: float = 60.0
    """Seconds that an update may be evaluated in a forked process, where its steps are counted."""
    max_remembered_bytes: int = 16 * 1024 * 1024
    """Bytes of evaluations of joins, and of their solutions, that the delta rules remember at the most."""
    max_joined: int = MAX_JOINED
    """Triple patterns, groups and OPTIONALs that are joined in one group, at the most: planning them takes long."""
    evaluation_timeout: float = 10.0
    """Seconds that Oxigraph may take for what all others wait for."""
    max_query_memory: int = 256 * 1024 * 1024
    """Bytes that an evaluation apart may take."""
    max_text: int = MAX_TEXT
    """Characters of a text that a function of our own operators may make."""
    parse: Callable[[str, str], str | None] | None = None
    """What parses a query in place of `parse`; see there."""
    boost: bool = True
    """Whether subscribed queries are moved by the delta rules, as far as they have some."""

    @property
    def longest_result(self) -> int:
        """Characters of a result that is held as text: there are a few copies of it for a while."""
        return self.max_query_memory // 4


def bounded(solutions: Iterable[T], rules: QueryRules) -> Iterator[T]:
    """The solutions, as far as they are allowed. Raises `ResultTooLarge` beyond."""
    for number, solution in enumerate(solutions):
        if number >= rules.max_solutions:
            raise too_many(rules)
        yield solution


def too_many(rules: QueryRules) -> ResultTooLarge:
    """The error for what has more solutions than it may."""
    return ResultTooLarge(
        f"More than {rules.max_solutions} solutions (engine.max_solutions); are there patterns that share no variable? "
        "Ask for less, or change it in parts"
    )


def too_long(rules: QueryRules, what: str = "The result") -> ResultTooLarge:
    """The error for what holds long texts often."""
    return ResultTooLarge(
        f"{what} is longer than {rules.longest_result} characters (a quarter of engine.max_query_memory); ask for less"
    )


class _Parsed(Exception):
    """Oxigraph has parsed the query."""


def _stop(_: object) -> ox.NamedNode:
    """A graph of the dataset, which Oxigraph asks for after it has parsed a query, and before it plans it."""
    raise _Parsed


def parse(text: str, base_iri: str) -> str | None:
    """Parse a query. Return the parser's error; None: it is legal.

    Nothing is evaluated, nor planned, which takes Oxigraph seconds where much is joined.
    """
    try:
        ox.Store().query(text, base_iri=base_iri, default_graph=map(_stop, [None]))  # type: ignore[arg-type]
    except _Parsed:
        return None
    except (SyntaxError, ValueError) as error:
        return str(error)
    raise AssertionError("Oxigraph evaluated a query without its dataset")


def check_query(text: str, rules: QueryRules) -> list[Token]:
    """The tokens of a query that is legal and allowed. Raises `ParsingFailed`, and `Forbidden` if it is legal."""
    tokens = tokenize(text)
    check_size(tokens, rules.max_joined)
    error = (rules.parse or parse)(text, rules.base_iri)
    if error is not None:
        if first_word(text, tokens) in _VERBS:
            raise ParsingFailed("This is an update, not a query: send it as an update")
        raise ParsingFailed(explain("query", text, tokens, error))
    refuse_service(tokens, rules)
    check_calls(tokens, Names(read_prologue(text, tokens, 0)[0], rules.base_iri))
    return tokens


_VERBS: Final = frozenset({"INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"})


def first_word(text: str, tokens: Sequence[Token]) -> str:
    """The keyword that a request begins with after its declarations, in upper case; empty: none."""
    _, index = read_prologue(text, tokens, 0)
    return tokens[index].word() if index < len(tokens) else ""


def refuse_service(tokens: Sequence[Token], rules: QueryRules) -> None:
    """Refuse a legal request that calls others if it may not. Raises `Forbidden`."""
    if not rules.allow_service and has_word(tokens, "SERVICE"):
        raise Forbidden(
            "SERVICE is switched off, so that nobody can make the gateway send requests; engine.allow_service allows it"
        )


@dataclass(frozen=True, slots=True)
class ListedQuery:
    """A query of which `SELECT *` has been written out."""

    text: str
    tokens: list[Token]
    form: str
    """SELECT, ASK, CONSTRUCT or DESCRIBE."""


def prepare_query(text: str, rules: QueryRules) -> ListedQuery:
    """Check a query, find its form, and write out `SELECT *` in order of first appearance."""
    tokens = check_query(text, rules)
    at = next(i for i, token in enumerate(tokens) if token.word() in FORMS)
    form = tokens[at].word()
    if form == "SELECT":
        star = at + 1
        if tokens[star].word() in ("DISTINCT", "REDUCED"):
            star += 1
        if tokens[star].text == "*":
            names = _visible(text, tokens, rules)
            if names:
                listed = " ".join(f"?{name}" for name in names)
                text = text[: tokens[star].start] + listed + text[tokens[star].end :]
                tokens = tokenize(text)
    return ListedQuery(text, tokens, form)


FORMS: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})


def _visible(text: str, tokens: Sequence[Token], rules: QueryRules) -> list[str]:
    """The variables that `SELECT *` selects, in order of first appearance."""
    try:
        return [variable.name for variable in parse_query(text, tokens, rules.base_iri).variables]
    except ParsingFailed:  # legal, and beyond our grammar
        pass
    try:
        result = ox.Store().query(_for_oxigraph(text, tokens, rules, 0), base_iri=rules.base_iri)
    except (RuntimeError, OSError):  # a SERVICE that does not answer now may answer later
        return []
    visible = {variable.value for variable in result.variables}  # type: ignore[union-attr]
    return [name for name in variables(tokens) if name in visible]


def evaluate(
    store: ox.Store,
    text: str,
    tokens: Sequence[Token],
    *,
    dataset: Dataset,
    rules: QueryRules,
    now: int,
    graph: ox.NamedNode | None = None,
) -> ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples:
    """Run a checked query.

    `now` in microseconds since 1970; `graph` takes the place of the default graph.
    """
    default, named = graphs(visible(dataset, _declared(text, tokens, rules, dataset), union=rules.union_default_graph))
    if graph is not None and not dataset.given:
        default = [graph] if dataset.readable is None or graph.value in dataset.readable else []
    try:
        return store.query(
            _for_oxigraph(text, tokens, rules, now),
            base_iri=rules.base_iri,
            use_default_graph_as_union=rules.union_default_graph and default is None,
            default_graph=default,
            named_graphs=named,
        )
    except SyntaxError as error:
        raise ParsingFailed(explain("query", text, tokens, str(error))) from None
    except (RuntimeError, OSError, ValueError) as error:
        raise EvaluationFailed(f"The query could not be evaluated: {error}") from None


def _for_oxigraph(text: str, tokens: Sequence[Token], rules: QueryRules, now: int) -> str:
    """A checked query as Oxigraph is to evaluate it. `now`: microseconds since 1970."""
    return edited(text, [*at_time(text, tokens, rules.base_iri, now), *corrections(text, tokens)])


class EvaluationFailed(EdgeError):
    """A legal query whose evaluation failed, for example because a SERVICE did not answer."""

    error = "evaluation_failed"
    status_code = 500


def visible(dataset: Dataset, declared: Dataset = STORE_DATASET, *, union: bool = False) -> Dataset:
    """What a request is evaluated on: `dataset`, else what its text declared, as far as whoever asks may see it.

    `union`: the store's default graph is the union of all. Where only some graphs may be seen the result names them,
    so it goes before whatever the text says: FROM, GRAPH and paths find nothing else.
    """
    readable = dataset.readable
    if readable is None:
        return dataset
    wanted = dataset if dataset.given else declared
    if wanted.given:
        default = tuple(graph for graph in wanted.default_graphs or () if graph in readable)
        named = tuple(graph for graph in wanted.named_graphs or () if graph in readable and graph != DEFAULT_GRAPH)
    else:
        default = tuple(sorted(readable if union else readable & {DEFAULT_GRAPH}))
        named = tuple(sorted(readable - {DEFAULT_GRAPH}))
    return Dataset(default, named, readable)


def _declared(text: str, tokens: Sequence[Token], rules: QueryRules, dataset: Dataset) -> Dataset:
    """The dataset of FROM and FROM NAMED, which stand nowhere but in the head of a query; nothing unless it matters."""
    if dataset.readable is None or dataset.given or not has_word(tokens, "FROM"):
        return STORE_DATASET
    names = Names(read_prologue(text, tokens, 0)[0], rules.base_iri).declared()
    default: list[str] = []
    named: list[str] = []
    for index, token in enumerate(tokens):
        if token.word() == "FROM":
            is_named = tokens[index + 1].word() == "NAMED"
            iri = names.iri(tokens[index + 1 + is_named].text).value
            (named if is_named else default).append(iri)
    return Dataset(tuple(default), tuple(named))


def graphs(dataset: Dataset) -> tuple[list[_DefaultGraph] | None, list[ox.NamedNode | ox.BlankNode] | None]:
    """The dataset as Oxigraph takes it. Raises `ParsingFailed`.

    SPARQL 1.1 Protocol, 2.1.4: giving one kind of graph leaves the other empty.
    """
    if not dataset.given:
        return None, None
    limited = dataset.readable is not None
    try:
        return (
            [
                ox.DefaultGraph() if limited and iri == DEFAULT_GRAPH else ox.NamedNode(iri)
                for iri in dataset.default_graphs or ()
            ],
            [ox.NamedNode(iri) for iri in dataset.named_graphs or ()],
        )
    except ValueError as error:
        raise ParsingFailed(f"A graph of the dataset is not an absolute IRI: {error}") from None
