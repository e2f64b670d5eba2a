"""Whom a connection with TLS trusts."""

from __future__ import annotations

import ssl
from pathlib import Path


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """A context for clients: certificates are checked, against those authorities or, without a file, the system's.

    From Python 3.13 on an authority has to say what its key is for (RFC 5280, section 4.2.1.3); many that people made
    by a manual, Mosquitto's for one, do not. They are trusted as before. Raises `OSError`, `ssl.SSLError`.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
