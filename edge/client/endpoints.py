"""Where a broker is: the URLs of its three services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlsplit

Method = Literal["GET", "POST", "URLENCODED_POST"]
"""How the SPARQL 1.1 Protocol sends a text: in the URL, as the body, or as a field of a form."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Three URLs, and how to send to two of them. The defaults are those of a gateway on this machine."""

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

    @classmethod
    def at(cls, host: str, *, http_port: int = 8000, ws_port: int = 9000) -> Endpoints:
        """A gateway on another machine, with the usual paths."""
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"
        http = f"http://{host}:{http_port}"
        return cls(f"{http}/query", f"{http}/update", f"ws://{host}:{ws_port}/subscribe")


def place(url: str) -> tuple[str, int]:
    """Host, in lower case, and port."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or _DEFAULT_PORTS[parts.scheme]


def sibling(url: str, path: str) -> str:
    """The URL of another path on the same server."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{path}"


def _check(url: str, schemes: tuple[str, ...]) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f'"{url}" is not an address; it looks like {schemes[0]}://127.0.0.1:8000/path')
