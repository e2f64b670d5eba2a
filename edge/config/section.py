"""What a table of the settings file is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
