"""SPARQL texts of requests: the functions of `edge.sparql`, with errors of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from edge.protocol.errors import LimitExceeded, ParsingFailed
from edge.sparql import tokens
from edge.sparql.errors import LimitOfText, SparqlError

P = ParamSpec("P")
T = TypeVar("T")


def reported(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with `ParsingFailed` and `LimitExceeded` in place of errors of `edge.sparql`."""

    @wraps(function)
    def reporting(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except LimitOfText as error:
            raise LimitExceeded(str(error)) from None
        except SparqlError as error:
            raise ParsingFailed(str(error)) from None

    return reporting


tokenize: Final = reported(tokens.tokenize)
closing: Final = reported(tokens.closing)
