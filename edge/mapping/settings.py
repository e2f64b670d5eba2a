"""Bounds on what one message may cost, passed in by whoever composes the gateway."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MappingLimits:
    """Bounds per message and sizes of the mapper's caches. The defaults suit a Raspberry Pi."""

    payload: int = 256 * 1024
    """Bytes of a payload; a larger one is a problem and is not read."""
    readings: int = 1000
    """Readings from one message; what is beyond is dropped, with one problem."""
    problems: int = 50
    """Problems told of one message."""
    digits: int = 64
    """Characters of a number."""
    text: int = 65_536
    """Characters of a string value."""
    regex_text: int = 4096
    """Characters of a payload (or string) that a regular expression is tried on."""
    topics: int = 16_384
    """Topics whose mappings are remembered; an entry is some hundred bytes."""
    terms: int = 16_384
    """Sets of terms remembered for observations named by the payload (SenML names, captured keys)."""
