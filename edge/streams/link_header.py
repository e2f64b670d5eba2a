"""Reader of the header `HeaderLink` (RFC 8288)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple
from urllib.parse import urljoin

MOST_LINKS: Final = 32
"""Links with a relation that `linked` looks at. Those with a long relative anchor take half a millisecond each."""

_BEGIN: Final = re.compile(r"[\s,]*<([^>]*)>")
_PARAMETER: Final = re.compile(r'\s*;\s*([^\s=;,"]*)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?')
_ESCAPE: Final = re.compile(r"\\(.)")


class HeaderLink(NamedTuple):
    """A link to another resource."""

    target: str
    """Absolute URL."""
    relations: tuple[str, ...]
    """Relation types: names, or URIs."""
    context: str
    """Absolute URL of the resource that has the link."""


def read_links(values: Iterable[str], url: str, relation: str = "") -> Iterator[HeaderLink]:
    """Yield the links in the values of the headers of an answer.

    `url`: that of the request. `relation`: only links with this relation type; empty for all. The rest of a value that
    is not valid is ignored.
    """
    for target, relations, anchor in _references(values, relation):
        with suppress(ValueError):
            yield HeaderLink(urljoin(url, target), relations, urljoin(url, anchor))


def linked(values: Iterable[str], url: str, relation: str, context: str) -> str:
    """Return the target of the first link of a resource with a relation type, or an empty text.

    `url`: that of the request. `context`: absolute URL of the resource. Only `MOST_LINKS` links with the relation are
    looked at, because an answer may have thousands of them.
    """
    for target, _, anchor in islice(_references(values, relation), MOST_LINKS):
        with suppress(ValueError):
            if (urljoin(url, anchor) if anchor else url) == context:
                return urljoin(url, target)
    return ""


def _references(values: Iterable[str], relation: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Yield the target, the relation types and the anchor of links; target and anchor may be relative."""
    for value in values:
        position = 0
        while (begin := _BEGIN.match(value, position)) is not None:
            parameters: dict[str, str] = {}
            position = begin.end()
            while (parameter := _PARAMETER.match(value, position)) is not None:
                name, quoted, plain = parameter.groups()
                # Of several parameters with one name, the first one counts (section 3.3).
                parameters.setdefault(name.lower(), plain or _ESCAPE.sub(r"\1", quoted or ""))
                position = parameter.end()
            relations = tuple(parameters.get("rel", "").split())
            if not relation or relation in relations:
                yield begin[1].strip(), relations, parameters.get("anchor", "")
