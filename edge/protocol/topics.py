"""MQTT topics and topic filters, and containment of filters (MQTT 3.1.1, section 4.7)."""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 65_535
"""Maximum length in bytes."""

EVERYTHING: Final = "#"
"""The filter of all topics except those that begin with `$`."""


def is_filter(text: str) -> bool:
    """Whether a text is a valid topic filter or topic."""
    levels = text.split("/")
    if not text or "\0" in text or len(text.encode()) > _LONGEST or "#" in "".join(levels[:-1]):
        return False
    return all(level in ("+", "#") or not set("+#") & set(level) for level in levels)


def is_topic(text: str) -> bool:
    """Whether a text is a valid topic name."""
    return is_filter(text) and not set("+#") & set(text)


def covers(wide: str, narrow: str) -> bool:
    """Whether the filter `wide` matches everything that `narrow` matches, a filter or a topic.

    Topics that begin with `$` are matched only by filters that name their first level (section 4.7.2).
    """
    narrow_levels = narrow.split("/")
    wide_levels = wide.split("/")
    if narrow.startswith("$") and wide_levels[0] != narrow_levels[0]:
        return False
    for number, level in enumerate(wide_levels):
        if level == "#":
            return True
        if number == len(narrow_levels) or narrow_levels[number] == "#" or level not in ("+", narrow_levels[number]):
            return False
    return len(wide_levels) == len(narrow_levels)
