"""Reader of the header `Link` (RFC 8288)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from urllib.parse import urljoin

_BEGIN: Final = re.compile(r"[\s,]*<([^>]*)>")
_PARAMETER: Final = re.compile(r'\s*;\s*([^\s=;,"]*)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?')
_ESCAPE: Final = re.compile(r"\\(.)")


class Link(NamedTuple):
    """A link to another resource."""

    target: str
    """Absolute URL."""
    relations: tuple[str, ...]
    """Relation types: names, or URIs."""
    context: str
    """Absolute URL of the resource that has the link."""


def read_links(values: Iterable[str], url: str, relation: str = "") -> Iterator[Link]:
    """Yield the links in the values of the headers of an answer.

    `url`: that of the request. `relation`: only links with this relation type; empty for all. The rest of a value that
    is not valid is ignored.
    """
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
            if relation and relation not in relations:
                continue  # before its URLs are resolved, which takes longest
            try:
                target, context = (urljoin(url, each) for each in (begin[1].strip(), parameters.get("anchor", "")))
            except ValueError:
                continue
            yield Link(target, relations, context)
