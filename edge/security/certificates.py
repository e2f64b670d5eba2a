"""Local certificate authority, and the gateway's certificate that it signs (X.509, RFC 5280).

Clients trust `ca.pem`. Anyone with `ca.key` can impersonate the gateway. The key may be stored elsewhere, but then the
gateway cannot renew its certificate.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edge import durable
from edge.protocol.errors import EdgeError

_AUTHORITY: Final = timedelta(days=3650)
_SERVER: Final = timedelta(days=397)
"""Lifetime of the gateway's certificate: the longest that browsers accept."""
_RENEW: Final = timedelta(days=30)
"""Remaining lifetime at which a certificate is renewed."""
_SLACK: Final = timedelta(days=1)
"""Tolerance for slow clocks of clients."""
_EPOCH: Final = datetime(2025, 1, 1, tzinfo=UTC)
"""Earliest plausible time: a host without a clock battery starts in 1970 until NTP has set the clock."""
_SECRET: Final = 0o600
_LABEL: Final = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")


class CertificateRefused(EdgeError):
    """A certificate or key cannot be created, read or written."""

    error: ClassVar[str] = "certificate_unusable"


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of the certificates and keys. Only their owner can read the keys."""

    directory: Path

    @property
    def authority(self) -> Path:
        """Certificate of the authority, which clients trust."""
        return self.directory / "ca.pem"

    @property
    def authority_key(self) -> Path:
        """Private key of the authority."""
        return self.directory / "ca.key"

    @property
    def server(self) -> Path:
        """Certificate of the gateway, followed by that of the authority."""
        return self.directory / "server.pem"

    @property
    def server_key(self) -> Path:
        """Private key of the gateway."""
        return self.directory / "server.key"


def make(directory: Path, names: Iterable[str] = ()) -> Files:
    """Create a certificate for these names and addresses, and an authority if necessary. Raises `CertificateRefused`.

    It always includes the names of this machine, and those of the existing certificate.
    """
    files = Files(directory)
    try:
        for made in (
            directory.parent,
            directory,
        ):  # only the owner may access a data directory, whichever command creates it
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        if files.authority.exists():
            authority, key = _certificate(files.authority), _key(files.authority_key)
        else:
            authority, key = _make_authority(files)
        # A dictionary, because it removes duplicates and keeps the order of the names.
        wanted = dict.fromkeys([*_own_names(), *_names_in(files.server), *names])
        own = generate_private_key(SECP256R1())
        certificate = _sign(own.public_key(), [_general(name) for name in wanted], authority, key)
        # Write the key first: the gateway loads only a matching pair, so it ignores a half-written one.
        durable.write(files.server_key, _private(own), mode=_SECRET)
        durable.write(files.server, certificate.public_bytes(Encoding.PEM) + authority.public_bytes(Encoding.PEM))
    except OSError as error:
        raise CertificateRefused(f"{error.filename or directory}: {error.strerror or error}") from error
    return files


def ensure(directory: Path, *, repair: bool = False) -> Files:
    """Return the certificate; create one if it is missing or expires soon. Raises `CertificateRefused`.

    `repair` also replaces a certificate that does not match its key, as after a power cut between the two writes. Use
    it only without a concurrent writer: between the two files of another writer it would create a third pair.
    """
    files = Files(directory)
    if not files.server.exists():
        return make(directory)
    if files.authority_key.exists() and (_ends_soon(files.server) or (repair and not _is_pair(files))):
        return make(directory)
    return files


def _is_pair(files: Files) -> bool:
    """Return whether the gateway's key matches its certificate."""
    try:
        return _key(files.server_key).public_key() == _certificate(files.server).public_key()
    except CertificateRefused:
        return False


def _ends_soon(file: Path) -> bool:
    return _certificate(file).not_valid_after_utc - datetime.now(UTC) < _RENEW


def names(file: Path) -> list[str]:
    """Return the names and addresses of a certificate. Raises `CertificateRefused`."""
    try:
        extension = _certificate(file).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in extension.value]


def given_name(file: Path) -> str | None:
    """Return the first name of a certificate that does not denote this machine. Raises `CertificateRefused`."""
    own = _own_names()
    return next((name for name in names(file) if name not in own and not name.startswith("*")), None)


def ends(file: Path) -> datetime:
    """Return the expiry of a certificate. Raises `CertificateRefused`."""
    return _certificate(file).not_valid_after_utc


def describe(file: Path) -> dict[str, object]:
    """Return names, issuer, validity (ISO 8601) and SHA-256 fingerprint of a certificate.

    Raises `CertificateRefused`.
    """
    certificate = _certificate(file)
    return {
        "names": names(file),
        "issuer": certificate.issuer.rfc4514_string(),
        "not_before": certificate.not_valid_before_utc.isoformat(),
        "not_after": certificate.not_valid_after_utc.isoformat(),
        "sha256": certificate.fingerprint(SHA256()).hex(":"),
    }


def _names_in(file: Path) -> list[str]:
    return names(file) if file.exists() else []


def _own_names() -> list[str]:
    host = socket.gethostname().lower()
    found = ["localhost", "127.0.0.1", "::1"]
    return [*found, *([host, f"{host.partition('.')[0]}.local"] if _is_name(host) else [])]


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if not _is_name(name):
        raise CertificateRefused(f'"{name}" is neither a host name nor an IP address')
    return x509.DNSName(name.lower())


def _is_name(name: str) -> bool:
    labels = name.lower().split(".")
    return len(name) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


def _make_authority(files: Files) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    key = generate_private_key(SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"sepa-edge on {socket.gethostname()}"[:64])])
    now = _now()
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + _AUTHORITY)
        # Path length 0: it signs server certificates, but no further authorities.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    # The key first, as in `make`: a certificate without its key could sign nothing.
    durable.write(files.authority_key, _private(key), mode=_SECRET)
    durable.write(files.authority, certificate.public_bytes(Encoding.PEM))
    return certificate, key


def _sign(
    public: EllipticCurvePublicKey,
    alternatives: list[x509.GeneralName],
    authority: x509.Certificate,
    key: EllipticCurvePrivateKey,
) -> x509.Certificate:
    now = _now()
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sepa-edge gateway")]))
        .issuer_name(authority.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        # Beyond the end of the authority, clients would reject the chain anyway.
        .not_valid_after(min(now + _SERVER, authority.not_valid_after_utc))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )


def _certificate(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        raise CertificateRefused(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CertificateRefused(
            f"{file} is not a certificate, or is damaged ({str(error).partition('. ')[0]}). Put a good copy in its "
            "place; one that the gateway made itself can be moved away, and `edge cert init` makes another"
        ) from error


def _key(file: Path) -> EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except OSError as error:
        raise CertificateRefused(
            f"{file} cannot be read: {error.strerror}; without the authority's key it signs no certificate"
        ) from error
    except (ValueError, TypeError) as error:
        raise CertificateRefused(
            f"{file} is not a private key, or is damaged ({str(error).partition('. ')[0]}). Put a good copy in its "
            "place"
        ) from error
    if not isinstance(key, EllipticCurvePrivateKey):
        raise CertificateRefused(f"{file} is not the key that `edge cert init` made")
    return key


def _private(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _now() -> datetime:
    return max(datetime.now(UTC), _EPOCH)
