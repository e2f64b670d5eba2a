"""MQTT topics and topic filters (MQTT 3.1.1, section 4.7): which filter another one lies within."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 65_535
"""Bytes."""

EVERYTHING: Final = "#"
"""The filter of all topics but those that begin with `$`."""


def is_filter(text: str) -> bool:
    """Whether a text is a topic filter, or a topic."""
    levels = text.split("/")
    if not text or "\0" in text or len(text.encode()) > _LONGEST or "#" in "".join(levels[:-1]):
        return False
    return all(level in ("+", "#") or not set("+#") & set(level) for level in levels)


def is_topic(text: str) -> bool:
    """Whether a message can have this topic."""
    return is_filter(text) and not set("+#") & set(text)


def covers(wide: str, narrow: str) -> bool:
    """Whether a filter matches everything that another one matches; the other may be a topic.

    Topics that begin with `$` are matched by filters that name their first level, and by no other (4.7.2).
    """
    asked = narrow.split("/")
    given = wide.split("/")
    if narrow.startswith("$") and given[0] != asked[0]:
        return False
    for number, level in enumerate(given):
        if level == "#":
            return True
        if number == len(asked) or asked[number] == "#" or level not in ("+", asked[number]):
            return False
    return len(given) == len(asked)
