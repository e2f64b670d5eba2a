"""The body of a request, read as a stream and never beyond the limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from edge.protocol.errors import InvalidRequest, RequestTimeout, TooLarge, UnsupportedMediaType

FORM = "application/x-www-form-urlencoded"

_MAX_FIELDS = 1000
"""Parameters of a URL or form; a request has a handful, and graphs."""


@dataclass(frozen=True, slots=True)
class ContentType:
    """A `Content-Type` (RFC 9110, section 8.3): the media type in lower case, and whether the text is UTF-8."""

    media_type: str
    charset: str


def content_type(request: Request) -> ContentType:
    """The content type of a request. An absent one has an empty media type."""
    media_type, *parameters = request.headers.get("content-type", "").split(";")
    charset = "utf-8"
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return ContentType(media_type.strip().lower(), charset)


async def read_text(request: Request, limit: int, timeout: float) -> str:  # noqa: ASYNC109 - of each part, not of all
    """The body as text.

    `limit` is in bytes, `timeout` in seconds between two parts. Raises `TooLarge` (before anything is read, where the
    header says how long the body is), `UnsupportedMediaType`, `InvalidRequest`, `RequestTimeout`.
    """
    charset = content_type(request).charset
    if charset not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise UnsupportedMediaType(f'The charset "{charset}" is not understood: send UTF-8')
    body = await _read(request, limit, timeout)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8: {error.reason} at byte {error.start}") from None


def parse_parameters(text: str | bytes) -> list[tuple[str, str]]:
    """The parameters of a URL's query or of a form, in order. Raises `InvalidRequest`."""
    try:
        return parse_qsl(
            text.decode("ascii") if isinstance(text, bytes) else text,
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except UnicodeDecodeError:
        raise InvalidRequest("The parameters are not UTF-8 with percent-encoding") from None
    except ValueError:
        raise InvalidRequest(f"There are more than {_MAX_FIELDS} parameters") from None


async def _read(request: Request, limit: int, timeout: float) -> bytearray:  # noqa: ASYNC109 - of each part
    too_large = TooLarge(f"The body is longer than {limit} bytes, the limit http.max_body; send it in parts")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise too_large
    body = bytearray()
    parts = request.stream()
    try:
        while True:
            async with asyncio.timeout(timeout):
                part = await anext(parts)
            if len(body) + len(part) > limit:
                raise too_large
            body += part
    except StopAsyncIteration:
        return body
    except TimeoutError:
        raise RequestTimeout(f"No more of the body came for {timeout:g} s") from None
    except ClientDisconnect:
        raise InvalidRequest("The client went away before it had sent the whole body") from None
    finally:
        await parts.aclose()
