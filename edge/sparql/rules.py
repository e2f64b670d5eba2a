"""Rules of SPARQL 1.1 that its grammar does not express: on variables, aggregates, blank nodes and characters.

They are checked after Oxigraph has rejected a text and the grammar has found nothing, to explain the rejection. A text
that breaks none of them may break another rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from edge.sparql.diagnosis import Diagnosis
from edge.sparql.tokens import Token

_AGGREGATES: Final = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"})
_RDF12: Final = frozenset({"<<", "<<(", ">>", ")>>", "~"})
_SURROGATE: Final = re.compile(r"\\u[Dd][89A-Fa-f][0-9A-Fa-f]{2}|[\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED: Final = frozenset("tbnrf\"'\\")
_SHORT: Final = len(r"\t")


def broken_rules(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Yield violations of rules that are easy to check, the most probable causes first."""
    yield from _characters(tokens)
    yield from _misplaced_aggregates(tokens)
    yield from _blank_nodes_deleted(tokens)
    yield from _values_of_other_length(tokens)
    yield from _assigned_again(tokens)
    yield from _star_of_groups(tokens)


def _characters(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find escape sequences that represent no character."""
    for token in tokens:
        if token.kind not in ("string", "iri"):
            continue
        if surrogate := _SURROGATE.search(token.text):
            remedy = "Write the character itself, or \\U and eight digits."
            problem = f"{surrogate[0]!a} is half of a character (a surrogate)"
            yield Diagnosis(token.start + surrogate.start(), problem, remedy)
        if token.kind == "string":
            yield from _escape_sequences(token)


def _escape_sequences(token: Token) -> Iterator[Diagnosis]:
    """Find escape sequences that SPARQL does not define (19.7)."""
    # All are matched from the left: in `\\x`, the second backslash belongs to the first and not to the x.
    for escape in _ESCAPE.finditer(token.text):
        if len(escape[0]) == _SHORT and escape[0][1] not in _ESCAPED:
            problem = f"{escape[0]} is not an escape sequence"
            yield Diagnosis(token.start + escape.start(), problem, "Write a backslash as two backslashes.")
            return


def _misplaced_aggregates(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find aggregates in FILTER and BIND, which are evaluated before grouping (18.2.4)."""
    clauses = [""]
    for index, token in enumerate(tokens):
        word = token.text.upper() if token.kind == "word" else ""
        if token.text == "{":
            clauses.append("")
        elif token.text == "}" and len(clauses) > 1:
            clauses.pop()
        elif word in ("SELECT", "HAVING", "ORDER", "FILTER", "BIND"):
            clauses[-1] = word
        elif word in _AGGREGATES and clauses[-1] in ("FILTER", "BIND") and followed_by_bracket(tokens, index):
            remedy = "Use it in SELECT, HAVING or ORDER BY; a sub-select makes its value available to FILTER."
            yield Diagnosis(token.start, f"{token.text} is an aggregate and cannot stand in {clauses[-1]}", remedy)


def _blank_nodes_deleted(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find blank nodes in DELETE, which would match every node (SPARQL 1.1 Update, 4.1.2)."""
    depth = 0
    for index, token in enumerate(tokens):
        if token.kind == "word" and token.text.upper() == "DELETE":
            following = tokens[index + 1].text.upper() if index + 1 < len(tokens) else ""
            depth = -1 if following in ("{", "DATA", "WHERE") else 0
        elif token.text == "{" and depth:
            depth = max(depth, 0) + 1
        elif token.text == "}" and depth > 0:
            depth -= 1
        elif depth > 0 and (token.kind == "blank" or token.text == "["):
            yield Diagnosis(token.start, "A blank node cannot stand in DELETE", "Use a variable, and a WHERE clause.")


def _values_of_other_length(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find rows of VALUES with more or fewer terms than variables."""
    index = 0
    while index < len(tokens):
        if tokens[index].text.upper() == "VALUES" and followed_by_bracket(tokens, index):
            index, names = _row(tokens, index + 1)
            index += 1  # the bracket {
            while index < len(tokens) and tokens[index].text == "(":
                start = tokens[index].start
                index, terms = _row(tokens, index)
                if terms != names:
                    yield Diagnosis(
                        start, f"This row has {terms} values for {names} variables", "Write UNDEF for no value."
                    )
        index += 1


def _row(tokens: Sequence[Token], index: int) -> tuple[int, int]:
    """Return the index after a row in round brackets, and the number of its terms."""
    terms = 0
    index += 1
    while index < len(tokens) and tokens[index].text != ")":
        # A literal with its datatype or language tag is one term of several tokens.
        datatype = tokens[index - 1].text == "^^"
        terms += tokens[index].kind not in ("punct", "lang") and not datatype
        index += 1
    return index + 1, terms


def _assigned_again(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find variables that AS assigns although they have a value."""
    for bound in _bound_again(tokens):
        problem = f"{bound.text} already occurs in this group, so BIND cannot assign it"
        yield Diagnosis(bound.start, problem, "Use a new variable.")
    seen: list[set[str]] = [set()]
    for index, token in enumerate(tokens):
        if token.kind == "word" and token.text.upper() == "SELECT":
            seen[-1] = set()
        elif token.text == "{":
            seen.append(set())
        elif token.text == "}" and len(seen) > 1:
            seen.pop()
        elif token.kind == "var" and index and tokens[index - 1].text.upper() == "AS":
            if token.text[1:] in seen[-1]:
                yield Diagnosis(token.start, f"{token.text} is assigned twice", "Use a new variable after AS.")
            seen[-1].add(token.text[1:])


def _star_of_groups(tokens: Sequence[Token]) -> Iterator[Diagnosis]:
    """Find SELECT * with GROUP BY (19.8, note 12)."""
    stars: list[Token | None] = [None]
    for index, token in enumerate(tokens):
        if token.text == "{":
            stars.append(None)
        elif token.text == "}" and len(stars) > 1:
            stars.pop()
        elif token.text == "*" and _is_selected(tokens, index):
            stars[-1] = token
        elif token.text.upper() == "GROUP" and (star := stars[-1]) is not None:
            remedy = "Name the variables of GROUP BY, and aggregates."
            yield Diagnosis(star.start, "SELECT * cannot be used with GROUP BY", remedy)


def _is_selected(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the star at `index` belongs to a SELECT, and not to `COUNT(DISTINCT *)`."""
    before = [token.text.upper() for token in tokens[max(0, index - 2) : index]]
    return before[-1:] == ["SELECT"] or before in (["SELECT", "DISTINCT"], ["SELECT", "REDUCED"])


def _bound_again(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield variables that BIND assigns although they occur before it in the same group (18.2.1)."""
    seen: list[set[str]] = [set()]
    for index, token in enumerate(tokens):
        if token.text == "{":
            seen.append(set())
        elif token.text == "}" and len(seen) > 1:
            inner = seen.pop()
            # Variables of inner groups are in scope in the outer group, too.
            seen[-1] |= inner
        elif token.kind == "var":
            if _assigned_by_bind(tokens, index) and token.text[1:] in seen[-1]:
                yield token
            seen[-1].add(token.text[1:])


def _assigned_by_bind(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the variable at `index` is after the AS of a BIND."""
    if not index or tokens[index - 1].text.upper() != "AS":
        return False
    depth = 1
    for at in range(index - 2, 0, -1):
        depth += {")": 1, "(": -1}.get(tokens[at].text, 0)
        if not depth:
            return tokens[at - 1].text.upper() == "BIND"
    return False


def followed_by_bracket(tokens: Sequence[Token], index: int) -> bool:
    """Return whether a round bracket follows the token at `index`."""
    return index + 1 < len(tokens) and tokens[index + 1].text == "("
