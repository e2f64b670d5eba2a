"""SERVICE clauses in queries of the history, which query a live graph (SPARQL 1.1 Federated Query).

The pattern of a SERVICE clause is sent to the gateway unchanged, and its solutions replace the clause like a VALUES
block. The clauses are extracted from the text before parsing, because rdflib's algebra does not keep source positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from spark_offload.errors import GatewayRefused, QueryRefused
from spark_offload.live import Gateway, Solutions

Ask = Callable[[str, str], Solutions]
"""Function from the URL of an endpoint and a SELECT to its solutions. Raises `GatewayRefused`."""

_TOKENS: Final = re.compile(
    r"""(?P<comment>\#[^\n\r]*)
    |(?P<text>\"{3}(?:\"{0,2}(?:[^\"\\]|\\.))*\"{3}|'{3}(?:'{0,2}(?:[^'\\]|\\.))*'{3}
             |\"(?:[^\"\\\n\r]|\\.)*\"|'(?:[^'\\\n\r]|\\.)*')
    |(?P<iri><[^<>"{}|^`\\\x00-\x20]*>)
    |(?P<name>[?$]\w+|@[\w-]+|_:[\w.-]+|[\w.-]*:(?:[\w.:-]|%[0-9A-Fa-f]{2}|\\.)*)
    |(?P<word>\w+)
    |(?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
_FORMS: Final = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")


@dataclass(frozen=True, slots=True)
class Answered:
    """A query whose SERVICE clauses are replaced with solutions."""

    text: str
    """The query with `VALUES ?NAME {}` in place of each SERVICE clause."""
    answers: Mapping[str, Solutions]
    """Solutions by these names. The query does not contain the names otherwise."""


def answered(query: str, ask: Ask) -> Answered:
    """Evaluate the SERVICE clauses of a query with `ask`. Raises `GatewayRefused`, `QueryRefused`."""
    tokens = list(_TOKENS.finditer(query))
    tokens = [token for token in tokens if token.lastgroup != "comment"]
    form = next((token for token in tokens if _is(token, *_FORMS)), None)
    prologue = query[: form.start()] if form else ""
    answers: dict[str, Solutions] = {}
    parts: list[str] = []
    done = place = 0
    while place < len(tokens):
        token = tokens[place]
        place += 1
        if not _is(token, "SERVICE"):
            continue
        silent = _is(tokens[place], "SILENT") if place < len(tokens) else False
        address, first = place + silent, place + silent + 1
        if address >= len(tokens) or tokens[address].lastgroup != "iri":
            _refuse("SERVICE without an address between < and >")
        last = _closing(tokens, first)
        pattern = query[tokens[first].start() : tokens[last].end()]
        name = next(name for name in _names() if name not in query and name not in answers)
        answers[name] = _asked(ask, tokens[address][0][1:-1], f"{prologue}SELECT * WHERE {pattern}", silent=silent)
        parts += [query[done : token.start()], f"VALUES ?{name} {{}}"]
        done, place = tokens[last].end(), last + 1
    return Answered("".join([*parts, query[done:]]), answers)


def unanswered(query: str) -> Answered:
    """Replace SERVICE clauses with empty solutions, for the analysis of a query. Raises `QueryRefused`."""
    return answered(query, lambda *_: Solutions((), ()))


def among(gateways: Iterable[Gateway]) -> Ask:
    """Return a function that queries only these gateways.

    Queries may come from untrusted sources; without this list their URLs could reach any server (SSRF).
    """
    known = {gateway.url: gateway for gateway in gateways}

    def ask(address: str, query: str) -> Solutions:
        if address not in known:
            allowed = ", ".join(f"<{url}>" for url in known) or "none"
            raise QueryRefused(f"SERVICE <{address}> is not allowed; gateways allowed with --live URL: {allowed}")
        return known[address].select(query)

    return ask


def _asked(ask: Ask, address: str, query: str, *, silent: bool) -> Solutions:
    """Query one gateway. With SILENT, a failure yields one solution without bindings (section 2.3)."""
    try:
        return ask(address, query)
    except GatewayRefused:
        if not silent:
            raise
        return Solutions((), ((),))


def _closing(tokens: list[re.Match[str]], first: int) -> int:
    """Return the index of the brace that closes the one at `first`. Raises `QueryRefused`."""
    depth = 0
    for place in range(first, len(tokens)):
        if tokens[place].lastgroup == "other":
            depth += {"{": 1, "}": -1}.get(tokens[place][0], 0)
        if depth == 0:
            break
    else:
        place = first
    if place == first:
        _refuse("SERVICE without a pattern between { and }")
    return place


def _is(token: re.Match[str], *words: str) -> bool:
    return token.lastgroup == "word" and token[0].upper() in words


def _names() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"service{number}"


def _refuse(what: str) -> NoReturn:
    raise QueryRefused(f"{what} is not supported")
