"""The operators of a query, and their nesting."""

from __future__ import annotations

import re

_TOKEN = re.compile(r"#[^\n]*|\"[^\"]*\"|'[^']*'|<[^<>\"{}|^`\\\s]*>|[?$]\w+|[\w:]+|[{}]|\S")
_WORDS = (
    *("FILTER", "BIND", "VALUES", "UNDEF", "DISTINCT", "LIMIT", "FROM", "ASK", "CONSTRUCT", "DESCRIBE", "HAVING"),
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "SAMPLE", "GROUP_CONCAT", "IN", "BOUND", "COALESCE", "IF"),
)


def features(text: str) -> set[str]:
    """Return the operators of a query, and `inner in outer` for each nested one."""
    tokens = [token for token in _TOKEN.findall(text) if not token.startswith("#")]
    upper = [token.upper() for token in tokens]
    ends = _ends(tokens)
    found: set[str] = set()
    around: list[str] = []

    def note(name: str) -> None:
        outer = next((each for each in reversed(around) if each), None)
        found.update((name, f"{name} in {outer}") if outer else (name,))

    for index, token in enumerate(tokens):
        word = upper[index]
        if token == "{":
            name = _operator(upper, index, ends[index])
            if name:
                note(name)
            around.append(name)
        elif token == "}":
            around.pop()
        elif word == "BY" and upper[index - 1] == "GROUP":
            note("GROUP BY")
        elif word in _WORDS:
            note("FROM NAMED" if word == "FROM" and upper[index + 1] == "NAMED" else word)
    if re.search(r"(ex:\w|\))[*+?]? ?/|!\(?\^?ex:|\^ex:|\^\(|ex:\w\||\)[*+?] |ex:\w[*+?]", text):
        note("path")
    return found


def _ends(tokens: list[str]) -> dict[int, int]:
    ends: dict[int, int] = {}
    begun: list[int] = []
    for index, token in enumerate(tokens):
        if token == "{":
            begun.append(index)
        elif token == "}":
            ends[begun.pop()] = index
    return ends


def _operator(words: list[str], begin: int, end: int) -> str:
    """Return the role of a group in braces in its surroundings, or an empty text."""
    before = words[begin - 1] if begin else ""
    if before in ("OPTIONAL", "MINUS"):
        return before
    if before == "EXISTS":
        return "NOT EXISTS" if words[begin - 2] == "NOT" else "EXISTS"
    if begin > 1 and words[begin - 2] == "GRAPH":
        return "GRAPH ?g" if before.startswith("?") else "GRAPH"
    if before == "UNION" or words[end + 1 : end + 2] == ["UNION"]:
        return "UNION"
    if words[begin + 1] == "SELECT":
        return "grouped sub-select" if "GROUP" in words[begin:end] or "COUNT" in words[begin:end] else "sub-select"
    return ""
