"""Evaluation of SPARQL texts by Oxigraph on a mirror, with the engine's additional rules.

- The engine supplies the current time and rejects unknown functions.
- A protocol dataset is strict: graphs that it does not name do not exist.
- Oxigraph sends no requests to other servers unless the operator allows it.
- `SELECT *` returns the variables in the order of their first appearance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import pyoxigraph as ox

from edge.engine.queries.function_calls import at_time, check_calls
from edge.engine.requests import STORE_DATASET, Dataset
from edge.engine.settings import EngineSettings
from edge.engine.sparql.expansion import check_expansion
from edge.engine.sparql.oxigraph_text import corrections, edited
from edge.engine.sparql.parser import parse_query
from edge.engine.sparql.size_limits import check_size
from edge.engine.sparql.terms_text import Names
from edge.protocol.access import DEFAULT_GRAPH
from edge.protocol.errors import EdgeError, Forbidden, ParsingFailed, ResultTooLarge
from edge.protocol.syntax import tokenize
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token, has_word, read_prologue, variables

T = TypeVar("T")

CACHED_LENGTH: Final = 16_384
"""Characters of the longest text that the caches hold. Longer texts carry data; they rarely recur."""

_STEPS_PER_QUAD: Final = 5
"""Steps of the budget of an update for each quad that it may change."""
_SOLUTION: Final = 512
"""Bytes for each solution: a retained row of six cells takes 460 (see `row_bytes`)."""
_CHARACTER: Final = 24
"""Bytes for each character of a created text: up to 4 in Python, and several copies exist for a short time."""

_DEFAULTS: Final = EngineSettings()

_DefaultGraph = ox.NamedNode | ox.BlankNode | ox.DefaultGraph


@dataclass(frozen=True)  # without slots, for the cached properties
class QueryRules:
    """The settings of the engine, with limits that follow from them, for the evaluation of queries and updates."""

    settings: EngineSettings = _DEFAULTS
    parse: Callable[[str, str], str | None] | None = None
    """Replacement of the function `parse` of this module, with the same contract."""

    @property
    def incremental(self) -> bool:
        """Whether subscriptions use incremental evaluation where it is possible."""
        return self.settings.booster == "delta"

    @property
    def whole_timeout(self) -> float:
        """Seconds for an evaluation by Oxigraph for an update or a subscription; no step budget stops it earlier."""
        return self.settings.query_timeout / 3

    @cached_property
    def max_changes(self) -> int:
        """Limit of quads that one update changes; the engine cannot interrupt their application."""
        return self.settings.max_steps // _STEPS_PER_QUAD

    @cached_property
    def max_solutions(self) -> int:
        """Limit of solutions of an update's WHERE and of a subscribed query."""
        return self.settings.max_query_memory // _SOLUTION

    @property
    def max_text(self) -> int:
        """Limit of characters of a text that a function of our own operators creates."""
        return self.settings.max_query_memory // _CHARACTER

    @property
    def longest_result(self) -> int:
        """Limit of characters of a result that is held as text: several copies of it exist for a short time."""
        return self.settings.max_query_memory // 4


def bounded(solutions: Iterable[T], rules: QueryRules) -> Iterator[T]:
    """Yield the solutions up to the limit. Raises `ResultTooLarge` beyond."""
    most = rules.max_solutions
    for number, solution in enumerate(solutions):
        if number >= most:
            raise too_many(rules)
        yield solution


def too_many(rules: QueryRules) -> ResultTooLarge:
    """Return the error for a result with too many solutions."""
    return ResultTooLarge(
        f"More than {rules.max_solutions} solutions (engine.max_query_memory, {_SOLUTION} bytes each); are there "
        "patterns that share no variable? Ask for less, or change it in parts"
    )


def too_long(rules: QueryRules, what: str = "The result") -> ResultTooLarge:
    """Return the error for a result with too many characters."""
    return ResultTooLarge(
        f"{what} is longer than {rules.longest_result} characters (a quarter of engine.max_query_memory); ask for less"
    )


COUNTED_LIMIT: Final = "engine.query_timeout"
"""Name of the time limit of an evaluation whose steps are counted."""
WHOLE_LIMIT: Final = "a third of engine.query_timeout"
"""Name of `QueryRules.whole_timeout`."""


class _Parsed(Exception):
    """Signal that Oxigraph has parsed the query."""


def _stop(_: object) -> ox.NamedNode:
    """Raise `_Parsed` when Oxigraph requests a graph of the dataset: after parsing, but before planning."""
    raise _Parsed


def parse(text: str, base_iri: str) -> str | None:
    """Parse a query. Return the parser's error, or None if the query is legal.

    The query is neither evaluated nor planned: planning takes seconds if the query joins many patterns.
    """
    try:
        ox.Store().query(text, base_iri=base_iri, default_graph=map(_stop, [None]))  # type: ignore[arg-type]
    except _Parsed:
        return None
    except (SyntaxError, ValueError) as error:
        return str(error)
    raise AssertionError("Oxigraph evaluated a query without its dataset")


def check_query(text: str, rules: QueryRules) -> list[Token]:
    """Check a query and return its tokens. Raises `ParsingFailed`, and `Forbidden` for a legal but disabled query."""
    check_expansion(text)
    tokens = tokenize(text)
    check_size(text, tokens, rules.settings.max_steps)
    error = (rules.parse or parse)(text, rules.settings.base_iri)
    if error is not None:
        refuse_form(text, tokens, _VERBS, "This is an update, not a query", "Send it as an update.")
        from edge.sparql.explanation import explain  # only rejected texts need it

        raise ParsingFailed(explain("query", text, tokens, error))
    refuse_service(tokens, rules)
    check_calls(text, tokens, Names(read_prologue(text, tokens, 0)[0], rules.settings.base_iri))
    return tokens


