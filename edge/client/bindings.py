"""Values for the variables of an entry: also terms as they come in rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from edge.jsap import Entry, Value
from edge.protocol.results import Term

Bindable = Value | Term
"""A row's terms can be bound as they are. (A triple cannot: `BindingError`.)"""


def text_with(entry: Entry, bindings: Mapping[str, Bindable]) -> str:
    """The SPARQL of an entry with these values. Raises `BindingError`."""
    return entry.text(cast("Mapping[str, Value]", bindings))
