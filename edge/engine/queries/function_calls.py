"""Function calls in the text of a request: reject unknown functions, and replace calls of NOW by constants.

An IRI can name a function (SPARQL 1.1 Query, 17.6); the specification leaves the effect of an unknown one open.
Oxigraph fails when it evaluates such a call, and whether it does depends on the data. The engine always
rejects the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edge.engine.operators.now import NOW_FUNCTION, date_time
from edge.engine.operators.oxigraph_functions import UnsupportedConstruct, question
from edge.engine.sparql.repeated_patterns import Edit
from edge.engine.sparql.terms_text import Names
from edge.engine.store.terms import XSD
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import closing
from edge.sparql.algebra import Call, Reference, Variable
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token, built_in_calls, named_calls, read_prologue

_ANY: Final = Reference(Variable("any"))
_BASE: Final = "urn:x-edge:"
"""Base IRI for the check of a call; no relative IRI is resolved with it."""


def check_calls(text: str, tokens: Sequence[Token], names: Names) -> None:
    """Reject unknown functions and wrong numbers of arguments. Raises `ParsingFailed`.

    `text`: the whole request, for line and column.

    Calls within SERVICE are not checked: the remote endpoint may have other functions.
    """
    called = list(named_calls(tokens))
    services = list(_services(tokens)) if called else []
    for index in called:
        if any(index in service for service in services):
            continue
        function = names.declared().iri(tokens[index].text)
        arguments = _count(tokens, index + 1)
        if function == NOW_FUNCTION:
            if arguments:
                problem = f"{function} takes no arguments, here it has {arguments}"
                raise ParsingFailed(Diagnosis(tokens[index].start, problem, f"Write {function}().").message(text))
            continue
        try:
            question(Call("", (_ANY,) * arguments, function), _BASE)
        except UnsupportedConstruct:
            # A cast takes one argument. Oxigraph's error does not tell the number from the name.
            problem = f"{function} is not a function of {arguments} argument{'s' * (arguments != 1)}"
            remedy = f"Supported: the functions of SPARQL 1.1, casts to XSD datatypes and {NOW_FUNCTION}()."
            raise ParsingFailed(Diagnosis(tokens[index].start, problem, remedy).message(text)) from None


def at_time(text: str, tokens: Sequence[Token], base_iri: str, now: int) -> Iterator[Edit]:
    """Yield the edits that replace calls of the current time by a constant. `now`: microseconds since 1970.

    All calls in one execution return the same value (SPARQL 1.1 Query, 17.4.5.1). The constant is a cast of a literal,
    because a cast is legal wherever a call is.
    """
    calls = dict.fromkeys(built_in_calls(tokens, "NOW"), f'<{XSD}dateTime>("{date_time(now)}")')
    names: Names | None = None
    for index in named_calls(tokens):
        names = names or Names(read_prologue(text, tokens, 0)[0], base_iri)
        if names.declared().iri(tokens[index].text) == NOW_FUNCTION and tokens[index + 2].text == ")":
            calls[index] = f'<{XSD}integer>("{now}")'
    for index, constant in calls.items():
        yield tokens[index].start, tokens[index + 2].end, constant


def _services(tokens: Sequence[Token]) -> Iterator[range]:
    """Yield the token indexes of each SERVICE."""
    for index, token in enumerate(tokens):
        if token.word() == "SERVICE":
            opening = next(i for i in range(index, len(tokens)) if tokens[i].text == "{")
            yield range(index, closing(tokens, opening))


def _count(tokens: Sequence[Token], opening: int) -> int:
    """Return the number of arguments between the parentheses that open at token `opening`."""
    end = closing(tokens, opening)
    if end == opening + 1:
        return 0
    depth = commas = 0
    for token in tokens[opening:end]:
        if token.kind == "punct":
            depth += (token.text in "([{") - (token.text in ")]}")
            commas += token.text == "," and depth == 1
    return commas + 1
