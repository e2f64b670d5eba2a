"""Settings of the outbox."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator

from edge.config.keys import KIB, MIB, key
from edge.config.section import Section

_RESERVED = ("quarantine",)
"""Directories of the landing zone that no gateway may have as its name."""


class OutboxSettings(Section):
    """The outbox: observations stored on disk until the history has them."""

    gateway: str = key(
        "",
        "Name of this gateway in the history, unique there: letters, digits, dots and dashes. Empty: generated at the"
        " first start.",
    )
    graph: str = key(
        "urn:edge:history",
        "IRI of a graph. Triples that updates insert into it are stored for the history and never enter the live "
        "graph.",
    )
    max_bytes: int = key(
        64 * MIB,
        "Size of the observations that wait for the history. On disk they take about twice as much.",
        unit="bytes",
        minimum=64 * KIB,
    )
    when_full: Literal["drop-oldest", "refuse"] = key(
        "drop-oldest",
        '"drop-oldest": the gateway drops the oldest observations and reports the gap to the history. "refuse": '
        "updates that store observations fail, and readings wait at the broker, until some have been shipped.",
    )

    @field_validator("gateway")
    @classmethod
    def _name(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            raise ValueError(
                f'"{value}" is not a valid name: up to 64 letters, digits, dots and dashes, a letter or digit first'
            )
        if value in _RESERVED:
            raise ValueError(f'"{value}" is reserved for a directory of the landing zone')
        return value

    @field_validator("graph")
    @classmethod
    def _iri(cls, value: str) -> str:
        if not re.fullmatch(r"""[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|\\^`]+""", value):
            raise ValueError(f'"{value}" is not an absolute IRI')
        return value
