"""Addresses of a broker: the URLs of its three services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

Method = Literal["GET", "POST", "URLENCODED_POST"]
"""Request form of the SPARQL 1.1 Protocol: text in the URL, as the body, or as a form field."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """URLs for queries, updates and subscriptions, and request forms. Defaults: a gateway on this machine."""

    query: str = "http://127.0.0.1:8000/query"
    update: str = "http://127.0.0.1:8000/update"
    subscribe: str = "ws://127.0.0.1:9000/subscribe"
    query_method: Method = "URLENCODED_POST"
    update_method: Method = "URLENCODED_POST"

    def __post_init__(self) -> None:
        for url in (self.query, self.update):
            _check(url, ("http", "https"))
        _check(self.subscribe, ("ws", "wss"))
        if self.update_method == "GET":
            raise ValueError("updates are not sent with GET")

    @property
    def urls(self) -> tuple[str, str, str]:
        """URLs of the three services."""
        return self.query, self.update, self.subscribe

    @classmethod
    def at(cls, host: str, *, http_port: int = 8000, ws_port: int = 9000) -> Endpoints:
        """Return the endpoints of a gateway on another machine, with the default paths."""
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        http = f"http://{host}:{http_port}"
        return cls(f"{http}/query", f"{http}/update", f"ws://{host}:{ws_port}/subscribe")


def host_and_port(url: str) -> tuple[str, int]:
    """Return host, in lower case, and port."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]


def sibling(url: str, path: str) -> str:
    """Return the URL of another path on the same server."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{path}"


def _check(url: str, schemes: tuple[str, ...]) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f'"{url}" is not an address such as {schemes[0]}://127.0.0.1:8000/path')
