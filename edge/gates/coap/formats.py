"""CoAP content formats and response codes: JSON and CBOR bodies, and errors."""

from __future__ import annotations

import json
from typing import Any, Final

import cbor2
from aiocoap import Code, Message

from edge.gates.coap.cbor import Json, read_cbor
from edge.protocol.errors import EdgeError, InvalidRequest, NotAcceptable, UnsupportedMediaType
from edge.protocol.json_faults import json_fault

TEXT: Final = 0
LINK_FORMAT: Final = 40
JSON: Final = 50
CBOR: Final = 60
SENML_JSON: Final = 110
SENML_CBOR: Final = 112
"""Numbers of content formats (IANA CoAP Content-Formats; RFC 7252, 12.3; RFC 8949, 9.4; RFC 8428, 12.3.2)."""

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
    """The request has a critical option that is not supported (RFC 7252, section 5.4.1)."""


def answer(request: Message, content: Json, code: Code) -> Message:
    """Return a response with a JSON object in the format that the request accepts, by default JSON."""
    if request.opt.accept == CBOR:
        return Message(code=code, payload=cbor2.dumps(content), content_format=CBOR)
    payload = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Message(code=code, payload=payload, content_format=JSON)


def failed(request: Message, error: dict[str, Any]) -> Message:
    """Return an error object as a response, with the code for its status."""
    message = answer(request, error, _CODES.get(error["status_code"], Code.INTERNAL_SERVER_ERROR))
    message.opt.max_age = error.get("retry_after")  # RFC 8516, section 4
    return message


def refused(request: Message, error: EdgeError) -> Message:
    """Return an error as a response."""
    message = failed(request, error.to_message())
    if isinstance(error, BadOption):
        message.code = Code.BAD_OPTION
    return message


def incomplete(request: Message, text: str) -> Message:
    """Return the response to an incomplete blockwise transfer (RFC 7959, section 2.9.2)."""
    message = refused(request, InvalidRequest(text))
    message.code = Code.REQUEST_ENTITY_INCOMPLETE
    return message


def diagnosed(code: Code, text: str) -> Message:
    """Return a short diagnostic response to a request that cannot be decrypted (RFC 8613, section 8.2)."""
    return Message(code=code, payload=text.encode(), max_age=0)


def check_acceptable(request: Message) -> None:
    """Raise `NotAcceptable` if the client accepts neither JSON nor CBOR."""
    if request.opt.accept not in (None, JSON, CBOR):
        raise NotAcceptable(
            f"The content format {int(request.opt.accept)} cannot be given; accept {JSON} (JSON) or {CBOR} (CBOR)"
        )


def format_of(request: Message) -> int:
    """Return the content format of a request's body; text by default."""
    return TEXT if request.opt.content_format is None else int(request.opt.content_format)


def read_object(request: Message) -> dict[str, Any]:
    """Parse a JSON or CBOR body to a JSON object. Raises `InvalidRequest`, `TooLarge`."""
    content = read_json(request.payload) if format_of(request) == JSON else read_cbor(request.payload)
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InvalidRequest("The body must be an object (a map from text), with the members of the protocol's message")
    return content


def read_text(payload: bytes) -> str:
    """Decode UTF-8. Raises `InvalidRequest`."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"The body is not UTF-8: {error.reason} at byte {error.start}") from None


def read_json(payload: bytes) -> Json:
    """Parse JSON. Raises `InvalidRequest`."""
    try:
        return json.loads(read_text(payload))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None


def unsupported(request: Message, *formats: int) -> UnsupportedMediaType:
    """Return the error for a content format that the resource does not accept."""
    wanted = ", ".join(map(str, formats))
    return UnsupportedMediaType(f"The content format {format_of(request)} is not accepted here; send one of {wanted}")
