"""Calls in the text of a request: functions that nobody has are refused, and the time stands where it is asked for.

SPARQL 1.1 Query, 17.6, lets an IRI name a function, and leaves open what a call of an unknown one is. Oxigraph fails
when it evaluates one, and whether it comes to that depends on the data. Here the text is refused, whatever the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edge.engine.operators.now import NOW_FUNCTION, date_time
from edge.engine.operators.oxigraph_functions import Unsupported, question
from edge.engine.sparql.algebra import Call, Reference, Variable
from edge.engine.sparql.repeated_patterns import Edit
from edge.engine.sparql.terms_text import Names
from edge.engine.store.terms import XSD
from edge.protocol.errors import ParsingFailed
from edge.protocol.syntax import Token, built_in_calls, closing, named_calls, read_prologue

_ANY: Final = Reference(Variable("any"))
_BASE: Final = "urn:x-edge:"
"""Nothing is resolved against it."""


def check_calls(tokens: Sequence[Token], names: Names) -> None:
    """Refuse functions that do not exist, and too many or too few arguments. Raises `ParsingFailed`.

    What stands in a SERVICE is for another endpoint to judge.
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
                raise ParsingFailed(f"{function} takes no arguments, here it has {arguments}: write {function}()")
            continue
        try:
            question(Call("", (_ANY,) * arguments, function), _BASE)
        except Unsupported as error:
            raise ParsingFailed(
                f"No such call: {error}. There are the functions of SPARQL 1.1, casts to XSD datatypes "
                f"and {NOW_FUNCTION}()"
            ) from None


def at_time(text: str, tokens: Sequence[Token], base_iri: str, now: int) -> Iterator[Edit]:
    """The constants that stand for the calls of a query that ask for the time. `now`: microseconds since 1970.

    All calls in one execution give the same value (17.4.5.1). A cast stands wherever a call may.
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
    """The indexes of the tokens of each SERVICE."""
    for index, token in enumerate(tokens):
        if token.word() == "SERVICE":
            opening = next(i for i in range(index, len(tokens)) if tokens[i].text == "{")
            yield range(index, closing(tokens, opening))


def _count(tokens: Sequence[Token], opening: int) -> int:
    """The number of arguments in the brackets that open there."""
    end = closing(tokens, opening)
    if end == opening + 1:
        return 0
    depth = commas = 0
    for token in tokens[opening:end]:
        if token.kind == "punct":
            depth += (token.text in "([{") - (token.text in ")]}")
            commas += token.text == "," and depth == 1
    return commas + 1
