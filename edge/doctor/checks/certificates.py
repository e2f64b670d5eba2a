"""Check of the certificates and their expiry."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from edge.doctor.context import DoctorContext
from edge.doctor.finding import Finding, State, ok
from edge.security import certificates

_SOON: Final = timedelta(days=14)
"""The gateway renews its own certificate earlier."""


def check(around: DoctorContext) -> Iterator[Finding]:
    """Check the certificates of the gateway, of its authority, and those for external servers."""
    settings = around.settings
    own = certificates.Files(settings.tls_dir)
    wanted: list[tuple[str, str, Path]] = []
    """Kind of the certificate, the setting that names it, and its file."""
    if settings.security.enabled and settings.security.cert_file is None and own.server.exists():
        wanted += [("own", "", own.server), ("authority", "", own.authority)]
    for setting, file in (
        ("security.cert_file", settings.security.cert_file if settings.security.enabled else None),
        ("mqtt.ca_file", settings.mqtt.ca_file),
        ("mqtt.cert_file", settings.mqtt.cert_file),
        ("offload.ca_file", settings.offload.ca_file),
        ("issuer.ca_file", settings.issuer.ca_file),
    ):
        if file is not None:
            wanted.append(("file", setting, file))
    now = datetime.fromtimestamp(around.now(), UTC)
    for kind, setting, file in wanted:
        yield _assess(kind, setting, file, now)
    if not wanted:
        yield ok("certificates.none")


def _assess(kind: str, setting: str, file: Path, now: datetime) -> Finding:
    values = {"setting": setting} if setting else {}
    try:
        ends = certificates.ends(file)
    except certificates.CertificateRefused as error:
        return Finding("problem", f"certificates.refused_{kind}", {**values, "reason": error.description})
    values |= {"file": str(file), "date": str(ends.date())}
    # With a wrong clock, a valid certificate seems to have expired.
    if ends <= now:
        return Finding("problem", f"certificates.expired_{kind}", values)
    state: State = "warning" if ends - now < _SOON else "ok"
    return Finding(state, f"certificates.valid_{kind}", values)
