"""Landing zone over HTTP (`edge-history receive`). Interrupted uploads continue at their offset."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from contextlib import closing
from functools import partial
from http import HTTPStatus
from pathlib import Path
from ssl import SSLContext
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from edge import __version__
from edge.http_client import HttpConnection, NoResponse
from edge.outbox.landing import KnownOutbox, LandingFailed, acknowledged, held, parsed
from edge.outbox.segment import MANIFEST, ROWS
from edge.outbox.segmenter import Segment
from edge.protocol.trust import trusting

PART: Final = 256 * 1024
"""Bytes of one request. After an interruption, at most this much is sent again."""
LARGEST_ANSWER: Final = 16 * 1024 * 1024
"""Upper bound of a response in bytes. The list of a year of segments without ingestion is shorter."""
_MAX_CONFLICTS: Final = 3
"""Number of consecutive offset conflicts after which an upload fails."""

_OFFSET: Final = re.compile(r"[0-9]{1,15}")
_ADVICE: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "offload.token is not known there",
    HTTPStatus.FORBIDDEN: "offload.token is not for this gateway (outbox.gateway)",
    HTTPStatus.NOT_FOUND: "the address is not that of a landing zone; check offload.to",
}

Token = Callable[[], str]
"""Returns the bearer token; empty for none. Called for each request, because the token file may change."""


class _Answer(NamedTuple):
    status: int
    offset: int | None
    complete: bool
    body: bytes


class HttpLanding:
    """Client of the landing zone. Follows draft-ietf-httpbis-resumable-upload; digests follow RFC 9530."""

    def __init__(self, url: str, *, timeout: float, token: Token, ca_file: Path | None) -> None:
        """`url`: address of the landing zone. `timeout`: seconds to wait for a response."""
        self._url = url
        self._calls = partial(_Calls, url, timeout, token, ca_file)

    def look(self, gateway: str, epoch: str) -> KnownOutbox:
        """Request the state of an outbox. Raises `LandingFailed`."""
        with closing(self._calls()) as calls:
            answer = calls.send("GET", f"/v1/outboxes/{gateway}")
        if answer.status != HTTPStatus.OK:
            raise self._refused(answer)
        body = parsed(answer.body)
        if not isinstance(body, dict) or not isinstance(body.get("held"), dict):
            raise LandingFailed(f"{self._url} is not a landing zone: check offload.to")
        ranges = body["held"].get(epoch, [])
        return KnownOutbox(acknowledged(body, epoch), held(ranges if isinstance(ranges, list) else []))

    def put(self, segment: Segment) -> None:
        """Send the rows, then the manifest. Raises `LandingFailed`."""
        manifest = segment.manifest
        path = f"/v1/segments/{manifest.folder}/{manifest.stem}"
        with closing(self._calls()) as calls:
            # The manifest comes last: a segment exists for readers when its manifest does.
            if not manifest.tombstone:
                self._upload(calls, path + ROWS, segment.rows)
            self._upload(calls, path + MANIFEST, manifest.to_json())

    def _upload(self, calls: _Calls, path: str, content: bytes) -> None:
        # The offset from which an interrupted upload continues.
        answer = calls.send("HEAD", path)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise self._refused(answer)
        if answer.complete:
            return
        offset, conflicts = answer.offset or 0, 0
        digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
        while True:
            # The server's offset is input from outside: it must not address beyond the content.
            offset = min(offset, len(content))
            part = content[offset : offset + PART]
            headers = {"Upload-Offset": str(offset), "Upload-Complete": "?0"}
            if whole := offset + len(part) == len(content):
                headers |= {"Upload-Complete": "?1", "Repr-Digest": f"sha-256=:{digest}:"}
            answer = calls.send("PATCH", path, part, headers)
            if answer.status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
                if whole:
                    return
                offset, conflicts = offset + len(part), 0
            elif _offset_conflict(answer, offset) and conflicts < _MAX_CONFLICTS:
                offset, conflicts = answer.offset or 0, conflicts + 1
            else:
                raise self._refused(answer)

    def _refused(self, answer: _Answer) -> LandingFailed:
        """Return the error of a refused request, with the problem details of the response (RFC 9457)."""
        body = parsed(answer.body)
        content = body.get("detail") or body.get("title") if isinstance(body, dict) else None
        words = " ".join(str(content).split())[:500] if content else _ADVICE.get(answer.status, "no reason given")
        return LandingFailed(f"{self._url} answered {answer.status}: {words}")


def _offset_conflict(answer: _Answer, offset: int) -> bool:
    return answer.status == HTTPStatus.CONFLICT and answer.offset not in (None, offset)


class _Calls:
    """Requests over one connection."""

    def __init__(self, url: str, timeout: float, token: Token, ca_file: Path | None) -> None:
        self._url = url
        self._timeout = timeout
        self._token = token
        self._ca_file = ca_file
        self._connection = HttpConnection(url, timeout, self._trust)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> _Answer:
        """Send one request. Raises `LandingFailed` if there is no valid response."""
        # The landing zone may be mounted below a path of a reverse proxy.
        prefix = urlsplit(self._url).path.rstrip("/")
        try:
            # One byte more than allowed tells a response at the limit from a longer one.
            response = self._connection.send(
                method, prefix + path, body, self._headers() | (headers or {}), LARGEST_ANSWER + 1
            )
        except NoResponse as error:
            raise self._failed(error) from error
        if len(response.body) > LARGEST_ANSWER:
            raise LandingFailed(f"{self._url} sends a larger response than a landing zone does: check offload.to")
        offset = response.headers.get("Upload-Offset", "")
        complete = response.headers.get("Upload-Complete", "").strip() == "?1"
        return _Answer(response.status, int(offset) if _OFFSET.fullmatch(offset) else None, complete, response.body)

    def _trust(self) -> SSLContext:
        try:
            return trusting(self._ca_file)
        except OSError as error:
            raise LandingFailed(
                f"offload.ca_file: {self._ca_file} cannot be used: {error.strerror or error}"
            ) from error

    def _headers(self) -> dict[str, str]:
        token = self._token()
        given = {"Authorization": f"Bearer {token}"} if token else {}
        return {"User-Agent": f"sepa-edge/{__version__}", "Accept": "application/json", **given}

    def _failed(self, error: NoResponse) -> LandingFailed:
        if error.timed_out:
            return LandingFailed(f"{self._url} did not answer within {self._timeout:g} s")
        if error.verify_message:
            return LandingFailed(
                f"{self._url} shows a certificate that is not trusted: {error.verify_message} (offload.ca_file)"
            )
        return LandingFailed(f"{self._url} cannot be reached: {error}")
