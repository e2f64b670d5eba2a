"""Check of the certificates and their expiry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, ok
from edge.security import certificates

_SOON: Final = timedelta(days=14)
"""The gateway renews its own certificate earlier."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the certificates of the gateway, of its authority, and those for external servers."""
    settings = around.settings
    own = certificates.Files(settings.tls_dir)
    wanted: list[tuple[str, Path, str]] = []
    if settings.security.enabled:
        if settings.security.cert_file is not None:
            wanted.append(("the gateway's certificate", settings.security.cert_file, "replace it with a renewed one"))
        elif own.server.exists():
            wanted.append(("the gateway's certificate", own.server, "edge cert init"))
            wanted.append(
                (
                    "the authority's certificate",
                    own.authority,
                    "move it away, run `edge cert init`, distribute the new one to clients",
                )
            )
    for key, file in (
        ("mqtt.ca_file", settings.mqtt.ca_file),
        ("mqtt.cert_file", settings.mqtt.cert_file),
        ("offload.ca_file", settings.offload.ca_file),
        ("issuer.ca_file", settings.issuer.ca_file),
    ):
        if file is not None:
            wanted.append((key, file, "replace it with a renewed one"))
    now = datetime.fromtimestamp(around.now(), UTC)
    for name, file, do in wanted:
        yield _assess(name, file, do, now)
    if not wanted:
        yield ok("none are in use")


def _assess(name: str, file: Path, do: str, now: datetime) -> Finding:
    try:
        ends = certificates.ends(file)
    except certificates.CertificateRefused as error:
        return Finding("problem", f"{name}: {error.description}", "no client can connect that way", do)
    what, why = (
        f"{name} ({file}) is valid until {ends.date()}",
        "clients, or the gateway itself, refuse connections then",
    )
    # With a wrong clock, a valid certificate seems to have expired.
    if ends <= now:
        return Finding("problem", what, why, f"check the clock; then: {do}")
    return Finding("warning", what, why, do) if ends - now < _SOON else ok(what)
