"""Settings of shipping: where stored observations go, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, ValidationInfo

from edge.config.keys import OptionalPath, absolute, key, web_url
from edge.config.section import Section

_SCHEME: Final = "://"


def _place(value: str, info: ValidationInfo) -> str:
    if _SCHEME in value:
        return web_url(value)
    return str(absolute(Path(value), info)) if value else ""


class OffloadSettings(Section):
    """Shipping of stored observations to a landing zone, from which the history on Spark takes them."""

    to: Annotated[str, AfterValidator(_place)] = key(
        "",
        "Landing zone: a directory, of this machine or mounted, or the https address of `edge-history receive` (http "
        "on this machine). Empty: nothing is shipped.",
    )
    every: float = key(
        300.0, "Time between two shipments, where there is something.", unit="s", minimum=0.1, maximum=86_400
    )
    segment_rows: int = key(
        10_000,
        "Observations in a segment, at the most; when so many wait they are shipped at once. 10,000 take a few MiB of "
        "memory for a moment.",
        minimum=1,
        maximum=100_000,
    )
    retry_min: float = key(
        1.0,
        "First wait before a new attempt when the landing zone cannot be reached; it doubles each time.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    retry_max: float = key(300.0, "Longest wait between two attempts.", unit="s", minimum=0.1, maximum=86_400)
    timeout: float = key(
        30.0, "Time without a sign of life after which a request over HTTP is given up.", unit="s", minimum=0.1
    )
    token: str = key(
        "",
        "Token of this gateway, from `edge-history gateways add`. Better in token_file or the environment.",
        secret=True,
    )
    token_file: OptionalPath = key(None, "File whose first line is that token; read again whenever something is sent.")
    ca_file: OptionalPath = key(
        None, "PEM file of the authorities that may sign the landing zone's certificate. Empty: the system's."
    )

    @property
    def over_http(self) -> bool:
        """Whether the landing zone is not a directory."""
        return _SCHEME in self.to