_VERBS: Final = frozenset({"INSERT", "DELETE", "WITH", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"})


def refuse_form(text: str, tokens: Sequence[Token], words: frozenset[str], problem: str, remedy: str) -> None:
    """Raise `ParsingFailed` if the first keyword after the declarations is one of `words`, in upper case."""
    _, index = read_prologue(text, tokens, 0)
    if index < len(tokens) and tokens[index].word() in words:
        raise ParsingFailed(Diagnosis(tokens[index].start, problem, remedy).message(text))


def refuse_service(tokens: Sequence[Token], rules: QueryRules) -> None:
    """Reject a legal request with SERVICE unless it is enabled. Raises `Forbidden`."""
    if not rules.settings.allow_service and has_word(tokens, "SERVICE"):
        raise Forbidden(
            "SERVICE is disabled, so that clients cannot make the gateway send requests; to allow it, set "
            "engine.allow_service"
        )


@dataclass(frozen=True, slots=True)
class ListedQuery:
    """A checked query whose `SELECT *` is replaced by a list of variables."""

    text: str
    tokens: list[Token]
    form: str
    """SELECT, ASK, CONSTRUCT or DESCRIBE."""


def prepare_query(text: str, rules: QueryRules) -> ListedQuery:
    """Check a query, determine its form, and expand `SELECT *` in order of first appearance."""
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
    """Return the variables that `SELECT *` selects, in order of first appearance."""
    try:
        return [variable.name for variable in parse_query(text, tokens, rules.settings.base_iri).variables]
    except ParsingFailed:  # Oxigraph accepts it, but our grammar does not
        pass
    try:
        result = ox.Store().query(_for_oxigraph(text, tokens, rules, 0), base_iri=rules.settings.base_iri)
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
    """Evaluate a checked query.

    `now`: microseconds since 1970. `graph`: replaces the default graph. Raises `ParsingFailed`, `EvaluationFailed`.
    """
    declared = _declared(text, tokens, rules, dataset)
    seen = visible(dataset, declared, union=rules.settings.default_graph_as_union)
    # Oxigraph would count the solutions of a graph that the text names twice more than once, and would ignore FROM if
    # the default graph is the union of all graphs.
    default, named = graphs(seen if seen.given else declared)
    if graph is not None and not dataset.given:
        default = [graph] if dataset.readable is None or graph.value in dataset.readable else []
    try:
        return store.query(
            _for_oxigraph(text, tokens, rules, now),
            base_iri=rules.settings.base_iri,
            use_default_graph_as_union=rules.settings.default_graph_as_union and default is None,
            default_graph=default,
            named_graphs=named,
        )
    except SyntaxError as error:
        from edge.sparql.explanation import explain  # only rejected texts need it

        raise ParsingFailed(explain("query", text, tokens, str(error))) from None
    except (RuntimeError, OSError, ValueError) as error:
        raise EvaluationFailed(f"The query could not be evaluated: {error}") from None


def _for_oxigraph(text: str, tokens: Sequence[Token], rules: QueryRules, now: int) -> str:
    """Return a checked query as text for Oxigraph. `now`: microseconds since 1970."""
    return edited(text, [*at_time(text, tokens, rules.settings.base_iri, now), *corrections(text, tokens)])


class EvaluationFailed(EdgeError):
    """The evaluation of a legal query failed, for example because a SERVICE did not answer."""

    error = "evaluation_failed"
    status_code = 500


def visible(dataset: Dataset, declared: Dataset = STORE_DATASET, *, union: bool = False) -> Dataset:
    """Return the dataset for a request: `dataset`, else the declared one, reduced to the client's readable graphs.

    `union`: the store's default graph is the union of all graphs. If the client may read only some graphs, the returned
    dataset names them. It then takes precedence over the text, so FROM, GRAPH and paths find no other graph.
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
    """Return the dataset of FROM and FROM NAMED, or the store's dataset without them, or if `dataset` replaces them."""
    if dataset.given or not has_word(tokens, "FROM"):
        return STORE_DATASET
    names = Names(read_prologue(text, tokens, 0)[0], rules.settings.base_iri).declared()
    default: list[str] = []
    named: list[str] = []
    # FROM is legal only in the head of a query, so a scan of all tokens finds no others.
    for index, token in enumerate(tokens):
        if token.word() == "FROM":
            is_named = tokens[index + 1].word() == "NAMED"
            iri = names.iri(tokens[index + 1 + is_named].text).value
            (named if is_named else default).append(iri)
    return Dataset(tuple(default), tuple(named))


def graphs(dataset: Dataset) -> tuple[list[_DefaultGraph] | None, list[ox.NamedNode | ox.BlankNode] | None]:
    """Return the dataset in Oxigraph's form. Raises `ParsingFailed`.

    A request that names graphs of one kind leaves the other kind empty (SPARQL 1.1 Protocol, 2.1.4).
    """
    if not dataset.given:
        return None, None
    limited = dataset.readable is not None
    try:
        return (
            [
                ox.DefaultGraph() if limited and iri == DEFAULT_GRAPH else ox.NamedNode(iri)
                for iri in dict.fromkeys(dataset.default_graphs or ())
            ],
            [ox.NamedNode(iri) for iri in dict.fromkeys(dataset.named_graphs or ())],
        )
    except ValueError as error:
        raise ParsingFailed(f"A graph of the dataset is not an absolute IRI: {error}") from None
