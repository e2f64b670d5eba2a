"""Limits for the cost of one message, set when the gateway is composed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MappingLimits:
    """Limits for each message, and sizes of the mapper's caches. The defaults suit a Raspberry Pi."""

    payload: int = 256 * 1024
    """Maximum payload in bytes; a larger one is a problem and is not read."""
    readings: int = 1000
    """Maximum readings of one message; further ones are dropped, with one problem."""
    problems: int = 50
    """Maximum reported problems of one message."""
    digits: int = 64
    """Maximum length of a number in characters."""
    text: int = 65_536
    """Maximum length of a string value in characters."""
    regex_text: int = 4096
    """Maximum length of a payload (or string) for regular expressions, in characters."""
    topics: int = 16_384
    """Topics with cached mappings; an entry takes some hundred bytes."""
    terms: int = 16_384
    """Cached sets of terms for observations named by the payload (SenML names, captured keys)."""
