"""Graphs, rows of results and permissions as the text that the store holds."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyoxigraph as ox

from edge.protocol.access import ANYBODY, Access
from edge.protocol.results import Row, Term


def parsed(graph: bytes) -> tuple[ox.Triple, ...]:
    """Return the triples of N-Triples that `serialized` wrote."""
    return tuple(quad.triple for quad in ox.parse(graph, ox.RdfFormat.N_TRIPLES, lenient=True))


def serialized(triples: Iterable[ox.Triple]) -> bytes:
    """Return triples as N-Triples."""
    return b"".join(b"%s .\n" % str(triple).encode() for triple in triples)


def encode_row(row: Row) -> str:
    """Return a row as text."""
    return json.dumps([None if term is None else str(term) for term in row], ensure_ascii=False)


def decode_row(text: str) -> Row:
    """Return a row that `encode_row` wrote."""
    return tuple(None if term is None else _term(term) for term in json.loads(text))


def _term(text: str) -> Term:
    (triple,) = parsed(f"<urn:s> <urn:p> {text} .\n".encode())
    return triple.object


def encode_access(access: Access) -> str:
    """Return what is stored of the permissions of a client."""
    limits = {name: sorted(graphs) for name in ("read", "write") if (graphs := getattr(access, name)) is not None}
    return json.dumps({"client": access.client, "registration": access.registration, **limits})


def decode_access(text: str) -> Access:
    """Return stored permissions."""
    found = json.loads(text)
    if not found["client"] and len(found) == 2:
        return ANYBODY
    read, write = (frozenset(found[name]) if name in found else None for name in ("read", "write"))
    return Access(found["client"], read=read, write=write, registration=found["registration"])
