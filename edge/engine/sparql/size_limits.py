"""Size limits of queries: longer or deeper ones would crash the process or overflow Python's stack.

They are counted on tokens, before the text is parsed. Where the count is not exact, it is too high.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from edge.engine.sparql.repeated_patterns import LARGE, without_repeated
from edge.engine.store.step_budget import MAX_STEPS
from edge.protocol.errors import LimitExceeded
from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token

MAX_OPERATORS: Final = 1000
"""Operators, triples and clauses of one query. From about 2,500 Oxigraph overflows the stack and crashes."""

MAX_LEVELS: Final = 100
"""Levels of one query. A level takes up to 8 of Python's 1,000 frames. A clause that encloses everything before it
counts as one: an OPTIONAL, a MINUS, a BIND, a computed column, an operator.
"""

MAX_ARGUMENTS: Final = 1000
"""Arguments of one function call. Oxigraph takes seconds to parse a call with 100,000."""

_LEVELS: Final = {"group": 2, "query": 5, "list": 10}
"""Levels of a bracket, if not one. A sub-query or a path may double the time of planning."""

_PLANNING: Final = 14
"""Units of planning (see `_planning`) that count as one step: 0.5 microseconds."""

_CLAUSES: Final = frozenset(
    {"UNION", "OPTIONAL", "MINUS", "FILTER", "BIND", "AS", "GRAPH", "EXISTS", "SELECT", "VALUES"}
)
_AROUND: Final = frozenset({"OPTIONAL", "MINUS", "BIND"})
_OPERATORS: Final = frozenset({*"+-*/|^!?=<>.;", "!=", "<=", ">=", "&&", "||"})
_TERMS: Final = frozenset({"var", "iri", "name", "string", "number", "blank"})
_WORDS_AS_TERMS: Final = frozenset({"a", "true", "false"})
_PATH: Final = frozenset("/|^*?!")


def check_size(text: str, tokens: Sequence[Token], max_steps: int = MAX_STEPS) -> None:
    """Reject a query, or the WHERE clause of an update, that is too large. Raises `LimitExceeded`.

    `text`: the whole request, for line and column. `max_steps`: limit of the steps for planning its joins. Repetitions
    of a pattern in a basic graph pattern of a large text do not count (`repeated`).
    """
    measure = measured(tokens)
    if measure.operators > MAX_OPERATORS:
        place = _first(tokens, lambda so_far: so_far.operators > MAX_OPERATORS)
        _refuse(text, place, f"More than {MAX_OPERATORS} operators and triples in one query", "Split it.")
    # A search for repetitions takes longer than the measurement, so it only happens if it can matter.
    if measure.planning > max_steps * _PLANNING and len(tokens) >= LARGE:
        measure = measured(without_repeated(tokens))
    if measure.planning > max_steps * _PLANNING:
        problem = (
            f"More than {max_steps} steps (engine.max_steps) to plan the joins: up to {measure.joined} triple "
            "patterns, groups and OPTIONALs are joined in one group"
        )
        _refuse(text, measure.largest_group, problem, "Split it, or put parts of it into sub-queries.")
    if measure.arguments > MAX_ARGUMENTS:
        problem = f"More than {MAX_ARGUMENTS} arguments in one function call"
        _refuse(text, measure.largest_call, problem, "Nest several calls.")
    if measure.levels > MAX_LEVELS:
        place = _first(tokens, lambda so_far: so_far.current_levels() > MAX_LEVELS)
        problem = (
            f"The query is nested deeper than {MAX_LEVELS} levels: groups, brackets, and OPTIONAL, MINUS, BIND and "
            "operators in a row"
        )
        _refuse(text, place, problem, "Split it.")


def _refuse(text: str, position: int, problem: str, remedy: str) -> NoReturn:
    raise LimitExceeded(Diagnosis(position, problem, remedy).message(text))


def _first(tokens: Sequence[Token], exceeded: Callable[[Measure], bool]) -> int:
    """Return the position of the token at which a limit is exceeded. Takes one more pass over a text to reject."""
    measure = Measure()
    for token in tokens:
        measure.read(token)
        if exceeded(measure):
            return token.start
    return tokens[-1].end


def measured(tokens: Iterable[Token]) -> Measure:
    """Return the size of a text."""
    measure = Measure()
    for token in tokens:
        measure.read(token)
    measure.end()
    return measure


@dataclass(slots=True)
class _Bracket:
    """An open bracket, or the query itself."""

    kind: Literal["query", "group", "properties", "list", "expression", "data"]
    """"properties": of a blank node; "list": a collection or a path; "data": of VALUES."""
    clause: str = ""
    """Keyword that the next bracket in it belongs to."""
    begins: bool = False
    """Whether the next term begins a triple."""
    joined: int = 0
    nested: int = 0
    """Elements that the group which has just ended adds to `joined`, unless UNION follows."""
    path: bool = False
    """Whether a list is a path."""
    predicates: int = 0
    """IRIs and brackets in a list. Each counts as two triples in a collection, and as none in a path."""
    row: int = 0
    """Operators, or clauses around everything before them, in a row."""
    longest: int = 0
    """Longest row so far."""
    deepest: int = 0
    """Levels of the deepest content."""
    commas: int = 0
    """Commas between expressions."""
    start: int = 0
    """Position in the text."""
    outside: int = 0
    """Levels around the bracket."""

    def levels(self) -> int:
        return max(self.longest, self.row) + self.deepest


class Measure:
    """Size of a text, measured token by token."""

    def __init__(self) -> None:
        self.operators = 0
        self.joined = 0
        """Elements joined in the largest group."""
        self.planning = 0
        """Planning time of all groups that are not merged into another one."""
        self.levels = 0
        self.arguments = 0
        """Arguments of the largest call."""
        self.largest_group = 0
        """Position of the group in which most elements are joined."""
        self.largest_call = 0
        """Position of the bracket with most arguments."""
        self._open = [_Bracket("query")]

    def read(self, token: Token) -> None:
        """Process the next token."""
        top = self._open[-1]
        if top.nested:
            if token.word() == "UNION":
                top.joined += 1
            else:
                self._merge(top)
            top.nested = 0
        if token.kind in _TERMS or token.text in _WORDS_AS_TERMS:
            _term(top, token)
        elif token.kind == "word":
            self._word(top, token.word())
        elif token.text in ("{", "[", "("):
            self._open.append(_inner(top, token.text))
            self._open[-1].start = token.start
            self._open[-1].outside = self._around(top) + max(top.longest, top.row)
        elif token.text in ("}", "]", ")"):
            self._close()
        else:
            self._operator(top, token.text)

    def current_levels(self) -> int:
        """Return the levels at the last token that was read."""
        top = self._open[-1]
        return self._around(top) + top.levels()

    def _around(self, bracket: _Bracket) -> int:
        """Return the levels of a bracket itself and around it."""
        return bracket.outside + _LEVELS.get(bracket.kind, 1) if bracket is not self._open[0] else 0

    def end(self) -> None:
        """Close all open brackets."""
        while len(self._open) > 1:
            self._close()
        self.levels = self._open[0].levels()

    def _word(self, top: _Bracket, word: str) -> None:
        self.operators += word in _CLAUSES
        if word == "SELECT":
            top.kind = "query"
        elif word == "WHERE" or (top.kind == "query" and word not in ("VALUES", "CONSTRUCT")):
            top.clause = ""
        else:
            top.clause = word
            top.begins = False
            top.row += word in _AROUND or (word == "IN" and top.kind == "expression")
            top.joined += top.kind == "group" and word in ("OPTIONAL", "SERVICE", "VALUES")

    def _operator(self, top: _Bracket, text: str) -> None:
        triples = top.kind in ("group", "properties")
        if text == ",":
            self.operators += triples
            top.joined += triples
        elif text in _OPERATORS and top.kind != "data":
            self.operators += 1
            top.joined += text == "/" and top.kind != "expression"
            top.row += top.kind == "expression"
            if text in _PATH and top.kind == "list":
                top.path = True
        if text in (".", ";"):
            top.begins = triples
        elif text in (",", "&&", "||") and top.kind == "expression":
            top.commas += text == ","
            top.longest = max(top.longest, top.row)
            top.row = 0

    def _merge(self, bracket: _Bracket) -> None:
        """Merge the group that has just ended into the group around it."""
        bracket.joined += bracket.nested
        self.planning -= _planning(bracket.nested)

    def _close(self) -> None:
        if len(self._open) == 1:
            return
        closed = self._open.pop()
        top = self._open[-1]
        # The list of IN is not a function call.
        if top.clause != "IN" and closed.commas >= self.arguments:
            self.arguments, self.largest_call = closed.commas + 1, closed.start
        self._merge(closed)
        top.deepest = max(top.deepest, closed.levels() + _LEVELS.get(closed.kind, 1))
        if closed.kind in ("list", "properties"):
            top.joined += closed.joined + (0 if closed.path else 2 * closed.predicates)
            return
        # The template of CONSTRUCT is not joined.
        if closed.kind == "group" and top.clause != "CONSTRUCT":
            if closed.joined > self.joined:
                self.joined, self.largest_group = closed.joined, closed.start
            self.planning += _planning(closed.joined)
        if closed.kind in ("group", "query") and top.kind == "group" and top.clause in ("", "GRAPH"):
            top.nested = max(1, closed.joined)
        if top.kind == "query" and closed.kind == "expression":
            top.row += 1
        # The first bracket after VALUES may contain its variables; its data follows.
        if top.clause != "VALUES" or closed.kind == "data":
            top.clause = ""
        top.begins = top.kind == "group"


def _planning(joined: int) -> int:
    """Return the planning time of a group in Oxigraph, without unit: 64 patterns take 0.1 s, 128 take 1.8 s."""
    return joined**4


def _inner(top: _Bracket, text: str) -> _Bracket:
    """Return the bracket that begins here."""
    if text == "{":
        return _Bracket("data" if top.clause == "VALUES" else "group", begins=True)
    if text == "[":
        _item(top)
        return _Bracket("properties", begins=True)
    if top.kind == "data":
        return _Bracket("data")
    if top.clause or top.kind in ("expression", "query"):
        return _Bracket("expression")
    top.predicates += top.kind == "list"
    return _Bracket("list")


def _term(top: _Bracket, token: Token) -> None:
    """Count a term."""
    if top.kind == "list" and (token.kind in ("iri", "name") or token.text == "a"):
        top.predicates += 1
    elif top.kind == "list":
        _item(top)
    elif top.begins and top.kind in ("group", "properties"):
        top.joined += 1
        top.begins = False


def _item(top: _Bracket) -> None:
    """Count an item, which is two triples in a collection."""
    top.joined += 2 * (top.kind == "list")
