"""Solutions of a SELECT that a gateway has answered (SPARQL 1.1 Query Results JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from edge.sparql import terms as rdf
from spark_offload.errors import GatewayRefused

Term = rdf.Iri | rdf.Literal | rdf.BlankNode


@dataclass(frozen=True, slots=True)
class GatewaySolutions:
    """Solutions of a SELECT."""

    variables: tuple[str, ...]
    rows: tuple[tuple[Term | None, ...], ...]
    """A term for each variable; None means unbound."""


def parsed(url: str, body: bytes) -> GatewaySolutions:
    """Parse the answer of the endpoint `url`. Raises `GatewayRefused`."""
    labels: dict[str, rdf.BlankNode] = {}
    try:
        document = json.loads(body)
        variables = tuple(map(str, document["head"]["vars"]))
        rows = tuple(
            tuple(_term(row[name], labels) if name in row else None for name in variables)
            for row in document["results"]["bindings"]
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise GatewayRefused(f"{url} is not a SPARQL endpoint ({error!r}): is the path /query?") from None
    return GatewaySolutions(variables, rows)


def _term(member: Mapping[str, Any], labels: dict[str, rdf.BlankNode]) -> Term:
    text, kind = str(member["value"]), member["type"]
    if kind == "uri":
        return rdf.Iri(text)
    if kind == "bnode":  # labels are scoped to one answer
        return labels.setdefault(text, rdf.BlankNode(f"b{uuid4().hex}"))
    if kind not in ("literal", "typed-literal"):
        raise ValueError(f"a term of type {kind}")
    if language := member.get("xml:lang"):
        return rdf.Literal(text, language)
    return rdf.Literal(text, datatype=rdf.Iri(member.get("datatype", rdf.STRING)))
