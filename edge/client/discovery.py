"""Addresses of the gateway: given by the program, by `EDGE_URL`, by the endpoints file, or by the gateway itself."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import re
import ssl
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit, urlunsplit

import httpx

from edge.client.authorization import GatewayToken
from edge.client.endpoints import Endpoints, host_and_port
from edge.client.errors import BadAnswer, NoAnswer, reason
from edge.client.http_body import ENDPOINTS_BYTES, PLAIN, read_body
from edge.client.options import Options
from edge.data_directory import configured_data_dir, default_data_dir
from edge.protocol.addresses import is_loopback

URL: Final = "EDGE_URL"
"""Environment variable with the HTTP address of the gateway."""
TOKEN: Final = "EDGE_TOKEN"  # noqa: S105 - the name of the environment variable that holds it
_AUTHORITIES: Final = "SSL_CERT_FILE"
_FILE: Final = "endpoints.json"
"""File in the data directory of a running gateway with URL by service."""
_TIMEOUT: Final = 5.0
"""Seconds for the whole answer with the addresses of a gateway."""

_log = logging.getLogger("edge.client")


class BrokerAddress(Protocol):
    """Where a broker is."""

    @property
    def key(self) -> str:
        """Text that equal addresses of a WebSocket share."""
        ...

    @property
    def changes(self) -> bool:
        """Whether the address is looked up before each attempt to connect."""
        ...

    @property
    def named_by_gateway(self) -> bool:
        """Whether the gateway returns the address of its WebSocket."""
        ...

    def endpoints(self) -> Endpoints:
        """Return the addresses that are known now."""
        ...

    def subscribe_url(self, last: str) -> str:
        """Return the current address of the WebSocket; may block. `last`: the one that was used last.

        Raises `NoAnswer` and `BadAnswer`.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FixedAddress:
    """Addresses that the program gives."""

    known: Endpoints
    changes = False
    named_by_gateway = False

    @property
    def key(self) -> str:
        """URL of the WebSocket."""
        return self.known.subscribe

    def endpoints(self) -> Endpoints:
        """Return the addresses."""
        return self.known

    def subscribe_url(self, last: str) -> str:
        """Return the last address."""
        return last


class UrlAddress:
    """HTTP address of a gateway, which returns the address of its WebSocket (`GET /api/endpoints`)."""

    changes = True
    named_by_gateway = True

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        """Raises `ValueError` if the URL is not one such as http://gateway.local:8000."""
        base = url.rstrip("/")
        try:
            parts = urlsplit(base)
            good = not (parts.query or parts.fragment or parts.username is not None)
        except ValueError:
            good = False
        if not good:
            raise ValueError(f'"{url}" is not an address such as http://127.0.0.1:8000')
        if parts.netloc and parts.path:
            root = f"{parts.scheme}://{parts.netloc}"
            raise ValueError(f'"{url}" has a path. Give the address of the gateway without it, such as {root}')
        base = urlunsplit(parts)  # with the scheme in lower case
        self._base = base
        self._tls = tls
        # The port is unknown until the gateway has answered.
        socket = "wss" if parts.scheme == "https" else "ws"
        self._known = Endpoints(f"{base}/query", f"{base}/update", f"{socket}://{parts.netloc}/subscribe")

    @property
    def key(self) -> str:
        """URL of the gateway."""
        return self._base

    def endpoints(self) -> Endpoints:
        """Return the addresses; that of the WebSocket is a guess until the gateway has answered."""
        return self._known

    def subscribe_url(self, last: str) -> str:
        """Ask the gateway. The host is that of the given URL, so that a token cannot go to another one.

        Call it on a thread without a running event loop.
        """
        url = f"{self._base}/api/endpoints"
        # An event loop, because the timeouts of synchronous requests apply to each read, not to the whole answer.
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            response = runner.run(self._get(url))
        service = urlsplit(self._known.subscribe).scheme
        try:
            found = urlsplit(json.loads(response.content)[service] if response.is_success else "")
            port = found.port
        except (ValueError, LookupError, TypeError, AttributeError):
            port = None
        if port is None:
            raise BadAnswer(
                f"{self._base} is not a gateway that offers {service}: {url} returned {response.status_code}"
            )
        host = urlsplit(self._base).netloc.rpartition("@")[2].removesuffix(f":{urlsplit(self._base).port}")
        self._known = dataclasses.replace(self._known, subscribe=f"{service}://{host}:{port}{found.path}")
        return self._known.subscribe

    async def _get(self, url: str) -> httpx.Response:
        # No redirects and no proxies, as for requests. Without TLS, httpx need not load the authorities.
        verify = urlsplit(url).scheme == "https" if self._tls is None else self._tls
        try:
            async with (
                asyncio.timeout(_TIMEOUT),
                httpx.AsyncClient(verify=verify, timeout=None, trust_env=False) as client,  # noqa: S113 - see above
                client.stream("GET", url, headers=PLAIN) as response,
            ):
                return await read_body(response, ENDPOINTS_BYTES)
        except TimeoutError:
            raise NoAnswer(f"no connection to {url}: no answer within {_TIMEOUT:g} s", sent=False) from None
        except httpx.TransportError as error:
            raise NoAnswer(f"no connection to {url}: {reason(error)}", sent=False) from None


