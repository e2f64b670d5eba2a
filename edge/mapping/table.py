"""A table of a mapping file: what it does not know is a fault."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """The base of all tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)
