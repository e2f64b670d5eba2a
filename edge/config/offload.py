"""Settings of the shipment of stored observations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, ValidationInfo

from edge.config.keys import OptionalPath, absolute, key, web_url
from edge.config.section import Section

_SCHEME: Final = "://"


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
    )
    every: float = key(
        300.0, "Time between two shipments, if observations wait.", unit="s", minimum=0.1, maximum=86_400
    )
    segment_rows: int = key(
        10_000,
        "Most observations in a segment. The gateway ships as soon as so many wait. 10,000 take a few MiB of memory "
        "for a short time.",
        minimum=1,
        maximum=100_000,
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
        None, "File whose first line is that token. The gateway reads it again for each shipment."
    )
    ca_file: OptionalPath = key(
        None,
        "PEM file with the certificate authorities that may sign the landing zone's certificate. Empty: the system's.",
    )

    @property
    def over_http(self) -> bool:
        """Whether the landing zone is an HTTP address, not a directory."""
        return _SCHEME in self.to