class LocalAddress:
    """A gateway of this machine: the endpoints file of its data directory, read at each attempt to connect.

    Without a file, the addresses are those of `default`. A file that names another machine is logged and ignored.
    """

    changes = True
    named_by_gateway = False

    def __init__(self, data_dir: Path, default: Endpoints) -> None:
        self._file = data_dir / _FILE
        self._default = default
        self._reported = ""

    @property
    def key(self) -> str:
        """Path of the file, and default URL of the WebSocket."""
        return f"{self._file} {self._default.subscribe}"

    def endpoints(self) -> Endpoints:
        """Return the addresses of the running gateway."""
        services = _services(self._file)
        try:
            base = services["http"].rstrip("/")
            found = Endpoints(f"{base}/query", f"{base}/update", services["ws"])
        except (LookupError, ValueError):
            return self._default
        for url, service in ((found.query, "http"), (found.subscribe, "ws")):
            if not is_loopback(host_and_port(url)[0]):
                self._report(services[service])
                return self._default
        return found

    def subscribe_url(self, last: str) -> str:
        """Return the address in the file."""
        return self.endpoints().subscribe

    def _report(self, url: str) -> None:
        """Log an address of another machine, once: the file is read for each request."""
        if url != self._reported:
            self._reported = url
            _log.warning(
                "%s names %s, which is not a loopback address, and is ignored; set EDGE_URL to the address of the "
                "gateway to use it",
                self._file,
                url,
            )


def address_of(where: Endpoints | str, options: Options) -> BrokerAddress:
    """Return the address for endpoints, for the URL of a gateway, or for a host name. Raises `ValueError`."""
    if isinstance(where, Endpoints):
        return FixedAddress(where)
    return UrlAddress(where, options.tls) if "://" in where else FixedAddress(Endpoints.at(where))


def found_address(options: Options, default: Endpoints | None = None) -> BrokerAddress:
    """Return the address of the gateway that the environment names, else of the one that runs on this machine.

    `EDGE_URL` is the URL. `EDGE__DATA_DIR` is the data directory of a gateway on this machine, else `EDGE_CONFIG`
    its settings file. Raises `ValueError`.
    """
    if url := os.environ.get(URL):
        if "://" not in url:
            raise ValueError(f'{URL} is "{url}", and not an address such as http://127.0.0.1:8000')
        return UrlAddress(url, options.tls)
    return LocalAddress(_data_dir(), Endpoints() if default is None else default)


def with_environment(options: Options) -> Options:
    """Return options with the token of `EDGE_TOKEN` and the authorities of `SSL_CERT_FILE`, if they have no others.

    The token is for the host of `EDGE_URL` and for this machine. Brokers of profiles on other machines do not get it.
    Raises `ValueError` if the variable does not hold a token. The message does not repeat its value.
    """
    token = os.environ.get(TOKEN, "").strip()
    if re.fullmatch(r"[!-~]*", token) is None:  # RFC 6750, section 2.1; a line break would begin another header field
        raise ValueError(f"the value of {TOKEN} is not a token")
    if token and options.token is None:
        options = dataclasses.replace(options, token=GatewayToken(token, _host(os.environ.get(URL, ""))))
    if options.tls is None and os.environ.get(_AUTHORITIES):
        options = dataclasses.replace(options, tls=ssl.create_default_context())
    return options


def local_services() -> dict[str, str]:
    """Return URL by service ("http", "ws", "mqtt") of the gateway that runs on this machine; {} if none runs.

    Raises `ValueError` if the file of `EDGE_CONFIG` cannot be read.
    """
    return _services(_data_dir() / _FILE)


def _services(file: Path) -> dict[str, str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(url) for name, url in found.items()} if isinstance(found, dict) else {}


def _host(url: str) -> str:
    """Return the host name of a URL in lower case; "" if it is not valid."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _data_dir() -> Path:
    if named := os.environ.get("EDGE__DATA_DIR"):
        return Path(named).expanduser()
    return configured_data_dir() or default_data_dir()
