"""SERVICE in a query of the history: the live graph's part of it (SPARQL 1.1 Federated Query).

What stands between the braces is asked of the gateway as it is, and the answer takes its place, as VALUES would. It is
taken out of the text before that is parsed: rdflib does not know where in the text it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from spark_offload.errors import GatewayRefused, QueryRefused
from spark_offload.live import Gateway, Solutions

Ask = Callable[[str, str], Solutions]
"""From the address of an endpoint and a SELECT to what it finds. Raises `GatewayRefused`."""

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
    """A query without SERVICE."""

    text: str
    """With `VALUES ?NAME {}` in the place of each."""
    answers: Mapping[str, Solutions]
    """By these names, which are no variables of the query."""


def answered(query: str, ask: Ask) -> Answered:
    """Ask for what is inside each SERVICE. Raises `GatewayRefused`, `QueryRefused`."""
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
    """The query when nobody is asked: no SERVICE finds anything. Raises `QueryRefused`."""
    return answered(query, lambda *_: Solutions((), ()))


def among(gateways: Iterable[Gateway]) -> Ask:
    """Asks these gateways, and nobody else: a query may come from anywhere, and so may the addresses in it."""
    known = {gateway.url: gateway for gateway in gateways}

    def ask(address: str, query: str) -> Solutions:
        if address not in known:
            told = ", ".join(f"<{url}>" for url in known) or "none"
            raise QueryRefused(f"SERVICE <{address}> is none of the gateways that may be asked (--live URL): {told}")
        return known[address].select(query)

    return ask


def _asked(ask: Ask, address: str, query: str, *, silent: bool) -> Solutions:
    """SILENT: a gateway that does not answer has one solution, which binds nothing (section 2.3)."""
    try:
        return ask(address, query)
    except GatewayRefused:
        if not silent:
            raise
        return Solutions((), ((),))


def _closing(tokens: list[re.Match[str]], first: int) -> int:
    """The place of the brace that closes the one at `first`."""
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
    raise QueryRefused(f"{what} is not translated")
