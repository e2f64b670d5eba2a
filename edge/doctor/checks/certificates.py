"""Do the certificates count, and for how long?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from edge.doctor.context import Context
from edge.doctor.finding import Finding, ok
from edge.security import certificates

_SOON: Final = timedelta(days=14)
"""The gateway renews its own certificate earlier than that."""


def check(around: Context) -> Iterator[Finding]:
    """Of the gateway itself, of its authority, and those that it shows to or expects of others."""
    settings = around.settings
    own = certificates.Files(settings.tls_dir)
    wanted: list[tuple[str, Path, str]] = []
    if settings.security.enabled:
        if settings.security.cert_file is not None:
            wanted.append(
                ("the gateway's certificate", settings.security.cert_file, "put the renewed one in its place")
            )
        elif own.server.exists():
            wanted.append(("the gateway's certificate", own.server, "edge cert init"))
            wanted.append(
                ("the authority's certificate", own.authority, "move it away, `edge cert init`, tell the clients")
            )
    for key, file in (
        ("mqtt.ca_file", settings.mqtt.ca_file),
        ("mqtt.cert_file", settings.mqtt.cert_file),
        ("offload.ca_file", settings.offload.ca_file),
        ("issuer.ca_file", settings.issuer.ca_file),
    ):
        if file is not None:
            wanted.append((key, file, "put the renewed one in its place"))
    now = datetime.fromtimestamp(around.now(), UTC)
    for name, file, do in wanted:
        yield _judge(name, file, do, now)
    if not wanted:
        yield ok("there are none to look after")


def _judge(name: str, file: Path, do: str, now: datetime) -> Finding:
    try:
        ends = certificates.ends(file)
    except certificates.CertificateRefused as error:
        return Finding("problem", f"{name}: {error.description}", "nobody can connect that way", do)
    what, why = f"{name} ({file}) counts until {ends.date()}", "clients, or the gateway itself, refuse connections then"
    if ends <= now:
        return Finding("problem", what, why, f"see that the clock is right; then: {do}")
    return Finding("warning", what, why, do) if ends - now < _SOON else ok(what)
