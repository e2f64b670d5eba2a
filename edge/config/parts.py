"""Conversion of settings sections to the settings of components, which do not depend on `edge.config`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

_Settings = TypeVar("_Settings")


def part(kind: type[_Settings], section: object, **others: object) -> _Settings:
    """Return the settings of one component.

    Fields are taken from the attributes of `section` with the same name, and from `others`, which take precedence.
    `kind` must be a dataclass.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass, which TypeVar cannot say
    found: dict[str, Any] = {name: getattr(section, name) for name in names if hasattr(section, name)}
    return kind(**{**found, **others})
