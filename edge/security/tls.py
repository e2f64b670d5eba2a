"""TLS of the secure ports, with a certificate that is reloaded when its files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Final

from edge.protocol.errors import EdgeError
from edge.security.certificates import CertificateRefused, ensure, given_name

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""TLS 1.2 with forward secrecy and authenticated encryption only (RFC 9325, section 4.2); TLS 1.3 has no others."""
_LOOK: Final = 10.0
"""Seconds between two checks of the files."""

_log = logging.getLogger(__name__)


class Tls:
    """Server side of TLS. `context` is shared by all ports."""

    def __init__(self, directory: Path, certificate: Path | None, key: Path | None) -> None:
        """Load or create the certificate.

        Without `certificate`: one of the local authority, in `directory`. Without `key`: the certificate's file
        contains it. Raises `CertificateRefused`.
        """
        self._directory = directory
        self._given = certificate
        self._key = key
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(_CIPHERS)
        # Renegotiation of TLS 1.2 would let one connection cause many expensive handshakes.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        context.set_alpn_protocols(["http/1.1"])
        self.context = context
        self.name: str | None = None
        """Name of the gateway in the certificate, other than the names of this machine."""
        self._loaded: list[tuple[str, int, int]] = []
        self.reload()

    def reload(self) -> bool:
        """Load the certificate if its files have changed; new connections use it.

        Raises `CertificateRefused`; the previous certificate stays in use.
        """
        if self._given is None:
            files = ensure(self._directory, repair=not self._loaded)
            certificate, key = files.server, files.server_key
        else:
            certificate, key = self._given, self._key or self._given
        try:
            # A replaced file has another inode, even if its time is the same.
            found = [(str(file), file.stat().st_mtime_ns, file.stat().st_ino) for file in (certificate, key)]
            if found == self._loaded:
                return False
            # Try it on another context first: half of a pair that does not match would remain in this one.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
            self.context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise CertificateRefused(f"{certificate} and {key} cannot be used: {error}") from error
        self._loaded = found
        self.name = _name(certificate)
        return True

    async def run(self) -> None:
        """Reload renewed certificates, forever."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                if await asyncio.to_thread(self.reload):
                    _log.info("certificate.reloaded")
            except EdgeError as error:
                _log.error("certificate.unusable", extra={"reason": error.description})


def _name(certificate: Path) -> str | None:
    """Return the name in the certificate, or None, also for a certificate that only OpenSSL can parse."""
    try:
        return given_name(certificate)
    except CertificateRefused:
        return None


def _no_password() -> str:
    raise ValueError("the private key is encrypted, and nobody is here to type its password")
