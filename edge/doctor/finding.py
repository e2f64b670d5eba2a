"""Findings of checks: a code with values, from which the texts are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from edge.doctor.texts import TEXTS

State = Literal["ok", "warning", "problem", "unknown"]
"""A warning becomes a problem without action; `unknown`: the check was not possible."""

Value = str | int | float
"""Numbers are rounded for people. Numbers that are names, such as ports, are texts."""

Fix = Callable[[], None]
"""Applies a safe fix. Raises `OSError`, `EdgeError`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. Its texts are without a full stop."""

    state: State
    code: str
    """Name of its texts in `edge.doctor.texts`; stable, for programs and for other languages."""
    values: Mapping[str, Value] = field(default_factory=dict)
    """Values of the placeholders in the texts."""
    fix: Fix | None = None
    """Applies the remedy, if that is safe."""

    def __post_init__(self) -> None:
        """Raise `LookupError`, `ValueError` or `TypeError` for values that do not fit the texts.

        Made in a check, such a finding ends that check alone.
        """
        _ = self.what, self.why, self.do, self.fix and self.done

    @property
    def what(self) -> str:
        """State with figures."""
        return TEXTS[self.code].what.format_map(self.values)

    @property
    def why(self) -> str:
        """Reason why it matters; empty without a problem."""
        return "" if self.state == "ok" else TEXTS[self.code].why.format_map(self.values)

    @property
    def do(self) -> str:
        """Remedy; empty without a problem."""
        return "" if self.state == "ok" else TEXTS[self.code].do.format_map(self.values)

    @property
    def done(self) -> str:
        """Result of `fix`."""
        return TEXTS[self.code].done.format_map(self.values)

    def row(self) -> dict[str, object]:
        """Return the members that all reports for programs have."""
        return {
            "state": self.state,
            "code": self.code,
            "values": dict(self.values),
            "what": self.what,
            "why": self.why,
            "do": self.do,
        }


def ok(code: str, **values: Value) -> Finding:
    """Return a finding without problems."""
    return Finding("ok", code, values)


def unknown(code: str, **values: Value) -> Finding:
    """Return a finding for a check that was not possible."""
    return Finding("unknown", code, values)


def warning(code: str, fix: Fix | None = None, /, **values: Value) -> Finding:
    """Return a finding that becomes a problem without action."""
    return Finding("warning", code, values, fix)


def problem(code: str, fix: Fix | None = None, /, **values: Value) -> Finding:
    """Return a finding about a problem."""
    return Finding("problem", code, values, fix)
