"""Contexts of JSON-LD that Oxigraph's parser cannot read safely.

Terms may refer to each other, and the parser follows such a chain by recursion: a few thousand end the process.
Contexts in use have chains of two or three. The parser also expands the whole document before it yields the first quad,
so a long prefix that is used often fills the memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_MOST: Final = 100
"""Terms of a chain that is parsed."""
LONGEST: Final = 100_000_000
"""Characters that the strings of a document may have without abbreviations: ten times those of the largest one."""
_SMALL: Final = 1_000
"""Characters of a document that is harmless."""


def _key(name: str) -> str:
    """Return an expression for a member of a JSON object, with or without escapes."""
    return '"' + "".join(rf"(?:{letter}|\\u{ord(letter):04x})" for letter in name) + r'"\s*:\s*'


_CONTEXT: Final = re.compile(_key("@context"), re.IGNORECASE)
_ID: Final = re.compile(_key("@id") + r'"([^"]*)', re.IGNORECASE)


def context_fault(document: str, base: str, most: int = LONGEST) -> str:
    """Return why a JSON-LD document should not be parsed; empty if it may be.

    `base`: IRI that relative ones begin with. `most`: characters of its strings without abbreviations.
    """
    if len(document) < _SMALL:
        return ""
    lengths: dict[str, int] = {}
    """Of the terms of all contexts, without abbreviations. Where it is not exact, it is too high."""
    for context in _contexts(document):
        if context is None:
            return "it is not JSON: a context does not end"
        if not _expand(context, lengths):
            return "the terms of a context refer to each other in a long chain; write IRIs instead"
    longest = max([*lengths.values(), *(len(match[1]) for match in _ID.finditer(document))], default=0)
    # A relative IRI may begin with the base, an absolute one with a prefix.
    if (longest + len(base)) * document.count('"') // 2 > most:
        return (
            f"its strings may have more than {most:,} characters without abbreviations; send it in parts, or use "
            "shorter IRIs"
        )
    return ""


def _contexts(document: str) -> Iterator[dict[str, Any] | None]:
    """Yield all contexts, without decoding the rest of the document. Ends with None if many of them are not JSON."""
    decode, position = json.JSONDecoder(object_pairs_hook=_merged).raw_decode, 0
    left = 2 * len(document)
    """Characters of contexts that are not JSON. Each of those within another one is read again."""
    while (key := _CONTEXT.search(document, position)) is not None:
        try:
            value, position = decode(document, key.end())
        except (ValueError, RecursionError) as error:  # not JSON: the parser says why
            position = key.end()
            left -= error.pos - position if isinstance(error, json.JSONDecodeError) else len(document)
            if left < 0:
                yield None
                return
            continue
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, dict):
                yield each
                waiting.extend(each.values())
            elif isinstance(each, list):
                waiting.extend(each)


def _merged(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object. A member that occurs several times has a list of its values: parsers differ in their choice."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        found[name] = [found[name], value] if name in found else value
    return found


def _expand(context: dict[str, Any], lengths: dict[str, int]) -> bool:
    """Add the lengths of the terms of a context. Returns whether no chain of them is long.

    Terms that refer to no other one come first, then those that refer to these, and so on.
    """
    strings = {term: _strings(term, definition) for term, definition in context.items()}
    references = {
        term: {name for name in _names(texts) if name in context and name != term} for term, texts in strings.items()
    }
    users: dict[str, list[str]] = {}
    left = {term: len(others) for term, others in references.items()}
    for term, others in references.items():
        for other in others:
            users.setdefault(other, []).append(term)
    ready = [term for term, number in left.items() if not number]
    for _ in range(_MOST):
        following: list[str] = []
        for term in ready:
            del left[term]
            own = max(map(len, strings[term]), default=0)
            others = (_names(strings[term]) - {term}) & lengths.keys()
            lengths[term] = own + max((lengths[name] for name in others), default=0)
            for user in users.get(term, ()):
                left[user] -= 1
                if not left[user]:
                    following.append(user)
        ready = following
    return not left


def _strings(term: str, definition: object) -> list[str]:
    """Return the strings of a definition; those of a context in it are its own."""
    texts = [term]
    waiting = [definition]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, dict):
            waiting.extend(value for key, value in each.items() if key != "@context")
        elif isinstance(each, list):
            waiting.extend(each)
    return texts


def _names(texts: list[str]) -> set[str]:
    """Return the terms to which strings may refer, whole or as a prefix."""
    return {name for text in texts for name in (text, text.partition(":")[0])}
