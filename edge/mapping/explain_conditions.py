"""Explanations of conditions and topics: why a mapping or a reading does not apply to a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.rules import Condition
from edge.mapping.topics import LITERAL, MANY, TopicPattern
from edge.mapping.values import plain_text, shown

_MOST: Final = 3
"""Values in an explanation."""


def failed(conditions: Iterable[Condition], message: PayloadMessage) -> str | None:
    """Return the first condition that does not hold for a message, with what the payload has; None if all hold."""
    for condition in conditions:
        if not condition.holds(message):
            try:
                if condition.path is None:
                    return f"the payload is {shown(message.text)}, and {_wanted(condition, 'be')}"
                return _failed(condition, message.whole if condition.path.absolute else message.document)
            except PayloadError as error:
                return str(error)
    return None


def failed_in(conditions: Iterable[Condition], documents: Iterable[object]) -> str | None:
    """Return the first condition that does not hold in any of these objects, with what the last one has."""
    texts = [next((_failed(each, one) for each in conditions if not each.holds_in(one)), None) for one in documents]
    return texts[-1] if texts and all(texts) else None


def other_level(pattern: TopicPattern, topic: str) -> str | None:
    """Return the first level of a topic that a pattern does not match; None if it matches."""
    levels = topic.split("/")
    for number, level in enumerate(pattern.levels, 1):
        # MQTT 3.1.1, section 4.7.2: wildcards at the first level do not match topics that begin with "$".
        if number == 1 and level.kind != LITERAL and topic.startswith("$"):
            return f'"{level.text}" does not match a first level with "$"'
        if level.kind == MANY:
            return None if number <= len(levels) + (level.name is None) else _length(levels, number)
        if number > len(levels):
            return _length(levels, len(pattern.levels))
        given = levels[number - 1]
        if level.kind == LITERAL and level.text != given:
            return f"level {number} is {shown(given)}, and not {shown(level.text)}"
        if level.regex is not None and not level.regex.fullmatch(given):
            return f"level {number} is {shown(given)}, which {level.text} does not match"
    return _length(levels, len(pattern.levels)) if len(levels) > len(pattern.levels) else None


def _length(levels: list[str], wanted: int) -> str:
    return f"the topic has {len(levels)} level{'s' if len(levels) > 1 else ''}, and not {wanted}"


def _failed(condition: Condition, document: object) -> str:
    path = condition.path
    if path is None:
        return _wanted(condition, "be")
    values = [hit.value for hit in path.walk(document)]
    return f'the payload has {_found(values)} at "{path.text}", and {_wanted(condition, "have")}'


def _found(values: list[object]) -> str:
    if not values:
        return "nothing"
    texts = []
    for value in values[:_MOST]:
        if isinstance(value, dict | list):
            texts.append("an object" if isinstance(value, dict) else "a list")
        else:
            texts.append("null" if value is None else shown(plain_text(value)))
    return ", ".join(texts) + (", ..." if len(values) > _MOST else "")


def _wanted(condition: Condition, verb: str) -> str:
    if condition.exists is False:
        return "must have nothing there"
    parts = []
    if condition.one_of is not None:
        words = [plain_text(each) if isinstance(each, bool) else str(each) for each in condition.one_of]
        parts.append(" or ".join(map(shown, words)) or "one of an empty list")
    if condition.regex is not None:
        parts.append(f"a match of {shown(condition.regex.pattern)}")
    return f"must {verb} {', '.join(parts) or 'a value there'}"
