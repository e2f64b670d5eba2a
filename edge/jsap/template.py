"""Templates of SPARQL texts, cut once at their forced variables. Filling in joins the pieces.

A forced variable is a constant wherever its name occurs in the text. Where SPARQL requires a variable, the replacement
has the same meaning:

| in the text                          | with the term in it                                              |
|--------------------------------------|------------------------------------------------------------------|
| a pattern, a template, an expression | the term                                                         |
| `SELECT ?x`                          | `(term AS ?x)`: it stays in the results                          |
| `SELECT ?x` of a sub-select          | nothing: around it the variable is the term already              |
| `GROUP BY ?x`, `ORDER BY ?x`         | `(term)`                                                         |
| `BOUND(?x)`                          | `true`                                                           |
| `... AS ?x`, `VALUES ?x`             | refused: the text gives the variable a value of its own          |
| `MINUS { ?x ... }`                   | refused where nothing else ties it to the pattern before it      |
| a blank node outside of templates    | refused: in a pattern a blank node is a variable                 |

Grammar: SPARQL 1.1 Query Language, section 19.8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge.jsap.bindings import Term, written
from edge.protocol.syntax import closing, tokenize
from edge.sparql.tokens import Token, variables


class Edit(NamedTuple):
    """Replacement of a part of the text: `before`, the term of a variable, `after`."""

    start: int
    end: int
    before: str
    variable: str | None
    after: str


class Refusal(NamedTuple):
    """A position in the text where a forced variable is not allowed."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class TextTemplate:
    """A text with slots for terms."""

    head: str
    slots: tuple[tuple[str, str], ...]
    """Variables and the texts that follow them, in order."""
    blanks: str

    def filled(self, terms: Mapping[str, Term]) -> str:
        """Return the text with a term for each forced variable. Raises `KeyError` for a missing one."""
        texts = {name: written(term, self.blanks) for name, term in terms.items()}
        parts = [self.head]
        for variable, text in self.slots:
            parts.append(texts[variable])
            parts.append(text)
        return "".join(parts)


def cut(prologue: str, text: str, edits: Sequence[Edit], blanks: str) -> TextTemplate:
    """Return the template of a text with a prologue before it."""
    pieces: list[str] = [prologue]
    slots: list[str] = []
    position = 0
    for edit in edits:
        pieces[-1] += text[position : edit.start] + edit.before
        if edit.variable is not None:
            slots.append(edit.variable)
            pieces.append(edit.after)
        position = edit.end
    pieces[-1] += text[position:]
    return TextTemplate(pieces[0], tuple(zip(slots, pieces[1:], strict=True)), blanks)


def original(edits: Sequence[Edit], position: int, lengths: Mapping[str, int]) -> int:
    """Return the position in the text for one in the filled text without prologue; `lengths` are those of the terms."""
    shift = 0
    for edit in edits:
        inserted = len(edit.before) + len(edit.after) + (lengths[edit.variable] if edit.variable else 0)
        if position - shift < edit.start:
            break
        if position - shift < edit.start + inserted:
            return edit.start
        shift += inserted - (edit.end - edit.start)
    return position - shift


def blank_prefix(tokens: Sequence[Token]) -> str:
    """Return a prefix that no label of a blank node in the text has."""
    # Otherwise a blank node of a term could be the same node as one of the text.
    labels = [token.text[2:] for token in tokens if token.kind == "blank"]
    prefix = "b"
    while any(label.startswith(prefix) for label in labels):
        prefix += "b"
    return prefix


def edits(text: str, forced: Mapping[str, str]) -> tuple[list[Edit], list[Refusal], list[Token]]:
    """Return edits, refusals and tokens of a text. `forced`: the type of each variable.

    Raises `ParsingFailed` for an invalid token.
    """
    tokens = tokenize(text)
    cutter = _Cutter(tokens, forced)
    cutter.run()
    return cutter.edits, cutter.refusals, tokens


_CLAUSES: Final = {"SELECT": "select", "BY": "by", "VALUES": "values"}
_ENDS: Final = frozenset({"WHERE", "FROM", "HAVING", "LIMIT", "OFFSET"})


@dataclass(slots=True)
class _Level:
    """State within a pair of brackets: the current clause."""

    bracket: str
    clause: str = ""
    projected: int = 0
    """Number of remaining columns of the SELECT of this level so far."""
    dropped: Edit | None = None
    """Last removed column."""


