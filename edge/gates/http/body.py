"""Request body, read as a stream up to a limit."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from edge.engine.admission.byte_quota import Charge
from edge.gates.settings import HttpGateSettings
from edge.protocol.errors import (
    InvalidRequest,
    RequestTimeout,
    TooLarge,
    UnsupportedEncoding,
    UnsupportedMediaType,
)

CHARGE = "edge.charge"
"""Key of the ASGI scope under which a route stores the `Charge` for the request body."""

FORM = "application/x-www-form-urlencoded"

_UTF_8 = ("", "utf-8", "utf8", "us-ascii", "ascii")
_LATIN_1 = "iso-8859-1"
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_LONG_FORM = 64 * 1024
"""Length of forms in characters above which they are decoded on a thread."""

_MAX_FIELDS = 1000
"""Maximum number of parameters; a request needs a few, and graphs."""


@dataclass(frozen=True, slots=True)
class ContentType:
    """A `Content-Type` (RFC 9110, section 8.3): the media type in lower case, and the charset."""

    media_type: str
    charset: str
    """In lower case; empty if it is not declared."""


def content_type(request: Request) -> ContentType:
    """The content type of a request. An absent one has an empty media type."""
    media_type, *parameters = request.headers.get("content-type", "").split(";")
    charset = ""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return ContentType(media_type.strip().lower(), charset)


async def read_text(
    request: Request, settings: HttpGateSettings, most: int | None = None, *, json_may_be_latin_1: bool = False
) -> str:
    """The body as text, at most as many bytes, or as the settings have it.

    `json_may_be_latin_1`: JSON may be ISO-8859-1, also without the charset, as clients of RDF stream processors in Java
    send it.

    Raises `TooLarge` (before anything is read, where the header says how long the body is), `UnsupportedMediaType`,
    `InvalidRequest`, `RequestTimeout`, `TooManyRequests` (too much is held for the client).
    """
    _check_encoding(request)
    kind = content_type(request)
    is_lenient = json_may_be_latin_1 and kind.media_type == "application/json"
    charset = _charset(kind, may_be_latin_1=is_lenient or kind.media_type == "text/plain")
    charge: Charge | None = request.scope.get(CHARGE)
    try:
        most = settings.max_message if most is None else min(most, settings.max_message)
        body = await _read(request, settings, most, charge)
        return body.decode(charset)
    except UnicodeDecodeError as error:
        if is_lenient and not kind.charset and not _is_faulty_unicode(body, error):
            return body.decode(_LATIN_1)
        raise InvalidRequest(f"The body is not UTF-8: {error.reason} at byte {error.start}") from None
    finally:
        if charge is not None:
            charge.release()


def _charset(kind: ContentType, *, may_be_latin_1: bool) -> str:
    """Return the encoding of a body. Raises `UnsupportedMediaType`.

    The formats of SPARQL and RDF are UTF-8. Plain text may have another charset (RFC 2046, section 4.1.2): clients of
    RDF stream processors in Java send queries and elements as ISO-8859-1.
    """
    if kind.charset in _UTF_8:
        return "utf-8"
    if kind.charset == _LATIN_1 and may_be_latin_1:
        return _LATIN_1
    raise UnsupportedMediaType(f'The charset "{kind.charset}" is not understood: send UTF-8')


def _is_faulty_unicode(body: bytearray, error: UnicodeDecodeError) -> bool:
    """Whether a body that is not UTF-8 is UTF-16, or UTF-8 whose last character is incomplete."""
    return body.startswith(_UTF_16_MARKS) or error.reason == "unexpected end of data"


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


async def read_form(request: Request, settings: HttpGateSettings) -> list[tuple[str, str]]:
    """The fields of a form in the body, in order. Raises as `read_text` and `parse_parameters` do.

    A long form is decoded on another thread, in Python code that lets the event loop have its turns: decoding the
    percent-encoding of 8 MB takes half a second.
    """
    text = await read_text(request, settings)
    return parse_parameters(text) if len(text) < _LONG_FORM else await asyncio.to_thread(parse_parameters, text)


def _check_encoding(request: Request) -> None:
    """Raises `UnsupportedEncoding`. Nothing is decompressed, so a small body cannot become a large one."""
    codings = [coding.strip() for value in request.headers.getlist("content-encoding") for coding in value.split(",")]
    unknown = [coding for coding in codings if coding.lower() not in ("", "identity")]
    if unknown:
        raise UnsupportedEncoding(
            f'Bodies with Content-Encoding "{unknown[0][:40]}" are not accepted, only "identity": send the body '
            "uncompressed, without the header Content-Encoding"
        )


async def _read(request: Request, settings: HttpGateSettings, limit: int, charge: Charge | None) -> bytearray:
    which = "http.max_message; send it in parts" if limit == settings.max_message else "of this resource"
    too_large = TooLarge(f"The body is longer than {limit} bytes, the limit {which}")
    length = request.headers.get("content-length", "")
    # 18 digits: Python refuses to convert more than 4,300.
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise too_large
    body = bytearray()
    parts = request.stream()
    try:
        async with asyncio.timeout(settings.body_timeout):
            while (part := await _next(parts, settings.read_timeout)) is not None:
                if len(body) + len(part) > limit:
                    raise too_large
                body += part
                if charge is not None:
                    charge.set(len(body))
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
    """Return the next part, or None at the end. Raises `RequestTimeout`."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(parts, None)
    except TimeoutError:
        raise RequestTimeout(f"No more of the body came for {seconds:g} s") from None
