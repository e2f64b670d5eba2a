"""Templates of IRIs and texts with `{captures}`. Captures are percent-encoded, so they cannot change an IRI's
structure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final
from urllib.parse import quote, unquote

from edge.mapping.errors import BadKeyError, nearest
from edge.mapping.fault_reasons import because
from edge.mapping.terms import expand, is_iri

FILTERS: Final[dict[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "upper": str.upper,
    "capitalize": str.capitalize,
}
"""Filters after a capture's name: `{node|capitalize}`."""

Parts = list["str | tuple[str, tuple[Callable[[str], str], ...]]"]
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_UNSTORABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_LONGEST_CAPTURE: Final = 4096
# With captures, scheme and host must be literal; without "//", at least one literal character follows the scheme.
_SAFE_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:(?://[^/?#]+[/?#]|[^/?#])")


class CaptureError(ValueError):
    """A capture cannot be part of an IRI or text."""


class Template:
    """A compiled template. `names`: the required captures; `constant`: its text if it needs none."""

    __slots__ = ("_iri", "_many", "constant", "names", "parts")

    def __init__(self, parts: Parts, *, iri: bool, many: Collection[str]) -> None:
        self.parts = tuple(parts)
        self._iri = iri
        self._many = frozenset(many)
        self.names = frozenset(part[0] for part in parts if not isinstance(part, str))
        self.constant = None if self.names else "".join(part for part in parts if isinstance(part, str))

    def render(self, captures: Mapping[str, str]) -> str:
        """Return the text with the captures filled in. Raises `CaptureError`."""
        if self.constant is not None:
            return self.constant
        out: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                out.append(part)
                continue
            name, filters = part
            value = captures[name]
            for function in filters:
                value = function(value)
            out.append(self._encode(name, value) if self._iri else _text(value))
        return "".join(out)

    def match(self, text: str, captures: Mapping[str, str]) -> dict[str, str] | None:
        """Return the captures with which rendering gives `text`; None if it cannot, with these `captures`.

        Captures whose values have filters are unknown, and left out. Raises `CaptureError`.
        """
        pattern: list[str] = []
        found: set[str] = set()
        for part in self.parts:
            if isinstance(part, str):
                pattern.append(re.escape(part))
            elif part[0] in captures:
                value = captures[part[0]]
                for function in part[1]:
                    value = function(value)
                pattern.append(re.escape(self._encode(part[0], value)))
            elif part[1]:
                pattern.append("[^\\s]+?")
            else:
                pattern.append(f"(?P={part[0]})" if part[0] in found else f"(?P<{part[0]}>[^\\s]+?)")
                found.add(part[0])
        match = re.fullmatch("".join(pattern), text)
        if match is None:
            return None
        return {**captures, **{name: unquote(value) for name, value in match.groupdict().items()}}

    def _encode(self, name: str, value: str) -> str:
        if name in self._many and value:
            return "/".join(_segment(name, level) if level else "" for level in value.split("/"))
        return _segment(name, value)


def _segment(name: str, value: str) -> str:
    # "." and ".." have a meaning in paths that percent-encoding cannot remove (RFC 3986, section 6.2.2.2).
    if value in ("", ".", ".."):
        raise CaptureError(f'the capture {{{name}}} is "{value}", which cannot be a part of an IRI')
    if len(value) > _LONGEST_CAPTURE:
        raise CaptureError(f"the capture {{{name}}} has {len(value)} characters, the limit is {_LONGEST_CAPTURE}")
    try:
        return quote(value, safe=":")
    except UnicodeEncodeError:
        raise CaptureError(f"the capture {{{name}}} is not valid Unicode") from None


def _text(value: str) -> str:
    return _UNSTORABLE.sub("\ufffd", value[:_LONGEST_CAPTURE])


def parse_parts(
    text: str,
    known: Collection[str],
    filters: Mapping[str, Callable[[str], str]] = FILTERS,
    lacking: str = "not_captured",
) -> Parts:
    """Return the literal parts of a template, and its names with filters. Raises `BadKeyError`."""
    parts: Parts = []
    position = 0
    for token in _TOKEN.finditer(text):
        if token.start() > position:
            parts.append(text[position : token.start()])
        position = token.end()
        if token.group() in ("{{", "}}"):
            parts.append(token.group()[0])
            continue
        inner = token.group(1)
        if inner is None:
            raise BadKeyError(because("brace", name=text), allowed="{capture}, and {{ }} for braces themselves")
        name, *words = (word.strip() for word in inner.split("|"))
        if name not in known:
            raise BadKeyError(
                because(lacking, text=text, name=name),
                nearest=nearest(name, known),
                allowed=", ".join(f"{{{each}}}" for each in sorted(known)) or "no captures here",
            )
        for word in words:
            if word not in filters:
                raise BadKeyError(
                    because("not_a_filter", name=word), nearest=nearest(word, filters), allowed=", ".join(filters)
                )
        parts.append((name, tuple(filters[word] for word in words)))
    if position < len(text):
        parts.append(text[position:])
    return parts


def text_template(text: str, known: Collection[str]) -> Template:
    """Compile a template of plain text (label, comment). Raises `BadKeyError`."""
    return Template(parse_parts(text, known), iri=False, many=set())


def iri_template(text: str, namespaces: Mapping[str, str], known: Collection[str], many: Collection[str]) -> Template:
    """Compile a template of an IRI; `many`: captures that may contain several topic levels. Raises `BadKeyError`."""
    parts = parse_parts(expand(text, namespaces), known)
    sample = "".join(part if isinstance(part, str) else "x" for part in parts)
    if not is_iri(sample):
        raise BadKeyError(because("not_absolute", name=sample))
    has_captures = any(not isinstance(part, str) for part in parts)
    if has_captures and not (isinstance(parts[0], str) and _SAFE_PREFIX.match(parts[0])):
        raise BadKeyError(
            f'"{text}" must begin with a fixed scheme and host, so that no message can choose them.',
            allowed="http://host/{capture}, urn:name:{capture}, prefix:{capture}",
        )
    return Template(parts, iri=True, many=many)