class _Cutter:
    """Single pass over the tokens that tracks the clause of each bracket."""

    def __init__(self, tokens: Sequence[Token], forced: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._forced = forced
        self._templates = list(_templates(tokens))
        self._levels = [_Level("")]
        self.edits: list[Edit] = []
        self.refusals: list[Refusal] = []

    def run(self) -> None:
        for index, token in enumerate(self._tokens):
            if token.kind == "var" and token.text[1:] in self._forced:
                self._forced_variable(index, token.text[1:])
            elif token.kind == "var":
                self._levels[-1].projected += self._levels[-1].clause == "select"
            elif token.kind == "word":
                self._word(index, token.word())
            elif token.kind == "punct":
                self._bracket(token.text)

    def _word(self, index: int, word: str) -> None:
        level = self._levels[-1]
        if word in _CLAUSES:
            level.clause = _CLAUSES[word]
            level.projected, level.dropped = 0, None
        elif word in _ENDS:
            self._end_clause()
        elif word == "MINUS":
            self._minus(index)

    def _bracket(self, text: str) -> None:
        level = self._levels[-1]
        if text == "{":
            self._end_clause()
            self._levels.append(_Level(text))
        elif text == "(":
            level.projected += level.clause == "select"
            self._levels.append(_Level(text, "values" if level.clause == "values" else ""))
        # `SELECT *` keeps all columns, so that none has to be added.
        elif text == "*" and level.clause == "select":
            level.projected += 1
        elif text in ("}", ")") and len(self._levels) > 1:
            self._levels.pop()

    def _end_clause(self) -> None:
        """End a SELECT clause, if one is open. A sub-select must have a column."""
        level = self._levels[-1]
        if level.clause == "select" and level.dropped is not None and not level.projected:
            # A sub-select needs at least one column: select a constant under an unused name.
            edit = level.dropped
            unused = _unused(self._tokens)
            self.edits[self.edits.index(edit)] = edit._replace(before=f" (true AS ?{unused}) ")
        level.clause, level.dropped = "", None

    def _forced_variable(self, index: int, name: str) -> None:
        token, level = self._tokens[index], self._levels[-1]
        before = self._tokens[index - 1] if index else None
        if level.clause == "values" or (before is not None and before.word() == "AS"):
            reason = f"?{name} cannot be forced: the text gives it a value of its own here"
            self.refusals.append(Refusal(token.start, reason))
        elif self._forced[name] == "bnode" and not any(index in template for template in self._templates):
            reason = f"?{name} cannot be a blank node here: in a pattern that is a variable, which matches anything"
            self.refusals.append(Refusal(token.start, reason))
        elif level.clause == "select":
            self._column(token, level, name)
        elif level.clause == "by":
            self.edits.append(Edit(token.start, token.end, " (", name, ") "))
        # BOUND takes a variable only (section 17.4.1.1), and a forced one is always bound.
        elif index > 1 and before is not None and before.text == "(" and self._tokens[index - 2].word() == "BOUND":
            end = self._tokens[min(index + 1, len(self._tokens) - 1)].end
            self.edits.append(Edit(self._tokens[index - 2].start, end, " true ", None, ""))
        else:
            # Blanks keep the term separate from the neighbouring tokens.
            self.edits.append(Edit(token.start, token.end, " ", name, " "))

    def _column(self, token: Token, level: _Level, name: str) -> None:
        if len(self._levels) == 1:
            level.projected += 1
            self.edits.append(Edit(token.start, token.end, " (", name, f" AS ?{name}) "))
        else:
            level.dropped = Edit(token.start, token.end, " ", None, "")
            self.edits.append(level.dropped)

    def _minus(self, index: int) -> None:
        """Check a MINUS. It removes solutions that agree in a shared variable, so one must be left."""
        if index + 1 >= len(self._tokens) or self._tokens[index + 1].text != "{":
            return
        within = set(variables(self._tokens[index + 1 : closing(self._tokens, index + 1)]))
        forced = within & self._forced.keys()
        left = set(variables(self._tokens[_opening(self._tokens, index) : index])) - self._forced.keys()
        if forced and not within & left:
            name = min(forced)
            reason = f"?{name} cannot be forced: this MINUS shares no other variable with the patterns before it"
            self.refusals.append(Refusal(self._tokens[index].start, f"{reason}; write FILTER NOT EXISTS"))


def _templates(tokens: Sequence[Token]) -> Iterator[range]:
    """Yield the token ranges of triple templates: there a blank node is a new node."""
    for index, token in enumerate(tokens[:-1]):
        if token.word() in ("INSERT", "CONSTRUCT"):
            opening = index + 2 if tokens[index + 1].word() == "DATA" else index + 1
            if opening < len(tokens) and tokens[opening].text == "{":
                yield range(opening, closing(tokens, opening))


def _opening(tokens: Sequence[Token], index: int) -> int:
    """Return the index of the brace of the group around a token."""
    depth = 0
    for position in range(index - 1, -1, -1):
        depth += {"}": 1, "{": -1}.get(tokens[position].text, 0)
        if depth < 0:
            return position
    return 0


def _unused(tokens: Sequence[Token]) -> str:
    """Return a variable name that does not occur in the text."""
    names: Collection[str] = set(variables(tokens))
    name = "some"
    while name in names:
        name += "_"
    return name
