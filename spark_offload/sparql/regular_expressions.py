"""Regular expressions of SPARQL (XPath and XQuery Functions, section 7.6) as those of Java.

Both syntaxes are similar, but a few constructs differ in meaning, and Java has more of them. Where XPath and the live
graph (Rust's regular expressions) differ, character classes are those of the live graph.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from spark_offload.errors import QueryRefused

_CATEGORIES: Final = frozenset(
    "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po Z Zs Zl Zp S Sm Sc Sk So C Cc Cf Co Cn".split()  # noqa: SIM905
)
_WORD: Final = r"\p{IsAlphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}"
_CLASSES: Final = {
    "d": r"\p{Nd}",
    "s": r"\p{IsWhite_Space}",
    "w": _WORD,
    "i": r"\p{L}\p{Nl}_:",
    "c": r"\p{L}\p{Nl}\p{Nd}\p{M}\p{Lm}_:.\-\x{B7}",
}
"""Content of a character class for each escape; an upper-case letter is its complement."""
_CONTROLS: Final = {"n": r"\n", "r": r"\r", "t": r"\t"}
_QUANTIFIER: Final = re.compile(r"[*+?]\??|\{([0-9]{1,4})(,([0-9]{0,4}))?\}\??")
_GROUP: Final = re.compile(r"\(\?([imsx]*)(-[imsx]+)?(:|\))")
_PROPERTY: Final = re.compile(r"\\([pP])\{(\w*)\}")
_MAX_LENGTH: Final = 10_000
_SHALLOW: Final = 500
"""Number of parts, and of repetitions in braces, up to which the recursion of Java's engine is harmless."""
_MAX_DEPTH: Final = 100


class JavaPattern(NamedTuple):
    """A pattern in Java's syntax."""

    text: str
    groups: int
    """Number of capturing groups."""
    deep: bool = False
    """Whether a match may need more stack than a thread has. Java's engine recurses for each repetition of a group."""


class _InvalidPatternError(ValueError):
    """The text is not a regular expression."""


def java_pattern(pattern: str, flags: str = "") -> JavaPattern | None:
    """Translate a pattern. Returns None for an invalid pattern or flag.

    Raises `QueryRefused` for an unsupported pattern.
    """
    if not set(flags) <= set("smixq"):
        return None
    if "q" in flags:
        literal = _mode("i" * ("i" in flags)) + "".join(map(_literal, pattern))
        return JavaPattern(literal, 0, deep=len(pattern) > _SHALLOW)
    if len(pattern) > _MAX_LENGTH:
        raise QueryRefused(f"a regular expression of more than {_MAX_LENGTH} characters is not supported")
    try:
        return _Translation(pattern, flags).whole()
    except _InvalidPatternError:
        return None


def java_replacement(replacement: str, groups: int) -> str | None:
    """Translate the replacement for a pattern with this number of groups. Returns None for an invalid one."""
    parts: list[str] = []
    for found in re.finditer(r"\\([\\$])|\$([0-9]+)|([^\\$]+)|(.)", replacement, re.DOTALL | re.ASCII):
        escaped, digits, text, _ = found.groups()
        if escaped is not None:
            parts.append("\\" + escaped)
        elif text is not None:
            parts.append(text)
        elif digits is None:
            return None
        else:
            parts.append(_group(digits, groups))
    return "".join(parts)


def _group(digits: str, groups: int) -> str:
    # XPath: digits that are not part of a group's number are text; a group of one digit that does not exist is empty.
    length = len(digits)
    while length > 1 and int(digits[:length]) > groups:
        length -= 1
    return (f"${digits[:length]}" if int(digits[:length]) <= groups else "") + digits[length:]


def _literal(character: str) -> str:
    return character if character.isalnum() or not character.isascii() else f"\\x{{{ord(character):X}}}"


def _mode(flags: str) -> str:
    return f"(?{flags.replace('i', 'iu')})" if flags else ""


def _recurses(repeated: str, quantifier: re.Match[str]) -> bool:
    """Return whether Java's engine may recurse for each repetition of a part."""
    if quantifier[1] is None:
        # A repeated character is a loop in Java, but a repeated group or back reference is not.
        return not quantifier[0].startswith("?") and repeated.endswith(")")
    most = quantifier[1] if quantifier[2] is None else quantifier[3]
    return not most or int(most) > (1 if repeated.endswith(")") else _SHALLOW)


