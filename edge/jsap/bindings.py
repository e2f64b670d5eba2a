"""Forced bindings: what a variable may be bound to, and a value as an RDF term (SEPA paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from edge.protocol.results import Term

Value = str | int | float | bool | Decimal | datetime | Term | Mapping[str, Any]
"""What a caller may bind: a Python value, an RDF term, or a binding object of the SPARQL JSON results."""


@dataclass(frozen=True, slots=True)
class ForcedBinding:
    """What a profile says about one forced binding."""

    name: str
    type: Literal["uri", "literal", "bnode"]
    datatype: str | None = None
    """IRI. None: plain, or what the value itself says."""
    language: str | None = None
    default: Term | None = None
    """None: who uses the entry must give a value."""
