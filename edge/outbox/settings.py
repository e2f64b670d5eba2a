"""Settings of the outbox, and of the shipment of stored observations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ValidationInfo, field_validator

from edge.outbox.segment import MOST_ROWS
from edge.section import KIB, MIB, Section, key
from edge.section_types import OptionalPath, absolute, web_url

_SCHEME: Final = "://"

_RESERVED = ("quarantine",)
"""Directories of the landing zone that no gateway may have as its name."""


class OutboxSettings(Section):
    """The outbox: observations stored on disk until the history has them."""

    gateway: str = key(
        "",
        "Name of this gateway in the history, unique there: letters, digits, dots and dashes. Empty: generated at the"
        " first start.",
        basic=True,
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


def _landing_zone(value: str, info: ValidationInfo) -> str:
    if _SCHEME in value:
        return web_url(value)
    return str(absolute(Path(value), info)) if value else ""


class OffloadSettings(Section):
    """Shipping of stored observations to a landing zone, from which the history on Spark takes them."""

    to: Annotated[str, AfterValidator(_landing_zone)] = key(
        "",
        "Landing zone: a local or mounted directory, or the https address of `edge-history receive` (http on this "
        "machine). Empty: no shipment.",
        basic=True,
    )
    every: float = key(
        300.0, "Time between two shipments, if observations wait.", unit="s", minimum=0.1, maximum=86_400
    )
    segment_rows: int = key(
        10_000,
        "Most observations in a segment. The gateway ships as soon as so many wait. 10,000 take a few MiB of memory "
        "for a short time.",
        minimum=1,
        maximum=MOST_ROWS,
    )
    retry_min: float = key(
        1.0,
        "First back-off if the landing zone cannot be reached; it doubles with each attempt.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    retry_max: float = key(300.0, "Longest back-off between two attempts.", unit="s", minimum=0.1, maximum=86_400)
    timeout: float = key(
        30.0, "Time without data after which the gateway aborts an HTTP request.", unit="s", minimum=0.1
    )
    token: str = key(
        "",
        "Token of this gateway, from `edge-history gateways add`. Prefer token_file or the environment.",
        secret=True,
    )
    token_file: OptionalPath = key(
        None,
        "File whose first line is that token. The gateway reads it again for each shipment.",
        basic=True,
    )
    ca_file: OptionalPath = key(
        None,
        "PEM file with the certificate authorities that may sign the landing zone's certificate. Empty: the system's.",
    )

    @property
    def over_http(self) -> bool:
        """Whether the landing zone is an HTTP address, not a directory."""
        return _SCHEME in self.to
