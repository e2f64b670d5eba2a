"""The web application at `/`: static files, and the policy that keeps anything else out of it."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webmanifest": "application/manifest+json",
}
"""Media type by the suffix of a file. The directory's other files are not served."""
_DOCUMENTS: Final = ("text/html", "image/svg+xml")
"""Types that a browser shows as documents. A policy has no effect on other files; they inherit that of their page."""
_INLINE: Final = re.compile(rb'<script type="importmap">(.*?)</script>', re.DOTALL)
"""The only script within the page: it names the files of the libraries."""
_ADDRESS: Final = re.compile(rb'((?:href|src)="|"\./)([\w/-]+\.(?:js|css)")')
"""The address of a module or a style sheet in the page."""
_KEPT: Final = "public, max-age=31536000, immutable"
"""Browsers keep a file of a version for a year, without asking for it again."""
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+")


def _walk(directory: Traversable, path: str) -> Iterator[tuple[str, str]]:
    for entry in directory.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{path}{entry.name}/")
        elif (suffix := entry.name.rpartition(".")[2]) in _TYPES:
            yield "/" if entry.name == "index.html" else f"{path}{entry.name}", _TYPES[suffix]


FILES: Final = dict(sorted(_walk(resources.files("edge").joinpath("web"), "/")))
"""Media type of each file of the application, by its path."""


VERSIONED: Final = "/files/{version}/{name:path}"
"""Path of the same files. The page names them with its version, so that a browser requests them once for each version:
without it, each visit would ask for all of them, six at a time, whether they have changed.
"""


@cache
def _digests() -> dict[str, bytes]:
    return {path: hashlib.sha256(_content(path)).digest() for path in FILES}


@cache
def _version() -> str:
    parts = (f"{path} {FILES[path]} ".encode() + digest for path, digest in _digests().items())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def _content(path: str) -> bytes:
    name = "index.html" if path == "/" else path.removeprefix("/")
    return resources.files("edge").joinpath("web", *name.split("/")).read_bytes()


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    compressed: bytes
    tag: str
    is_of_version: bool
    """False if the file was replaced after the version was computed, such as by an update before the restart."""


@cache
def _load(path: str) -> _File:
    content = _content(path)
    is_of_version = hashlib.sha256(content).digest() == _digests()[path]
    if path == "/":
        content = _ADDRESS.sub(rb"\g<1>files/%b/\2" % _version().encode(), content)
    tag = hashlib.sha256(content).hexdigest()[:16]
    return _File(content, gzip.compress(content, mtime=0), tag, is_of_version)


def page_response(request: Request, ws_endpoint: str | None) -> Response:
    """One of the application's files. `ws_endpoint` is the URL that it may subscribe at.

    Raises `HTTPException` for any other name.
    """
    version = request.path_params.get("version")
    path = request.url.path if version is None else f"/{request.path_params['name']}"
    if path not in FILES or (path == "/" and version is not None):
        raise HTTPException(404)
    file = _load(path)
    compressed = _accepts_gzip(request.headers.get("accept-encoding", ""))
    # RFC 9110, section 8.8.3: the representations of one file have different entity tags.
    tag = f'"{file.tag}-gzip"' if compressed else f'"{file.tag}"'
    headers = {
        "ETag": tag,
        # A page of another version, which is still open after an update of the gateway, gets the present files.
        "Cache-Control": _KEPT if version == _version() and file.is_of_version else "no-cache",
        "Vary": "Accept-Encoding",
    }
    if FILES[path].startswith(_DOCUMENTS):
        headers["Vary"] += ", Accept-Language"
        # The page learns its language from the browser only when its modules run.
        language = _language(request.headers.get("accept-language", ""))
        if path == "/":
            headers["Link"] = f"<files/{_version()}/texts/{language}.js>; rel=modulepreload"
        headers["Content-Security-Policy"] = _policy(request.headers.get("host", ""), ws_endpoint)
        headers["Referrer-Policy"] = "no-referrer"
    # RFC 9110, section 15.4.5: a 304 response has the header fields of the full one.
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if compressed:
        headers["Content-Encoding"] = "gzip"
    return Response(file.compressed if compressed else file.content, headers=headers, media_type=FILES[path])


def _language(header: str) -> str:
    """Return the language of the page, as it chooses it: the first one of the browser that has a catalogue."""
    tags = (entry.split(";")[0].strip()[:2].lower() for entry in header.split(","))
    return next((tag for tag in tags if f"/texts/{tag}.js" in FILES), "en")


def _accepts_gzip(header: str) -> bool:
    """Whether an `Accept-Encoding` header names gzip without weight 0 (RFC 9110, section 12.5.3)."""
    for entry in header.lower().split(","):
        coding, _, weight = entry.partition(";")
        if coding.strip() == "gzip":
            return not re.fullmatch(r"q=0(\.0{0,3})?", weight.strip())
    return False


@cache
def _hash_of_import_map() -> str:
    """Hash source of Content Security Policy Level 3 for the import map of the page."""
    inline = _INLINE.findall(_load("/").content)
    return "".join(f" 'sha256-{base64.b64encode(hashlib.sha256(each).digest()).decode()}'" for each in inline)


def _policy(host: str, ws_endpoint: str | None) -> str:
    """Content Security Policy Level 3: nothing but the application's own files, and the WebSocket gate of this host."""
    return (
        f"default-src 'none'; script-src 'self'{_hash_of_import_map()}; style-src 'self'; img-src 'self'; "
        f"manifest-src 'self'; connect-src 'self'{_sockets(host, ws_endpoint)}; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
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
