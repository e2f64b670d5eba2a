"""A landing zone over HTTP: `edge-history receive`. What was cut off goes on where it was."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from edge import __version__
from edge.outbox.landing import KnownOutbox, LandingFailed, acknowledged, held, parsed
from edge.outbox.segment import MANIFEST, ROWS
from edge.outbox.segmenter import Segment
from edge.protocol.trust import trusting

PART: Final = 256 * 1024
"""Bytes sent in one request: what a slow line has taken is not sent again."""
LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""Bytes; a year of segments that nobody ingested is listed in fewer."""
_CONTRADICTIONS: Final = 3
"""How often it may be told in a row that a part belongs elsewhere."""

_OFFSET: Final = re.compile(r"[0-9]{1,15}")
_ADVICE: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "offload.token is not known there",
    HTTPStatus.FORBIDDEN: "offload.token is not for this gateway (outbox.gateway)",
    HTTPStatus.NOT_FOUND: "it is no landing zone; is offload.to right?",
}

Token = Callable[[], str]
"""The bearer token, asked for each time since files change; empty: none."""


class _Answer(NamedTuple):
    status: int
    offset: int | None
    complete: bool
    body: bytes


class HttpLanding:
    """Speaks in the spirit of resumable uploads (draft-ietf-httpbis-resumable-upload); digests are of RFC 9530.

    With `http.client`, which is in memory anyhow; httpx would take 5 MiB more.
    """

    def __init__(self, url: str, *, timeout: float, token: Token, ca_file: Path | None) -> None:
        """`url`: its address. `timeout`: seconds that an answer may take."""
        self._url = url
        self._calls = partial(_Calls, url, timeout, token, ca_file)

    def look(self, gateway: str, epoch: str) -> KnownOutbox:
        """What it says. Raises `LandingFailed`."""
        with closing(self._calls()) as calls:
            answer = calls.send("GET", f"/v1/outboxes/{gateway}")
        if answer.status != HTTPStatus.OK:
            raise self._refused(answer)
        body = parsed(answer.body)
        if not isinstance(body, dict) or not isinstance(body.get("held"), dict):
            raise LandingFailed(f"{self._url} is no landing zone: is offload.to right?")
        ranges = body["held"].get(epoch, [])
        return KnownOutbox(acknowledged(body, epoch), held(ranges if isinstance(ranges, list) else []))

    def put(self, segment: Segment) -> None:
        """Send rows, then manifest. Raises `LandingFailed`."""
        manifest = segment.manifest
        path = f"/v1/segments/{manifest.folder}/{manifest.stem}"
        with closing(self._calls()) as calls:
            if not manifest.tombstone:
                self._upload(calls, path + ROWS, segment.rows)
            self._upload(calls, path + MANIFEST, manifest.to_json())

    def _upload(self, calls: _Calls, path: str, content: bytes) -> None:
        answer = calls.send("HEAD", path)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise self._refused(answer)
        if answer.complete:
            return
        offset, contradictions = answer.offset or 0, 0
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        while True:
            offset = min(offset, len(content))
            part = content[offset : offset + PART]
            headers = {"Upload-Offset": str(offset), "Upload-Complete": "?0"}
            if whole := offset + len(part) == len(content):
                headers |= {"Upload-Complete": "?1", "Repr-Digest": f"sha-256=:{digest}:"}
            answer = calls.send("PATCH", path, part, headers)
            if answer.status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
                if whole:
                    return
                offset, contradictions = offset + len(part), 0
            elif _elsewhere(answer, offset) and contradictions < _CONTRADICTIONS:
                offset, contradictions = answer.offset or 0, contradictions + 1
            else:
                raise self._refused(answer)

    def _refused(self, answer: _Answer) -> LandingFailed:
        """An answer that is a no, in its own words (RFC 9457)."""
        body = parsed(answer.body)
        told = body.get("detail") or body.get("title") if isinstance(body, dict) else None
        words = " ".join(str(told).split())[:500] if told else _ADVICE.get(answer.status, "it says no more")
        return LandingFailed(f"{self._url} answered {answer.status}: {words}")


def _elsewhere(answer: _Answer, offset: int) -> bool:
    return answer.status == HTTPStatus.CONFLICT and answer.offset not in (None, offset)


class _Calls:
    """Requests on one connection."""

    def __init__(self, url: str, timeout: float, token: Token, ca_file: Path | None) -> None:
        self._url = url
        self._timeout = timeout
        self._token = token
        self._ca_file = ca_file
        self._connection: HTTPConnection | None = None

    def close(self) -> None:
        """Close it."""
        if self._connection is not None:
            self._connection.close()

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> _Answer:
        """One request. Raises `LandingFailed` where there is no answer."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            prefix = urlsplit(self._url).path.rstrip("/")
            self._connection.request(method, prefix + path, body, self._headers() | (headers or {}))
            response = self._connection.getresponse()
            told = response.read(LARGEST_ANSWER + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise self._failed(error) from error
        if len(told) > LARGEST_ANSWER:
            raise LandingFailed(f"{self._url} answers more than a landing zone does: is offload.to right?")
        offset = response.getheader("Upload-Offset", "")
        complete = response.getheader("Upload-Complete", "").strip() == "?1"
        return _Answer(response.status, int(offset) if _OFFSET.fullmatch(offset) else None, complete, told)

    def _connect(self) -> HTTPConnection:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=self._timeout)
        try:
            context = trusting(self._ca_file)
        except OSError as error:
            raise LandingFailed(
                f"offload.ca_file: {self._ca_file} cannot be used: {error.strerror or error}"
            ) from error
        return HTTPSConnection(host, parts.port, timeout=self._timeout, context=context)

    def _headers(self) -> dict[str, str]:
        token = self._token()
        given = {"Authorization": f"Bearer {token}"} if token else {}
        return {"User-Agent": f"sepa-edge/{__version__}", "Accept": "application/json", **given}

    def _failed(self, error: Exception) -> LandingFailed:
        if isinstance(error, TimeoutError):
            return LandingFailed(f"{self._url} did not answer within {self._timeout:g} s")
        if distrust := getattr(error, "verify_message", None):  # of ssl.SSLCertVerificationError
            return LandingFailed(f"{self._url} shows a certificate that is not trusted: {distrust} (offload.ca_file)")
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return LandingFailed(f"{self._url} cannot be reached: {reason}")
