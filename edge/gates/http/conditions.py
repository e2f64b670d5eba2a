"""Conditional requests: `If-Match` and `If-None-Match` (RFC 9110, section 13)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from edge.protocol.errors import InvalidRequest, PreconditionFailed

_TAG: Final = re.compile(r'[ \t]*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|\Z)|[ \t]*,')
"""An entity tag of a list, or an empty element (RFC 9110, sections 5.6.1 and 8.8.3)."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The value of one of the two headers: entity tags with their quotes, or "*" for any."""

    listed: frozenset[str]

    @property
    def any(self) -> bool:
        """Whether each existing representation matches."""
        return "*" in self.listed


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a request."""

    match: Tags | None
    none_match: Tags | None

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return self.match is not None or self.none_match is not None

    @property
    def exists(self) -> bool | None:
        """Whether the resource must exist, if this is the whole condition; None: the entity tags count, too.

        Raises `PreconditionFailed` if no state of the resource meets the conditions.
        """
        match, none_match = self.match, self.none_match
        if match is not None and none_match is not None and none_match.any:
            raise PreconditionFailed(
                "If-Match needs an existing graph, and If-None-Match: * a new one; send one of them"
            )
        if none_match is not None:
            return False if none_match.any else None
        return True if match is not None and match.any else None

    def unchanged(self, tag: str) -> bool:
        """Check the conditions of a GET for an existing representation. Return whether to answer 304.

        Raises `PreconditionFailed`.
        """
        if not self._matches({tag}):
            raise PreconditionFailed("The resource has another entity tag than If-Match; GET it again")
        return self.none_match is not None and _found(self.none_match, {tag})

    def check(self, tags: Collection[str], what: str = "graph") -> None:
        """Check the conditions of a change.

        `tags`: entity tags of all representations; none if the resource does not exist. `what`: the kind of the
        resource, for error messages. Raises `PreconditionFailed`.
        """
        if not self._matches(tags):
            problem = "has another entity tag than If-Match" if tags else "does not exist, and If-Match needs it"
            raise PreconditionFailed(f"The {what} {problem}; nothing was changed. GET it again")
        if self.none_match is not None and tags and _found(self.none_match, tags):
            raise PreconditionFailed(f"The {what} has an entity tag of If-None-Match; nothing was changed")

    def _matches(self, tags: Collection[str]) -> bool:
        # The strong comparison: a weak tag never matches.
        return self.match is None or (bool(tags) and (self.match.any or not self.match.listed.isdisjoint(tags)))


def _found(none_match: Tags, tags: Collection[str]) -> bool:
    return none_match.any or not {tag.removeprefix("W/") for tag in none_match.listed}.isdisjoint(tags)


def read_conditions(request: Request) -> Conditions:
    """Return the conditions of a request. Raises `InvalidRequest`."""
    return Conditions(_read(request, "If-Match"), _read(request, "If-None-Match"))


def _read(request: Request, name: str) -> Tags | None:
    values = request.headers.getlist(name)
    if not values:
        return None
    text = ", ".join(values).strip()
    if text == "*":
        return Tags(frozenset({"*"}))
    found: set[str] = set()
    position = 0
    while position < len(text):
        tag = _TAG.match(text, position)
        if tag is None:
            raise InvalidRequest(f'{name} is neither * nor a list of entity tags such as "1a2b", with the quotes')
        if tag[1]:
            found.add(tag[1])
        position = tag.end()
    return Tags(frozenset(found))
