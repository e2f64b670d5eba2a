"""Regular expressions of the translation (Java's syntax) in the syntax of RE2, which DuckDB has.

RE2 has neither look-around nor back references nor differences of classes: a query with them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from spark_offload.embedded import sql_text
from spark_offload.errors import EngineRefused

_CIRCLED: Final = r"\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
_CLASSES: Final = {
    r"\p{IsAlphabetic}": rf"\p{{L}}\p{{Nl}}{_CIRCLED}",  # the other alphabetic characters are marks
    r"\p{IsWhite_Space}": r"\t-\r\x{85}\p{Z}",
    r"(?=[0-9T])": "",
    r"(?=[0-9])": "",
}
_CLASS: Final = re.compile(r"\\.|\[(\^?)((?:[^\[\]\\]|\\.|\[\^(?:[^\[\]\\]|\\.)+\])+)\]|\[", re.DOTALL)
"""An escape, or a character class with its sign and its members, some of which are complements of classes."""
_COMPLEMENT: Final = re.compile(r"\\.|\[\^((?:[^\[\]\\]|\\.)+)\]", re.DOTALL)
_MODE: Final = re.compile(r"\(\?([a-z]*)(-[a-z]+)?([:)])")


def re2(pattern: str) -> str:
    """Return a pattern in RE2's syntax. Raises `EngineRefused`."""
    for java, other in _CLASSES.items():
        pattern = pattern.replace(java, other)
    for construct, named in ((r"(?U", r"\b"), ("&&", "a difference of classes"), (r"(?=", "a pattern from the data"),
                             (r"(?!", "a pattern from the data"), (r"(?<", "a pattern from the data")):  # fmt: skip
        if construct in pattern:
            raise _refused(named)
    if re.search(r"(?<!\\)(?:\\\\)*\\[1-9]", pattern):
        raise _refused("a back reference")
    pattern = _CLASS.sub(_flat, pattern)
    # RE2 always has Java's flags d (only \n ends a line) and u (cases beyond ASCII).
    return _MODE.sub(_mode, pattern)


def _flat(found: re.Match[str]) -> str:
    """Return a character class without classes inside, which RE2 reads as text. Raises `EngineRefused`."""
    if found[0] == "[":
        raise _refused("nested character classes")
    complements: list[str] = []

    def taken(member: re.Match[str]) -> str:
        if member[1] is None:
            return member[0]
        complements.append(member[1])
        return ""

    rest = _COMPLEMENT.sub(taken, found[2] or "")
    if not complements:
        return found[0]
    if found[1]:
        if rest or len(complements) > 1:
            raise _refused(r"\S, \W, \D, \I or \C among other members of a negated class")
        return f"[{complements[0]}]"
    alternatives = [f"[{rest}]"] * bool(rest) + [f"[^{one}]" for one in complements]
    return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"


def _mode(found: re.Match[str]) -> str:
    flags = "".join(flag for flag in found[1] if flag not in "du")
    if not flags and not found[2]:
        return "" if found[3] == ")" else "(?:"
    return f"(?{flags}{found[2] or ''}{found[3]}"


def _refused(named: str) -> EngineRefused:
    return EngineRefused(f"DuckDB has no regular expressions with {named}: use --engine spark")


def _literal(written: str) -> str:
    """Return the text of a literal of SQL."""
    if not re.fullmatch(r"'([^']|'')*'", written):
        raise _refused("a pattern from the data")
    return written[1:-1].replace("''", "'")


def _pattern(written: str) -> str:
    if written.startswith("CAST(NULL"):
        return written
    return sql_text.string(re2(_literal(written)))


def _replacement(written: str) -> str:
    """Return a replacement whose references to groups are those of RE2."""
    if written == "NULL" or written.startswith("CAST(NULL"):
        return written
    if not written.startswith("'"):
        raise _refused("a replacement from the data")
    parts = re.findall(r"\\([\\$])|\$([0-9])|([^\\$]+)", _literal(written))
    return sql_text.string("".join(
        f"\\{digit}" if digit else escaped.replace("\\", "\\\\") or text for escaped, digit, text in parts
    ))  # fmt: skip


def _matches(args: Sequence[str]) -> str:
    return f"regexp_matches({args[0]}, {_pattern(args[1])})"


def _extract(args: Sequence[str]) -> str:
    return f"regexp_extract({args[0]}, {_pattern(args[1])}, {args[2]})"


def _replaced(args: Sequence[str]) -> str:
    return f"regexp_replace({args[0]}, {_pattern(args[1])}, {_replacement(args[2])}, 'g')"


def _reflected(args: Sequence[str]) -> str:
    """Return a call of a method of Java that the translation uses for patterns with deep recursion; RE2 has none."""
    _, method, text, pattern, replacement = args
    mode = ", 'g'" if _literal(method) == "replaceAll" else ""
    return f"regexp_replace({text}, {_pattern(pattern)}, {_replacement(replacement)}{mode})"


FUNCTIONS: Final[dict[str, Callable[[Sequence[str]], str]]] = {
    "rlike": _matches,
    "regexp_like": _matches,
    "regexp_extract": _extract,
    "regexp_replace": _replaced,
    "try_reflect": _reflected,
}
