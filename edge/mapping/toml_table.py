"""Base of the tables of a mapping file: unknown keys are faults."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Table(BaseModel):
    """Base class of all tables."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
