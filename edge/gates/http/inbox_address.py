"""URLs of inboxes and notifications, and the graphs that store them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args
from urllib.parse import quote

import pyoxigraph as ox

from edge.gates.http.body import parse_parameters
from edge.gates.http.boundary import INBOX
from edge.protocol.errors import InvalidRequest, NotFound

LDP: Final = "http://www.w3.org/ns/ldp#"
PREFIX: Final = "urn:edge:inbox:"
"""Beginning of the IRIs of graphs with notifications."""
_LONGEST: Final = 2_000
"""Characters of the IRI of a graph, or of the name of a query."""
_NOTIFICATION: Final = "notification"
_REMEDY: Final = "use ?graph= with the percent-encoded IRI of a graph, or ?query= with the name of a continuous query"

Kind = Literal["graph", "query"]


@dataclass(frozen=True, slots=True)
class InboxAddress:
    """The inbox of a named graph or of a continuous query, or one of its notifications."""

    kind: Kind
    name: str
    """IRI of the graph, or name of the query."""
    notification: str = ""
    """Id of the notification; empty for the inbox itself."""

    @property
    def inbox(self) -> str:
        """IRI of the graph that lists the notifications. Its permissions apply to the inbox."""
        return f"{PREFIX}{self.kind}:{quote(self.name, safe='')}"

    @property
    def graph(self) -> str:
        """IRI of the graph of the notification."""
        return f"{self.inbox}:{self.notification}"

    @property
    def path(self) -> str:
        """Path and query of the URL."""
        path = f"{INBOX}?{self.kind}={quote(self.name, safe='')}"
        return f"{path}&{_NOTIFICATION}={self.notification}" if self.notification else path

    def new(self) -> InboxAddress:
        """Return the address of a new notification."""
        return replace(self, notification=str(uuid.uuid4()))

    def of(self, graph: str) -> InboxAddress | None:
        """Return the address of the notification that a graph stores; None: it stores none of this inbox."""
        beginning, _, given = graph.rpartition(":")
        return replace(self, notification=given) if beginning == self.inbox and _is_id(given) else None


def inbox_link(kind: Kind, name: str) -> dict[str, str]:
    """Return the header by which clients discover the inbox of a resource (section 3.1)."""
    return {"Link": f'<{InboxAddress(kind, name).path}>; rel="{LDP}inbox"'}


def read_address(query_string: bytes) -> InboxAddress:
    """Return the address in the query of a URL. Raises `InvalidRequest`, `NotFound`."""
    parameters = parse_parameters(query_string)
    unknown = next((name for name, _ in parameters if name not in (*get_args(Kind), _NOTIFICATION)), None)
    if unknown is not None:
        raise InvalidRequest(f'"{unknown[:40]}" is not a parameter of an inbox: {_REMEDY}')
    given = dict(parameters)
    kinds: list[Kind] = [kind for kind in get_args(Kind) if given.get(kind)]
    if len(kinds) != 1 or len(given) != len(parameters):
        raise InvalidRequest(f"The URL must name one inbox: {_REMEDY}")
    (kind,) = kinds
    if len(given[kind]) > _LONGEST:
        raise InvalidRequest(f'"{kind}" has more than {_LONGEST:,} characters: use a shorter name')
    if kind == "graph":
        try:
            ox.NamedNode(given[kind])
        except ValueError as error:
            raise InvalidRequest(f'"graph" is not an absolute IRI ({error}): {_REMEDY}') from None
    notification = given.get(_NOTIFICATION)
    if notification is not None and not _is_id(notification):
        raise NotFound("The inbox has no such notification; GET of the inbox lists them")
    return InboxAddress(kind, given[kind], notification or "")


def _is_id(text: str) -> bool:
    """Return whether a text is a UUID in its usual form."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
