"""Bytes within a JSON payload: the text at a path is replaced by the document of its fields."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from edge.mapping.binary import PayloadLayout, layout
from edge.mapping.errors import BadKeyError, under
from edge.mapping.jsonpath import JsonPath, parse_path
from edge.mapping.model import DecodeSpec
from edge.mapping.payload import PayloadError
from edge.mapping.values import JsonNumber, shown

_FIXED: Final = "a path of fixed names, such as data or uplink.frm_payload"


@dataclass(frozen=True, slots=True)
class Decoder:
    """Compiled `decode`."""

    path: JsonPath
    names: tuple[str, ...]
    hex: bool
    layout: PayloadLayout

    def decoded(self, document: object) -> object:
        """Return a document with the fields in the place of the text. Raises `PayloadError`.

        The given document is not changed, because other mappings read it, too.
        """
        return self._replaced(document, 0)

    def _replaced(self, node: object, depth: int) -> object:
        if depth == len(self.names):
            return self.layout.read(self._bytes(node))
        name = self.names[depth]
        if not isinstance(node, dict) or name not in node:
            raise PayloadError(f"the payload has no {self.path.text} to decode")
        return {**node, name: self._replaced(node[name], depth + 1)}

    def _bytes(self, text: object) -> bytes:
        if not isinstance(text, str) or isinstance(text, JsonNumber):
            raise PayloadError(f"{self.path.text} is not a text to decode")
        try:
            # `validate`: otherwise characters of another alphabet would be skipped.
            return bytes.fromhex(text) if self.hex else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            kind = "hexadecimal" if self.hex else "base64"
            raise PayloadError(f"{self.path.text} is not {kind}: {shown(text)}") from None


def decoder(spec: DecodeSpec) -> Decoder:
    """Compile `decode`. Raises `BadKeyError`."""
    path = under("decode.path", parse_path, spec.path)
    names = path.fixed_names
    if not names:
        raise BadKeyError(f'"{spec.path}" may lead to several places or to none.', key="decode.path", allowed=_FIXED)
    try:
        return Decoder(path, names, spec.encoding == "hex", layout(spec.fields))
    except BadKeyError as error:
        key = error.fault.key or "fields"
        raise BadKeyError(
            error.fault.reason, key=f"decode.{key}", allowed=error.fault.allowed, nearest=error.fault.nearest
        ) from None
