"""Bytes within the JSON of a message: the counterpart of `decode`, for messages to devices.

LoRaWAN network servers take the bytes of a downlink as base64 within JSON. The author writes them in hexadecimal, with
variables, as in a binary payload of an actuator.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from edge.mapping.binary import FLOATS, INTEGERS
from edge.mapping.errors import BadKeyError, under
from edge.mapping.fault_reasons import because
from edge.mapping.jsonpath import parse_path
from edge.mapping.model import EncodeSpec
from edge.mapping.solution import CommandError
from edge.mapping.values import shown

_EXAMPLE: Final = '"A0 {value|u8}"'
_NO_VARIABLES: Final = re.compile(r"\{[^{}]*\}")
_DIGITS: Final = re.compile(r"[0-9A-Fa-f\s]*")


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text of a payload in hexadecimal, and the encoding in which its bytes are sent."""

    text: str
    encoding: str

    def encode(self, text: str) -> str:
        """Return the rendered text in the encoding of the message. Raises `CommandError`."""
        found = from_hex(text)
        return found.hex() if self.encoding == "hex" else base64.b64encode(found).decode("ascii")


def from_hex(text: str) -> bytes:
    """Return the bytes of a text in hexadecimal. Raises `CommandError`."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise CommandError(f"the payload is not hexadecimal: {shown(text)}") from None


def check_bytes(text: str) -> None:
    """Check that a text between variables is whole bytes in hexadecimal. Raises `BadKeyError`.

    Half a byte, as in "0{value|u8}", would shift all that follow it.
    """
    try:
        bytes.fromhex(text)
    except ValueError:
        raise BadKeyError(
            f'"{text}" is not hexadecimal, with two digits for each byte.', key="payload", allowed=_EXAMPLE
        ) from None


def with_encoded(payload: object, spec: EncodeSpec) -> object:
    """Return a payload with an `EncodedText` at the path of `encode`. Raises `BadKeyError`."""
    if isinstance(payload, str):
        raise BadKeyError(
            f'The payload is the text "{payload}", and not JSON with a {spec.path}. An actuator sends a text as bytes '
            'with encoding = "hex".',
            key="encode",
            allowed=f"payload = {{ data = {_EXAMPLE} }}",
        )
    path = under("encode.path", parse_path, spec.path)
    if not path.fixed_steps:
        raise BadKeyError(
            f'"{spec.path}" may lead to several places or to none.',
            key="encode.path",
            allowed="data, downlinks[0].bytes",
        )
    return _replaced(payload, path.fixed_steps, spec)


def _replaced(node: object, steps: tuple[str | int, ...], spec: EncodeSpec) -> object:
    if not steps:
        if not isinstance(node, str):
            raise BadKeyError(f"{spec.path} must be a text in hexadecimal.", key="payload", allowed=_EXAMPLE)
        if not _DIGITS.fullmatch(_NO_VARIABLES.sub("", node)):
            raise BadKeyError(because("no_hexadecimal", name=node), key="payload", allowed=_EXAMPLE)
        return EncodedText(node, spec.encoding)
    step = steps[0]
    if isinstance(step, str) and isinstance(node, dict) and step in node:
        return {**node, step: _replaced(node[step], steps[1:], spec)}
    if isinstance(step, int) and isinstance(node, list) and 0 <= step < len(node):
        return [*node[:step], _replaced(node[step], steps[1:], spec), *node[step + 1 :]]
    raise BadKeyError(f"The payload has no {spec.path} to encode.", key="encode.path")


def typed_texts(payload: object, spec: EncodeSpec | None) -> Iterator[str]:
    """Yield the variables with a type in texts of JSON that are not encoded: they become hexadecimal digits."""
    if isinstance(payload, str):
        return
    try:
        yield from _typed(payload if spec is None else with_encoded(payload, spec))
    except BadKeyError:
        return  # which the compilation reports


def _typed(node: object) -> Iterator[str]:
    if isinstance(node, dict | list):
        for each in (*node, *node.values()) if isinstance(node, dict) else node:
            yield from _typed(each)
    elif isinstance(node, str):
        for found in _NO_VARIABLES.finditer(node):
            if _types(found[0]):
                yield found[0]


def _types(variable: str) -> bool:
    """Whether a variable with its filters has a type."""
    return any(word.strip() in INTEGERS or word.strip() in FLOATS for word in variable[1:-1].split("|")[1:])


def check_variable(text: str, name: str, texts: Collection[str]) -> None:
    """Check that a variable becomes bytes in a text in hexadecimal. Raises `BadKeyError`.

    `texts`: its values, if they come from a table; empty: it is a number. The decimal digits of a number would be read
    as hexadecimal ones.
    """
    for found in _NO_VARIABLES.finditer(text):
        if found[0][1:-1].partition("|")[0].strip() != name or _types(found[0]):
            continue
        if not texts:
            raise BadKeyError(
                f"The digits of {found[0]} would be read as hexadecimal ones; name the type of the number.",
                key="payload",
                allowed=", ".join(f"{{{name}|{kind}}}" for kind in ("u8", "i16", "u32le", "f32")),
            )
        wrong = next((each for each in texts if not _DIGITS.fullmatch(each)), None)
        if wrong is not None:
            raise BadKeyError(
                because("no_hexadecimal", name=wrong), key="values", allowed='{ true = "01", false = "00" }'
            )
