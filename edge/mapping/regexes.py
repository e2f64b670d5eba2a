"""Regular expressions of mapping files: compiled once; refused if a payload could make them run forever."""

from __future__ import annotations

import re
import warnings
from typing import Final

from edge.mapping.errors import BadKeyError
from edge.mapping.fault_reasons import because

_LONGEST: Final = 1000
# An upper bound of three or more digits counts as unbounded, too: nested, it backtracks almost as long.
_UNBOUNDED = re.compile(r"[*+]|\{[0-9]*,\}|\{[0-9]*,[0-9]{3,}\}")


def compile_regex(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises `BadKeyError` if it is invalid or nests repetitions.

    `(a+)+` and similar expressions take time exponential in the length of a text that does not match. Python's `re`
    cannot be interrupted, so they are refused, and the length of the searched text is limited
    (`MappingLimits.regex_text`).
    """
    if len(text) > _LONGEST:
        raise BadKeyError(f"A regular expression has at most {_LONGEST} characters.")
    try:
        with warnings.catch_warnings():
            # Of "[[" Python says that it may mean something else one day. It is a bracket in a set.
            warnings.simplefilter("ignore", FutureWarning)
            compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadKeyError(because("not_a_regex", reason=error)) from None
    if _repeats_repetition(text):
        raise BadKeyError(
            f'"{text}" repeats a group that repeats by itself, which can run forever on a hostile text.',
            allowed="a repetition (*, +) inside a group, or of a group, not both",
        )
    return compiled


def _repeats_repetition(text: str) -> bool:
    inner: list[bool] = [False]  # for each open group: whether it contains an unbounded repetition
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            position += 2
            continue
        if char == "[":
            position = _class_end(text, position)
            continue
        if char == "(":
            inner.append(False)
        elif char == ")" and len(inner) > 1:
            held = inner.pop()
            if _UNBOUNDED.match(text, position + 1):
                if held:
                    return True
                held = True
            # A group that contains a repetition passes it on to the group around it.
            inner[-1] = inner[-1] or held
        elif _UNBOUNDED.match(text, position):
            inner[-1] = True
        position += 1
    return False


def _class_end(text: str, start: int) -> int:
    position = start + 1
    # A "]" directly after "[" or "[^" is a member of the class and does not end it.
    if text[position : position + 1] == "^":
        position += 1
    if text[position : position + 1] == "]":
        position += 1
    while position < len(text) and text[position] != "]":
        position += 2 if text[position] == "\\" else 1
    return position + 1


def group_value(match: re.Match[str]) -> str | None:
    """Return the value that a pattern finds."""
    groups = match.groupdict()
    if "value" in groups:
        return groups["value"]
    # Without a group "value", the value is the first unnamed group; without unnamed groups, the whole match.
    unnamed = match.re.groups > len(match.re.groupindex)
    if not unnamed:
        return match.group()
    named = set(match.re.groupindex.values())
    return next((match.group(index) for index in range(1, match.re.groups + 1) if index not in named), None)


def named_groups(match: re.Match[str]) -> dict[str, str]:
    """Return the named groups; those that are not in the text are empty."""
    return {name: value or "" for name, value in match.groupdict().items()}
