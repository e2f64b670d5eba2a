"""Types of settings keys: addresses, ports, paths, URLs, topic filters."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from edge.protocol.addresses import is_loopback


def absolute(path: Path | None, info: ValidationInfo) -> Path | None:
    """Return the absolute path. Relative ones are resolved against the settings file's directory.

    Resolving them against the current directory would make the result depend on where the command was started.
    """
    if path is None:
        return None
    base = info.context.get("base") if isinstance(info.context, dict) else None
    return (Path(base) if base is not None else Path.cwd()) / path.expanduser()


def _none_if_empty(value: object) -> object:
    return None if value == "" else value


def _loopback(host: str) -> str:
    """Accept loopback addresses only: unencrypted ports must not be reachable from the network (secure by default)."""
    if is_loopback(host):
        return host
    raise ValueError(
        f'"{host}" is not a loopback address, and this port has no security: anyone on the network could read and '
        'change the graph, or read the tokens of others. Keep "127.0.0.1", "::1" or "localhost" and give access over '
        "the secure ports (security.enabled and security.host) or an SSH tunnel (ssh -L)"
    )


def _address(host: str) -> str:
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f'"{host}" is not an address: use 0.0.0.0, ::, or one of this machine') from None
    return host


Host = Annotated[str, AfterValidator(_address)]
"""An address to listen on where every client must authenticate."""

BindHost = Annotated[str, AfterValidator(_loopback)]
"""An address to listen on without encryption: loopback addresses only."""

Port = Annotated[int, Field(ge=0, le=65535)]
"""A port to listen on; 0 is any free port."""


def _topic_filter(value: str) -> str:
    """Validate a topic filter (MQTT 3.1.1, section 4.7): `#` only as the last level, wildcards as whole levels."""
    levels = value.split("/")
    wrong = any("#" in level for level in levels[:-1]) or any(
        wildcard in level and level != wildcard for level in levels for wildcard in "+#"
    )
    if not value or "\0" in value or wrong:
        raise ValueError('must be an MQTT topic filter such as "sensors/+/temperature" or "zigbee2mqtt/#"')
    return value


TopicFilter = Annotated[str, AfterValidator(_topic_filter)]
"""An MQTT topic filter."""

OptionalPath = Annotated[Path | None, BeforeValidator(_none_if_empty), AfterValidator(absolute)]
"""A file or directory, or None for an empty text. Relative paths: see `absolute`."""

DirPath = Annotated[Path, AfterValidator(absolute)]
"""A directory. Relative paths: see `absolute`."""


def web_url(url: str) -> str:
    """Return the URL if it is encrypted or local. Content fetched over plain HTTP could be replaced on the way."""
    if not url:
        return url
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ValueError(f'"{url}" is not a URL: {error}') from None
    if any(character.isspace() for character in url) or not host or parts.username is not None:
        raise ValueError(f'"{url}" is not a URL such as https://auth.example.org/realms/home')
    # Keys and tokens pass over this URL.
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise ValueError(f'"{url}" is not encrypted: use https, or http on this machine')
    return url


WebUrl = Annotated[str, AfterValidator(web_url)]
"""An https URL, or an http URL of this machine. An empty text means none."""

IssuerAlgorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Public-key signature algorithms (RFC 7518, section 3.1; RFC 8037). No secret is shared with an issuer."""
