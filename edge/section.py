"""Declaration of settings: the base class of a table of the settings file, and one key of it."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

KIB: Final = 1024
MIB: Final = 1024 * KIB


class Section(BaseModel):
    """A table of the settings file. Instances are immutable, and unknown keys are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def key(
    default: object,
    description: str,
    *,
    unit: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    secret: bool = False,
    basic: bool = False,
    default_text: str = "",
) -> Any:  # noqa: ANN401 - stands for a value of the annotated type, as pydantic.Field does
    """Declare one key of a settings section.

    `description` is a sentence for the operator. `unit` is the unit of the value ("s", "bytes", ...). `minimum` and
    `maximum` are inclusive bounds. A `secret` is never shown or logged. A `basic` key is one that most operators look
    at; the documentation lists these first. `default_text` replaces a default that depends on the machine in the
    documentation; `default` is a function then.
    """
    about: dict[str, Any] = {"unit": unit, "secret": secret, "basic": basic, "default_text": default_text}
    extra = {name: value for name, value in about.items() if value}
    if callable(default):
        return Field(default_factory=default, description=description, ge=minimum, le=maximum, json_schema_extra=extra)
    return Field(default, description=description, ge=minimum, le=maximum, json_schema_extra=extra, repr=not secret)


def fixed(default: object, description: str) -> Any:  # noqa: ANN401 - as of `key`
    """Declare a value that components read and tests vary, but that no operator can choose: it is no key of the file.

    `description` is a sentence for developers.
    """
    return Field(default, description=description, json_schema_extra={"fixed": True})
