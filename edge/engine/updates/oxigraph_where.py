"""Evaluation of WHERE clauses that our operators do not support: Oxigraph runs them on the writer's mirror."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyoxigraph as ox

from edge.engine.queries.cost_estimate import is_small, outline
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import WHOLE_LIMIT, evaluate
from edge.engine.queries.result_table import LimitedBuffer, ResultTable, decoded, written
from edge.engine.updates.update_attempt import LongUpdate, Mode
from edge.engine.updates.update_plan import OxigraphWhere
from edge.protocol.bag import Bag
from edge.protocol.errors import ParsingFailed, UpdateFailed
from edge.protocol.results import Term
from edge.protocol.syntax import tokenize

Rows = tuple[Sequence[str], Iterable[Sequence[Term | None]]]
"""Names of variables, and their values in each solution."""


def oxigraph_rows(
    where: OxigraphWhere, bindings: Mapping[str, Term], world: World, now: int, mode: Mode = Mode.WHOLE
) -> Rows:
    """Return the solutions for the state of the mirror. `now`: microseconds since 1970.

    An evaluation that may take long runs in a forked process with a time limit. Raises `EdgeError`, and `LongUpdate` if
    it may take long while other updates wait.
    """
    rules = world.rules
    text = f"{where.prologue}SELECT * WHERE {_bound_text(where.group, bindings)}"
    tokens = tokenize(text)
    whole = rules.settings.default_graph_as_union or where.graph is not None
    small = is_small(outline(text, tokens, rules.settings.base_iri), world.graph, where.dataset, whole=whole)
    if mode.on_writer and not (small and world.mirror.ready):
        raise LongUpdate
    store = world.mirror.open()

    def solutions() -> ox.QuerySolutions:
        answer = evaluate(store, text, tokens, dataset=where.dataset, rules=rules, now=now, graph=where.graph)
        assert isinstance(answer, ox.QuerySolutions)  # noqa: S101
        return answer

    def lines() -> list[bytes]:
        return written(solutions(), ox.QueryResultsFormat.TSV, LimitedBuffer(rules, rules.max_solutions + 1))

    try:
        if small:
            answer = solutions()
            return [variable.value for variable in answer.variables], _read(answer)
        if mode is Mode.OUTSIDE:
            header, *rows = lines()
            return ResultTable(header, Bag()).variables, decoded(header, rows)
        header, *rows = world.forked.begin(lines, rules.whole_timeout, WHOLE_LIMIT).result()
    except ParsingFailed as error:
        if not bindings:
            raise
        raise UpdateFailed(
            "The forced bindings do not fit the WHERE clause (a bound variable can be neither selected nor "
            f"assigned, and a literal names no graph): {error.description}"
        ) from None
    return ResultTable(header, Bag()).variables, decoded(header, rows)


def _read(answer: ox.QuerySolutions) -> Iterator[Sequence[Term | None]]:
    try:
        yield from map(tuple, answer)
    except (RuntimeError, OSError) as error:
        raise UpdateFailed(f"The WHERE clause could not be evaluated: {error}") from None


def _bound_text(group: str, bindings: Mapping[str, Term]) -> str:
    """Return a group with forced bindings as constants. A term is one token, so a value cannot inject SPARQL syntax.

    Raises `UpdateFailed` for a blank node, which has no SPARQL syntax, and for a triple term, which has several tokens.
    """
    if not bindings:
        return group
    pieces: list[str] = []
    position = 0
    for token in tokenize(group):
        name = token.text[1:]
        if token.kind == "var" and name in bindings:
            if isinstance(bindings[name], ox.BlankNode | ox.Triple):
                raise UpdateFailed(
                    f"?{name} is bound to a blank node or a triple term: that works in plain patterns (triples, GRAPH, "
                    "OPTIONAL) only"
                )
            pieces += (group[position : token.start], str(bindings[name]))
            position = token.end
    pieces.append(group[position:])
    return "".join(pieces)