class _Translation:
    """Translation of one pattern."""

    def __init__(self, pattern: str, flags: str) -> None:
        self._pattern = pattern
        self._flags = flags
        self._place = 0
        self._groups = 0
        self._open: list[int] = []
        """Numbers of the open groups; 0 for one that does not capture."""

    def whole(self) -> JavaPattern:
        """Return the translated pattern."""
        parts: list[str] = []
        repeatable = deep = False
        while self._place < len(self._pattern):
            if "x" in self._flags and self._pattern[self._place] in " \t\n\r":
                self._place += 1
                continue
            if quantifier := _QUANTIFIER.match(self._pattern, self._place):
                self._check_quantifier(quantifier, repeatable=repeatable)
                deep = deep or _recurses(parts[-1], quantifier)
                parts.append(quantifier[0])
                self._place = quantifier.end()
                repeatable = False
                continue
            part, repeatable = self._part()
            parts.append(part)
        if self._open:
            raise _InvalidPatternError
        # Java's flag d: only \n ends a line.
        mode = "d" + "".join(sorted(set(self._flags) & set("ims")))
        return JavaPattern(_mode(mode) + "".join(parts), self._groups, deep=deep or len(parts) > _SHALLOW)

    def _check_quantifier(self, found: re.Match[str], *, repeatable: bool) -> None:
        least, most = found[1], found[3]
        if not repeatable or (least and most and int(least) > int(most)):
            raise _InvalidPatternError

    def _part(self) -> tuple[str, bool]:
        """Translate one part. Returns it, and whether a quantifier may follow."""
        character = self._pattern[self._place]
        if character == "(":
            return self._group(), False
        self._place += character not in "\\["
        match character:
            case ")":
                if not self._open:
                    raise _InvalidPatternError
                self._open.pop()
                return ")", True
            case "|" | "^":
                return character, False
            case "$":
                # Without the flag m, Java's $ would also match before a line end that is the last character.
                return ("$" if "m" in self._flags else r"\z"), False
            case "[":
                return self._class(), True
            case "\\":
                return self._escape(), True
            case "]" | "{" | "}" | "*" | "+" | "?":
                raise _InvalidPatternError
            case ".":
                return ".", True
        return _literal(character), True

    def _group(self) -> str:
        if len(self._open) >= _MAX_DEPTH:
            raise QueryRefused(f"a regular expression with more than {_MAX_DEPTH} nested groups is not supported")
        found = _GROUP.match(self._pattern, self._place)
        if found is None:
            if self._pattern.startswith("(?", self._place):
                raise _InvalidPatternError
            self._place += 1
            self._groups += 1
            self._open.append(self._groups)
            return "("
        self._place = found.end()
        if found[3] == ":":
            self._open.append(0)
        elif not (found[1] or found[2]):
            raise _InvalidPatternError
        return f"(?{found[1].replace('i', 'iu')}{found[2] or ''}{found[3]}"

    def _escape(self) -> str:
        character = self._pattern[self._place + 1 : self._place + 2]
        if character.isdigit() and character.isascii():
            number = re.compile("[0-9]+").match(self._pattern, self._place + 1)
            assert number is not None  # noqa: S101  there is a digit
            digits = number[0]
            while len(digits) > 1 and int(digits) > self._groups:
                digits = digits[:-1]
            if not 0 < int(digits) <= self._groups or int(digits) in self._open:
                raise _InvalidPatternError
            self._place += 1 + len(digits)
            return f"(?:\\{digits})"
        if character in ("b", "B"):
            self._place += 2
            return f"(?U:\\{character})"
        return f"[{self._member()}]" if character.isalpha() else self._member()

    def _class(self) -> str:
        """Translate a character class, at its opening bracket."""
        self._place += 1
        negated = self._pattern.startswith("^", self._place)
        self._place += negated
        members: list[str] = []
        while not self._pattern.startswith("]", self._place):
            if self._place >= len(self._pattern):
                raise _InvalidPatternError
            if members and self._pattern.startswith("-[", self._place):
                self._place += 1
                less = self._class()
                if not self._pattern.startswith("]", self._place):
                    raise _InvalidPatternError
                self._place += 1
                return f"[[{'^' * negated}{''.join(members)}]&&[^{less}]]"
            members.append(self._range())
        if not members:
            raise _InvalidPatternError
        self._place += 1
        return f"[{'^' * negated}{''.join(members)}]"

    def _range(self) -> str:
        begin = self._pattern[self._place :]
        first = self._member()
        last = self._pattern[self._place : self._place + 2]
        if not last.startswith("-") or last[1:] in ("", "]", "["):
            return first
        self._place += 1
        end = self._pattern[self._place :]
        second = self._member()
        codes = _code(begin), _code(end)
        if codes[0] is None or codes[1] is None or codes[0] > codes[1]:
            raise _InvalidPatternError
        return f"{first}-{second}"

    def _member(self) -> str:
        """Translate a character or an escape, as a member of a character class."""
        character = self._pattern[self._place]
        if character == "[":
            raise _InvalidPatternError
        if character != "\\":
            self._place += 1
            return _literal(character)
        if found := _PROPERTY.match(self._pattern, self._place):
            self._place = found.end()
            if found[2].startswith("Is"):
                raise QueryRefused(f"the Unicode block {found[2]} in a regular expression is not supported")
            if found[2] not in _CATEGORIES:
                raise _InvalidPatternError
            return found[0]
        escaped = self._pattern[self._place + 1 : self._place + 2]
        self._place += 2
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped.lower() in _CLASSES and escaped:
            members = _CLASSES[escaped.lower()]
            return members if escaped.islower() else f"[^{members}]"
        if not escaped or escaped.isalnum() or not escaped.isascii():
            raise _InvalidPatternError
        return _literal(escaped)


def _code(text: str) -> int | None:
    """Return the number of the character at the beginning of a text, or None for a class."""
    if not text.startswith("\\"):
        return ord(text[0])
    escaped = text[1:2]
    return {"n": 10, "r": 13, "t": 9}.get(escaped, None if escaped.isalnum() else ord(escaped))
