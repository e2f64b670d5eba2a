"""Contexts of JSON-LD whose terms refer to each other: Oxigraph's parser follows such a chain by recursion.

A few thousand terms, each defined by the next one, end the process. Contexts in use have chains of two or three.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_MOST: Final = 100
"""Terms of a chain that is parsed."""
_SMALL: Final = 1_000
"""Bytes of a document that cannot contain a long chain."""
_CONTEXT: Final = re.compile(
    '"' + "".join(rf"(?:{letter}|\\u{ord(letter):04x})" for letter in "@context") + r'"\s*:\s*', re.IGNORECASE
)
"""The key of a context, with or without escapes."""


def has_long_chain(document: str) -> bool:
    """Return whether a context of a JSON-LD document has a long chain of terms, or a circle of them."""
    if len(document) < _SMALL:
        return False
    return any(_is_long(context) for context in _contexts(document))


def _contexts(document: str) -> Iterator[dict[str, Any]]:
    """Yield all contexts, without decoding the rest of the document."""
    decode, position = json.JSONDecoder(object_pairs_hook=_merged).raw_decode, 0
    while (key := _CONTEXT.search(document, position)) is not None:
        try:
            value, position = decode(document, key.end())
        except (ValueError, RecursionError):  # not JSON: the parser says why
            position = key.end()
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


def _is_long(context: dict[str, Any]) -> bool:
    """Return whether terms are left after those have been removed `_MOST` times that refer to no other term."""
    if len(context) <= _MOST:
        return False
    users: dict[str, list[str]] = {}
    left: dict[str, int] = {}
    """Terms that refer to others, with the number of these."""
    for term, definition in context.items():
        others = _references(term, definition, context)
        if others:
            left[term] = len(others)
        for other in others:
            users.setdefault(other, []).append(term)
    removed = [term for term in context if term not in left]
    for _ in range(_MOST):
        following: list[str] = []
        for user in (user for term in removed for user in users.get(term, ())):
            left[user] -= 1
            if not left[user]:
                del left[user]
                following.append(user)
        removed = following
    return bool(left)


def _references(term: str, definition: object, context: dict[str, Any]) -> set[str]:
    """Return the other terms of the context that a definition needs, whole or as a prefix."""
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
    names = {name for text in texts for name in (text, text.partition(":")[0])}
    return {name for name in names if name != term and name in context}
