"""Resources of the continuous queries."""

from __future__ import annotations

from typing import Final

from edge.gates.http.documents import DocumentKind

QUERIES: Final = DocumentKind(
    "/api/queries",
    "application/sparql-query",
    ("application/sparql-query",),
    "A continuous query reads all graphs, and everybody who may read its topic sees the result",
)
