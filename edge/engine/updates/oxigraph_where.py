"""The WHERE clauses of updates that have no operators: Oxigraph evaluates them on the writer's mirror."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyoxigraph as ox

from edge.engine.queries.cost_estimate import is_small, outline
from edge.engine.queries.evaluator import World
from edge.engine.queries.oxigraph_queries import evaluate
from edge.engine.queries.result_table import ResultTable, Text, decoded, written
from edge.engine.updates.attempt import ON_WRITER, LongUpdate, Mode
from edge.engine.updates.update_plan import OxigraphWhere
from edge.protocol.errors import ParsingFailed, UpdateFailed
from edge.protocol.results import Term
from edge.protocol.syntax import tokenize

Rows = tuple[Sequence[str], Iterable[Sequence[Term | None]]]
"""Names of variables, and what they are bound to in each solution."""


def oxigraph_rows(
    where: OxigraphWhere, bindings: Mapping[str, Term], world: World, now: int, mode: Mode = Mode.WHOLE
) -> Rows:
    """The solutions, in the state that the mirror shows. `now` in microseconds since 1970.

    What is not sure to be done soon is done in a forked process, for so long and no longer. Raises `EdgeError`;
    `LongUpdate` where others wait and it is not sure to be done soon.
    """
    rules = world.rules
    text = f"{where.prologue}SELECT * WHERE {_bound_text(where.group, bindings)}"
    tokens = tokenize(text)
    whole = rules.union_default_graph or where.graph is not None
    small = is_small(outline(text, tokens, rules.base_iri), world.graph, where.dataset, whole=whole)
    if mode in ON_WRITER and not (small and world.mirror.ready):
        raise LongUpdate
    store = world.mirror.open()

    def solutions() -> ox.QuerySolutions:
        answer = evaluate(store, text, tokens, dataset=where.dataset, rules=rules, now=now, graph=where.graph)
        assert isinstance(answer, ox.QuerySolutions)  # noqa: S101
        return answer

    def lines() -> list[bytes]:
        return written(solutions(), ox.QueryResultsFormat.TSV, Text(rules, rules.max_solutions + 1))

    try:
        if small:
            answer = solutions()
            return [variable.value for variable in answer.variables], _read(answer)
        if mode is Mode.OUTSIDE:
            header, *rows = lines()
            return ResultTable(header, {}).variables, decoded(header, rows)
        header, *rows = world.apart.begin(lines, rules.evaluation_timeout, "engine.evaluation_timeout").result()
    except ParsingFailed as error:
        if not bindings:
            raise
        raise UpdateFailed(
            "The forced bindings do not fit the WHERE clause (a bound variable can be neither selected nor "
            f"assigned, and a literal names no graph): {error.description}"
        ) from None
    return ResultTable(header, {}).variables, decoded(header, rows)


def _read(answer: ox.QuerySolutions) -> Iterator[Sequence[Term | None]]:
    try:
        yield from map(tuple, answer)
    except (RuntimeError, OSError) as error:
        raise UpdateFailed(f"The WHERE clause could not be evaluated: {error}") from None


def _bound_text(group: str, bindings: Mapping[str, Term]) -> str:
    """A group with forced bindings written as constants. A term is one token: no value can be more than a value.

    Raises `UpdateFailed` for a blank node, which cannot be written, and for a triple term, which is several tokens.
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
