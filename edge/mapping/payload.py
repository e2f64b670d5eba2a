"""Payload of one message, decoded and parsed at most once for all mappings."""

from __future__ import annotations

import json
from typing import Final, Protocol

from edge.mapping.values import JsonNumber

# Numbers stay as written: a float would drop the digits of 21.50 and round large integers.
_DECODER: Final = json.JSONDecoder(parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber)
# Characters that devices put around a text: blanks, and the NUL that ends a C string.
_BLANKS: Final = " \t\r\n\0\ufeff"
_UNREAD: Final = object()


class PayloadError(ValueError):
    """The payload does not have the format that the mapping declares."""


class Reads(Protocol):
    """Converts bytes to a document: the layout of binary payloads. Raises `PayloadError`."""

    def read(self, payload: bytes) -> object:
        """Return the document."""


class PayloadMessage:
    """A topic and a payload, with text and document on demand."""

    __slots__ = ("_document", "_error", "_layout", "_others", "_text", "_whole", "payload", "topic")

    def __init__(self, topic: str, payload: bytes, layout: Reads | None = None) -> None:
        """Without a `layout`, the document is parsed as JSON."""
        self.topic = topic
        self.payload = payload
        self._layout = layout
        self._others: dict[Reads | None, PayloadMessage] = {}
        self._text: str | None = None
        self._whole: PayloadMessage | None = None
        """The message of which this one is an item."""
        self._document: object = _UNREAD
        # The text of the error, not the exception: each mapping raises its own, and the failed parse is not repeated.
        self._error: str | None = None

    def read_by(self, layout: Reads | None) -> PayloadMessage:
        """Return the same message with a document by this layout (None: JSON)."""
        if layout is self._layout:
            return self
        if layout not in self._others:
            other = self._others[layout] = PayloadMessage(self.topic, self.payload, layout)
            # All variants share one dictionary, so each layout decodes the payload only once.
            other._others = self._others
            self._others[self._layout] = self
        return self._others[layout]

    def item(self, document: object) -> PayloadMessage:
        """Return the same message with a part of the document as its document."""
        item = self.replaced(document)
        item._whole = self
        return item

    def replaced(self, document: object) -> PayloadMessage:
        """Return the same message with another document."""
        other = PayloadMessage(self.topic, self.payload, self._layout)
        other._document, other._whole = document, self._whole
        return other

    @property
    def whole(self) -> object:
        """Return the document of the message of which this one is an item, or its own. Raises `PayloadError`."""
        return self.document if self._whole is None else self._whole.document

    @property
    def text(self) -> str:
        """Return the payload as text, without surrounding blanks. Raises `PayloadError` if it is not UTF-8."""
        if self._text is None:
            try:
                self._text = self.payload.decode().strip(_BLANKS)
            except UnicodeDecodeError as error:
                raise PayloadError(f"the payload is not UTF-8 text (byte {error.start})") from None
        return self._text

    @property
    def document(self) -> object:
        """Return the payload as a document; numbers are `JsonNumber`. Raises `PayloadError`."""
        if self._document is _UNREAD:
            if self._error is None:
                self._parse()
            if self._error is not None:
                raise PayloadError(self._error)
        return self._document

    def _parse(self) -> None:
        try:
            if self._layout is not None:
                self._document = self._layout.read(self.payload)
            else:
                # `decode` also searches blanks around the document, which takes as long as a small document.
                text = self.text
                document, end = _DECODER.raw_decode(text)
                if end < len(text):
                    _DECODER.decode(text)  # raises the error
                self._document = document
        except json.JSONDecodeError as error:
            self._error = f"the payload is not JSON ({error.msg}, character {error.pos})"
        except RecursionError:
            self._error = "the payload's JSON is nested too deep"
        except PayloadError as error:
            self._error = str(error)
