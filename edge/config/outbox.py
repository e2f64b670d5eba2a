"""Settings of the outbox."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import field_validator

from edge.config.keys import KIB, MIB, key
from edge.config.section import Section

_RESERVED = ("quarantine",)


class OutboxSettings(Section):
    """What is stored for the history, until the history has it."""

    gateway: str = key(
        "",
        "Name of this gateway in the history, like no other there: letters, digits, dots and dashes. Empty: the "
        "gateway makes one up when it first starts.",
    )
    graph: str = key(
        "urn:edge:history",
        "IRI of a graph: what updates insert into it is stored for the history, and never enters the live graph.",
    )
    max_bytes: int = key(
        64 * MIB,
        "Size of the observations that wait for the history, at the most; on disk they take about twice as much.",
        unit="bytes",
        minimum=64 * KIB,
    )
    when_full: Literal["drop-oldest", "refuse"] = key(
        "drop-oldest",
        '"drop-oldest": the oldest of them go, and the history is told which. "refuse": updates that store something '
        "fail, and readings wait at the broker, until some have been sent.",
    )

    @field_validator("gateway")
    @classmethod
    def _name(cls, value: str) -> str:
        if value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            raise ValueError(
                f'"{value}" is no name: up to 64 letters, digits, dots and dashes, a letter or digit first'
            )
        if value in _RESERVED:
            raise ValueError(f'"{value}" is what the landing zone calls a directory of its own')
        return value

    @field_validator("graph")
    @classmethod
    def _iri(cls, value: str) -> str:
        if not re.fullmatch(r"""[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|\\^`]+""", value):
            raise ValueError(f'"{value}" is no absolute IRI')
        return value
