"""From the sections of the settings to the settings of the parts, which know nothing of files."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_Settings = TypeVar("_Settings")


def part(kind: type[_Settings], section: object, **others: object) -> _Settings:
    """The settings of one part of the house: keys of the same name from a section, and `others`."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass, which TypeVar cannot say
    found: dict[str, Any] = {name: getattr(section, name) for name in names if hasattr(section, name)}
    return kind(**{**found, **others})
