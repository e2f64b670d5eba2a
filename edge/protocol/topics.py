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
    # MQTT 3.1.1: at least one character [MQTT-4.7.3-1], no U+0000 [MQTT-4.7.3-2], # only as the last level.
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
        # Also if no level of `narrow` is left: `a/#` includes its parent `a` (section 4.7.1.2).
        if level == "#":
            return True
        if number == len(narrow_levels) or narrow_levels[number] == "#" or level not in ("+", narrow_levels[number]):
            return False
    return len(wide_levels) == len(narrow_levels)
