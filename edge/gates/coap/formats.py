"""Bodies and codes: JSON and CBOR, errors of the tree as CoAP answers."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any, Final

import cbor2
from aiocoap import Code, Message

from edge.protocol.errors import EdgeError, InvalidRequest, NotAcceptable, TooLarge, UnsupportedMediaType

TEXT: Final = 0
LINK_FORMAT: Final = 40
JSON: Final = 50
CBOR: Final = 60
SENML_JSON: Final = 110
SENML_CBOR: Final = 112
"""Numbers of content formats (IANA CoAP Content-Formats; RFC 7252, 12.3; RFC 8949, 9.4; RFC 8428, 12.3.2)."""

Json = Any
"""What JSON can say."""

_MAX_SIZE: Final = 4 * 1024 * 1024
"""Values and characters in one CBOR body: references make what is small on the way large when it is written."""
_MAX_DEPTH: Final = 100

_CODES: Final[dict[int, Code]] = {
    400: Code.BAD_REQUEST,
    401: Code.UNAUTHORIZED,
    403: Code.FORBIDDEN,
    404: Code.NOT_FOUND,
    405: Code.METHOD_NOT_ALLOWED,
    406: Code.NOT_ACCEPTABLE,
    408: Code.SERVICE_UNAVAILABLE,  # 4.08 is about missing blocks
    413: Code.REQUEST_ENTITY_TOO_LARGE,
    415: Code.UNSUPPORTED_CONTENT_FORMAT,
    429: Code.TOO_MANY_REQUESTS,
    503: Code.SERVICE_UNAVAILABLE,
}
"""Code by status; all others are 5.00."""


class BadOption(InvalidRequest):
    """A critical option that this gate does not know (RFC 7252, 5.4.1)."""


def answer(request: Message, content: Json, code: Code) -> Message:
    """`content`, an object of JSON, in the format that the request accepts. JSON where it does not say."""
    if request.opt.accept == CBOR:
        return Message(code=code, payload=cbor2.dumps(content), content_format=CBOR)
    payload = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Message(code=code, payload=payload, content_format=JSON)


def failed(request: Message, error: dict[str, Any]) -> Message:
    """The flat object of an error, with the code that belongs to its status."""
    message = answer(request, error, _CODES.get(error["status_code"], Code.INTERNAL_SERVER_ERROR))
    message.opt.max_age = error.get("retry_after")  # RFC 8516, section 4
    return message


def refused(request: Message, error: EdgeError) -> Message:
    """An error of the tree as an answer."""
    message = failed(request, error.to_message())
    if isinstance(error, BadOption):
        message.code = Code.BAD_OPTION
    return message


def incomplete(request: Message, text: str) -> Message:
    """That blocks are missing, here or there (RFC 7959, section 2.9.2)."""
    message = refused(request, InvalidRequest(text))
    message.code = Code.REQUEST_ENTITY_INCOMPLETE
    return message


def diagnosed(code: Code, text: str) -> Message:
    """An answer to what cannot be opened: short, and to everybody (RFC 8613, section 8.2)."""
    return Message(code=code, payload=text.encode(), max_age=0)


def check_acceptable(request: Message) -> None:
    """Raises `NotAcceptable` where neither JSON nor CBOR will do."""
    if request.opt.accept not in (None, JSON, CBOR):
        raise NotAcceptable(
            f"The content format {int(request.opt.accept)} cannot be given; accept {JSON} (JSON) or {CBOR} (CBOR)"
        )


def format_of(request: Message) -> int:
    """The content format of a request's body; text where it does not say."""
    return TEXT if request.opt.content_format is None else int(request.opt.content_format)


def read_object(request: Message) -> dict[str, Any]:
    """The body of a request that is JSON or CBOR, as an object of JSON. Raises `InvalidRequest`, `TooLarge`."""
    content = read_json(request.payload) if format_of(request) == JSON else read_cbor(request.payload)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InvalidRequest("The body must be an object (a map from text), with the members of the protocol's message")
    return content


def read_text(payload: bytes) -> str:
    """UTF-8. Raises `InvalidRequest`."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8: {error.reason} at byte {error.start}") from None


def read_json(payload: bytes) -> Json:
    """Raises `InvalidRequest`."""
    try:
        return json.loads(read_text(payload))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The body is not JSON: {error}") from None


def read_cbor(payload: bytes) -> Json:
    """Values that JSON has, too; keys of maps may be integers. Raises `InvalidRequest`, `TooLarge`."""
    try:
        return _Plain().value(cbor2.loads(payload, max_depth=_MAX_DEPTH, allow_duplicate_keys=False))
    except (cbor2.CBORError, ValueError, OverflowError, RecursionError, EOFError) as error:
        raise InvalidRequest(f"The body is not CBOR that can be read: {error}") from None


def unsupported(request: Message, *formats: int) -> UnsupportedMediaType:
    """That a resource does not take the content format of a request."""
    wanted = ", ".join(map(str, formats))
    return UnsupportedMediaType(f"The content format {format_of(request)} is not taken here; send one of {wanted}")


class _Plain:
    """From what CBOR can say to what JSON can."""

    def __init__(self) -> None:
        self._left = _MAX_SIZE

    def value(self, item: object) -> Json:
        self._left -= 1 + len(item) if isinstance(item, str) else 1
        if self._left < 0:
            raise TooLarge(f"The body holds more than {_MAX_SIZE} values and characters")
        if isinstance(item, Decimal):
            item = float(item)
        if isinstance(item, float) and not math.isfinite(item):
            raise InvalidRequest("The body holds a number that is not finite")
        if item is None or isinstance(item, str | bool | int | float):
            return item
        if isinstance(item, list | tuple):
            return [self.value(member) for member in item]
        if isinstance(item, dict):
            return {self._key(key): self.value(member) for key, member in item.items()}
        raise InvalidRequest(f"The body holds a value that JSON does not have ({type(item).__name__})")

    def _key(self, key: object) -> str | int:
        if isinstance(key, str | int) and not isinstance(key, bool):
            return key
        raise InvalidRequest("The keys of maps must be text or integers")
