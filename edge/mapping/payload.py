"""One message's payload, decoded and parsed at most once however many mappings look at it."""

from __future__ import annotations

import json
from typing import Final

from edge.mapping.values import JsonNumber

_DECODER: Final = json.JSONDecoder(parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber)
# What devices put around a text: blanks, and the NUL that ends a string in C.
_BLANKS: Final = " \t\r\n\0\ufeff"
_UNREAD: Final = object()


class PayloadError(ValueError):
    """The payload cannot be read as what the mapping says it is."""


class Message:
    """A topic and a payload, with the payload's text and JSON document on demand."""

    __slots__ = ("_document", "_error", "_text", "payload", "topic")

    def __init__(self, topic: str, payload: bytes) -> None:
        self.topic = topic
        self.payload = payload
        self._text: str | None = None
        self._document: object = _UNREAD
        self._error: str | None = None

    @property
    def text(self) -> str:
        """The payload as text, without blanks around it. Raises `PayloadError` where it is not UTF-8."""
        if self._text is None:
            try:
                self._text = self.payload.decode().strip(_BLANKS)
            except UnicodeDecodeError as error:
                raise PayloadError(f"the payload is not UTF-8 text (byte {error.start})") from None
        return self._text

    @property
    def document(self) -> object:
        """The payload as JSON: numbers are `JsonNumber`, the last of equal names counts. Raises `PayloadError`."""
        if self._document is _UNREAD:
            if self._error is None:
                self._parse()
            if self._error is not None:
                raise PayloadError(self._error)
        return self._document

    def _parse(self) -> None:
        try:
            self._document = _DECODER.decode(self.text)
        except json.JSONDecodeError as error:
            self._error = f"the payload is not JSON ({error.msg}, character {error.pos})"
        except RecursionError:
            self._error = "the payload's JSON is nested too deep"
        except PayloadError as error:
            self._error = str(error)
