"""The body of a request, read as a stream and never beyond the limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from edge.gates.settings import HttpGateSettings
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


async def read_text(request: Request, settings: HttpGateSettings, most: int | None = None) -> str:
    """The body as text, at most as many bytes, or as the settings have it.

    Raises `TooLarge` (before anything is read, where the header says how long the body is), `UnsupportedMediaType`,
    `InvalidRequest`, `RequestTimeout`.
    """
    charset = content_type(request).charset
    if charset not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise UnsupportedMediaType(f'The charset "{charset}" is not understood: send UTF-8')
    body = await _read(request, settings, settings.max_body if most is None else min(most, settings.max_body))
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


async def _read(request: Request, settings: HttpGateSettings, limit: int) -> bytearray:
    too_large = TooLarge(f"The body is longer than {limit} bytes, the limit http.max_body; send it in parts")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise too_large
    body = bytearray()
    parts = request.stream()
    try:
        async with asyncio.timeout(settings.body_timeout):
            while (part := await _next(parts, settings.read_timeout)) is not None:
                if len(body) + len(part) > limit:
                    raise too_large
                body += part
            return body
    except TimeoutError:
        raise RequestTimeout(
            f"The body took longer than {settings.body_timeout:g} s, the limit http.body_timeout; send it in parts"
        ) from None
    except ClientDisconnect:
        raise InvalidRequest("The client went away before it had sent the whole body") from None
    finally:
        await parts.aclose()


async def _next(parts: AsyncGenerator[bytes, None], seconds: float) -> bytes | None:
    """What comes within that time; None at the end."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(parts, None)
    except TimeoutError:
        raise RequestTimeout(f"No more of the body came for {seconds:g} s") from None
