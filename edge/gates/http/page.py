"""The live page at `/`: static files, and the policy that keeps anything else out of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/enrolment.js": ("enrolment.js", "text/javascript; charset=utf-8"),
    "/observations.js": ("observations.js", "text/javascript; charset=utf-8"),
    "/units.js": ("units.js", "text/javascript; charset=utf-8"),
    "/token.js": ("token.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
"""Path, file of `edge/web` and media type of everything the page consists of."""

_HOST = re.compile(r"[A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    media_type: str
    tag: str


@cache
def _load(path: str) -> _File:
    name, media_type = FILES[path]
    content = resources.files("edge").joinpath("web", name).read_bytes()
    return _File(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


def page_response(request: Request, ws_endpoint: str | None) -> Response:
    """One of the page's files. `ws_endpoint` is the URL that the page may subscribe at."""
    file = _load(request.url.path)
    headers = {
        "ETag": file.tag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _policy(request.headers.get("host", ""), ws_endpoint),
        "Referrer-Policy": "no-referrer",
    }
    # RFC 9110, section 15.4.5: a 304 response has the header fields of the full one.
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)


def _policy(host: str, ws_endpoint: str | None) -> str:
    """Content Security Policy Level 3: nothing but the page's own files, and the WebSocket gate of this host."""
    return (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        f"connect-src 'self'{_sockets(host, ws_endpoint)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _sockets(host: str, ws_endpoint: str | None) -> str:
    if ws_endpoint is None:
        return ""
    try:
        endpoint, name = urlsplit(ws_endpoint), urlsplit(f"//{host}").hostname
        port = endpoint.port
    except ValueError:
        return ""
    names = [known for known in (name, endpoint.hostname) if known and _HOST.fullmatch(known)]
    if not name or not _HOST.fullmatch(name):
        return f" {endpoint.scheme}:"  # the policy's grammar has no form for IPv6 addresses
    return "".join(f" {endpoint.scheme}://{known}{f':{port}' if port else ''}" for known in dict.fromkeys(names))
