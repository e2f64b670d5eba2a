"""SERVICE clauses in queries of the history, which query a live graph (SPARQL 1.1 Federated Query).

The pattern of a SERVICE clause is sent to the gateway unchanged, and its solutions replace the clause like a VALUES
block. The clauses are extracted from the text before parsing, because the algebra does not keep source positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from edge.sparql.errors import SparqlError
from edge.sparql.tokens import Token, closing, tokenize
from spark_offload.errors import GatewayRefused, QueryRefused
from spark_offload.live import GatewayEndpoint
from spark_offload.solutions import GatewaySolutions

Ask = Callable[[str, str], GatewaySolutions]
"""Function from the URL of an endpoint and a SELECT to its solutions. Raises `GatewayRefused`."""

_FORMS: Final = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")


@dataclass(frozen=True, slots=True)
class Answered:
    """A query whose SERVICE clauses are replaced with solutions."""

    text: str
    """The query with `VALUES ?NAME {}` in place of each SERVICE clause."""
    answers: Mapping[str, GatewaySolutions]
    """Solutions by these names. The query does not contain the names otherwise."""


def answered(query: str, ask: Ask) -> Answered:
    """Evaluate the SERVICE clauses of a query with `ask`. Raises `GatewayRefused`, `QueryRefused`."""
    try:
        tokens = tokenize(query)
    except SparqlError as error:
        raise QueryRefused(f"this is not a valid SPARQL query: {error}") from None
    form = next((token for token in tokens if token.word() in _FORMS), None)
    prologue = query[: form.start] if form else ""
    answers: dict[str, GatewaySolutions] = {}
    parts: list[str] = []
    done = place = 0
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if token.word() != "SERVICE":
            continue
        silent = place < len(tokens) and tokens[place].word() == "SILENT"
        address, first = place + silent, place + silent + 1
        if address >= len(tokens) or tokens[address].kind != "iri":
            _refuse("SERVICE without an address between < and >")
        last = _closing(tokens, first)
        pattern = query[tokens[first].start : tokens[last].end]
        name = next(name for name in _names() if name not in query and name not in answers)
        # With the prologue, because the pattern may use its prefixes.
        answers[name] = _asked(ask, tokens[address].text[1:-1], f"{prologue}SELECT * WHERE {pattern}", silent=silent)
        parts += [query[done : token.start], f"VALUES ?{name} {{}}"]
        done, place = tokens[last].end, last + 1
    return Answered("".join([*parts, query[done:]]), answers)


def unanswered(query: str) -> Answered:
    """Replace SERVICE clauses with empty solutions, for the analysis of a query. Raises `QueryRefused`."""
    return answered(query, lambda *_: GatewaySolutions((), ()))


def among(gateways: Iterable[GatewayEndpoint]) -> Ask:
    """Return a function that queries only these gateways.

    Queries may come from untrusted sources; without this list their URLs could reach any server (SSRF).
    """
    known = {gateway.url: gateway for gateway in gateways}

    def ask(address: str, query: str) -> GatewaySolutions:
        if address not in known:
            allowed = ", ".join(f"<{url}>" for url in known) or "none"
            raise QueryRefused(f"SERVICE <{address}> is not allowed; gateways allowed with --live URL: {allowed}")
        return known[address].select(query)

    return ask


def _asked(ask: Ask, address: str, query: str, *, silent: bool) -> GatewaySolutions:
    """Query one gateway. With SILENT, a failure yields one solution without bindings (section 2.3)."""
    try:
        return ask(address, query)
    except GatewayRefused:
        if not silent:
            raise
        return GatewaySolutions((), ((),))


def _closing(tokens: list[Token], first: int) -> int:
    """Return the index of the brace that closes the one at `first`. Raises `QueryRefused`."""
    try:
        if first < len(tokens) and tokens[first].text == "{":
            return closing(tokens, first)
    except SparqlError:
        pass
    return _refuse("SERVICE without a pattern between { and }")


def _names() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"service{number}"


def _refuse(what: str) -> NoReturn:
    raise QueryRefused(f"{what} is not supported")
