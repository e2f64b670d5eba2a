"""Which streams and queries a client may read, write and change."""

from __future__ import annotations

from edge.protocol.access import DEFAULT_GRAPH, Access
from edge.protocol.errors import Forbidden
from edge.streams.observations import OBSERVATIONS
from edge.streams.running_query import RunningQuery


def reads(access: Access, iri: str) -> bool:
    """Return whether a client may read a stream. Observations are values of the default graph."""
    return access.reads(DEFAULT_GRAPH if iri == OBSERVATIONS else iri)


def may_write(access: Access, iri: str) -> bool:
    """Return whether a client may update, and write the graph with the name of a stream."""
    return "update" in access.actions and (access.write is None or iri in access.write)


def check_writes(access: Access, iri: str) -> None:
    """Raise `Forbidden` unless the client may update, and write the graph with the name of a stream."""
    if not may_write(access, iri):
        raise Forbidden(f'The client "{access.client}" may not write to {iri}; the operator can allow it')


def sees(query: RunningQuery, access: Access) -> bool:
    """Return whether a client may see a query: its results can contain whatever its owner may read."""
    if access.operates or _owns(query, access):
        return True
    return access.read is None or (query.access.read is not None and query.access.read <= access.read)


def check_owns(query: RunningQuery, access: Access) -> None:
    """Raise `Forbidden` unless a client has registered a query, or is an administrator."""
    if not (access.operates or _owns(query, access)):
        raise _not_owner("query")


def check_owner(owner: str, access: Access) -> None:
    """Raise `Forbidden` unless a client is the owner of a stream, or an administrator."""
    if owner != access.client and not access.operates:
        raise _not_owner("stream")


def _owns(query: RunningQuery, access: Access) -> bool:
    """Return whether a client has registered a query. A client with the name of a revoked one has not."""
    return (query.access.client, query.access.registration) == (access.client, access.registration)


def _not_owner(what: str) -> Forbidden:
    return Forbidden(f"The {what} belongs to another client; only that client and administrators can change it")
