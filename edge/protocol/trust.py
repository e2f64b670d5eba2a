"""Certificate verification of TLS connections."""

from __future__ import annotations

import ssl
from pathlib import Path


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """Return a TLS context for clients that verifies certificates against `ca_file`, or else the system's
    authorities.

    Since Python 3.13, the default is to reject authorities without a key usage extension (RFC 5280, section 4.2.1.3).
    Many private authorities, such as those made by Mosquitto's manual, lack it. This context accepts them. Raises
    `OSError`, `ssl.SSLError`.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
