"""Templates of actuator messages: topics with checked levels, payloads as text or JSON with safe escaping."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from decimal import Decimal
from typing import Final

from edge.mapping.encode import EncodedText, check_bytes, with_encoded
from edge.mapping.errors import BadKeyError
from edge.mapping.model import EncodeSpec
from edge.mapping.solution import ACTUATOR_FILTERS, BYTES_OF_NUMBERS, CommandError, Solution
from edge.mapping.template import Parts, parse_parts
from edge.mapping.values import shown

# MQTT 3.1.1, section 1.5.3: a receiver may close the connection on control characters or non-characters in a topic.
_UNSENDABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_SEVERAL = re.compile(r"\{(\w+)\.\.\.([|}])")
_LONGEST_TOPIC: Final = 65_535
_NOT_SELECTED: Final = "not_selected"

Json = Callable[[Solution], str | None]
"""Part of a JSON payload: its text, or None if it is a single variable without a value."""


class TopicTemplate:
    """A topic with `{variables}`; only `{variable...}` may contain slashes."""

    __slots__ = ("_parts", "_several", "matches", "names", "text")

    def __init__(self, text: str, known: Collection[str], lacking: str = _NOT_SELECTED) -> None:
        """Compile the template. `lacking`: code of the reason why a variable is not known. Raises `BadKeyError`."""
        self.text = text
        self._several = frozenset(found[1] for found in _SEVERAL.finditer(text))
        self._parts = _parts(_SEVERAL.sub(r"{\1\2", text), known, lacking)
        self.names = frozenset(part[0] for part in self._parts if not isinstance(part, str))
        fixed = "".join(part for part in self._parts if isinstance(part, str))
        if not text or text.startswith("$") or _UNSENDABLE.search(fixed) or re.search("[+#]", fixed):
            raise BadKeyError("A topic to send to has no wildcards or control characters, and no $ at its beginning.")
        if not fixed.strip("/"):
            raise BadKeyError(
                f'"{text}" could become any topic; a part of it must be fixed.', allowed="devices/{id...}, {id}/set"
            )
        self.matches = re.compile("".join(self._pattern(part) for part in self._parts), re.DOTALL).fullmatch
        """Whether this template can give a topic."""

    def _pattern(self, part: object) -> str:
        if isinstance(part, str):
            return re.escape(part)
        return ".+" if isinstance(part, tuple) and part[0] in self._several else "[^/]+"

    def render(self, solution: Solution) -> str:
        """Return the topic. Raises `CommandError`."""
        topic = "".join(
            part if isinstance(part, str) else self._levels(part[0], solution.text(*part)) for part in self._parts
        )
        if len(topic.encode("utf-8", "surrogatepass")) > _LONGEST_TOPIC:
            raise CommandError(f"the topic is longer than {_LONGEST_TOPIC} bytes")
        # Checked again here: the first level may come from a variable.
        if topic.startswith("$"):
            raise CommandError(f"the topic {shown(topic)} is the broker's own")
        return topic

    def _levels(self, name: str, value: str) -> str:
        why = None
        if found := re.search("[+#]", value):
            why = f"holds the wildcard {found[0]}"
        elif _UNSENDABLE.search(value):
            why = "holds control characters or broken Unicode"
        elif name not in self._several and "/" in value:
            why = f"holds a slash, which {{{name}...}} would allow"
        elif not all(value.split("/")):
            why = "is empty" if not value else "has an empty level"
        if why is not None:
            raise CommandError(f"?{name} {why}, so it cannot be in a topic: {shown(value)}")
        return value


def payload_template(
    payload: object,
    known: Collection[str],
    lacking: str = _NOT_SELECTED,
    encode: EncodeSpec | None = None,
    *,
    as_hex: bool = False,
) -> Callable[[Solution], str]:
    """Compile the payload: plain text from a text; JSON from a table, list, number or boolean. Raises `BadKeyError`.

    `encode`: bytes within the JSON. `as_hex`: a text is in hexadecimal. The returned function raises `CommandError`.
    """
    if encode is not None:
        payload = with_encoded(payload, encode)
    if isinstance(payload, str) and as_hex:
        return _hex_text(payload, known, lacking)
    if isinstance(payload, str):
        try:
            parts = _parts(payload, known, lacking)
        except BadKeyError as error:
            # A text that looks like a JSON object: the author probably wants JSON, but its braces are parsed as
            # variables.
            if re.match(r'\s*\{\s*"', payload):
                raise BadKeyError(
                    "JSON is written as a table, so that no value can break it.",
                    allowed='payload = { state = "ON", brightness = "{brightness}" }',
                ) from error
            raise
        return lambda solution: _text(parts, solution)
    node = _node(payload, known, lacking)

    def document(solution: Solution) -> str:
        return node(solution) or "null"

    return document


def _parts(text: str, known: Collection[str], lacking: str) -> Parts:
    return parse_parts(text, known, ACTUATOR_FILTERS, lacking)


def _text(parts: Parts, solution: Solution) -> str:
    return "".join(part if isinstance(part, str) else solution.text(*part) for part in parts)


def _hex_text(text: str, known: Collection[str], lacking: str) -> Callable[[Solution], str]:
    """Compile a text in hexadecimal. Raises `BadKeyError`."""
    parts = _parts(text, known, lacking)
    for part in parts:
        if isinstance(part, str):
            check_bytes(part)

    def digits(solution: Solution) -> str:
        for name, filters in (part for part in parts if not isinstance(part, str)):
            scalar = solution.scalar(name)
            # The device would get 16 for the number 10.
            if scalar is not None and scalar.plain and BYTES_OF_NUMBERS.isdisjoint(filters):
                raise CommandError(
                    f"?{name} is {shown(scalar.text)}, which would be read as hexadecimal; name its type, such as "
                    f"{{{name}|u8}}"
                )
        return _text(parts, solution)

    return digits


def _node(value: object, known: Collection[str], lacking: str) -> Json:
    if isinstance(value, str):
        return _string(_parts(value, known, lacking))
    if isinstance(value, EncodedText):
        digits = _hex_text(value.text, known, lacking)
        return lambda solution: _quoted(value.encode(digits(solution)))
    if isinstance(value, dict):
        return _object([(_parts(key, known, lacking), _node(each, known, lacking)) for key, each in value.items()])
    if isinstance(value, list):
        return _array([_node(item, known, lacking) for item in value])
    if isinstance(value, bool):
        return _constant("true" if value else "false")
    # JSON has no infinity and no NaN (RFC 8259, section 6).
    if isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite()):
        return _constant(str(value))
    raise BadKeyError(
        f"JSON has no value like {value}; write a text.", allowed="texts, numbers, truth values, lists, tables"
    )


def _constant(text: str) -> Json:
    return lambda _: text


def _string(parts: Parts) -> Json:
    if len(parts) != 1 or isinstance(parts[0], str):
        return lambda solution: _quoted(_text(parts, solution))
    name, filters = parts[0]

    def value(solution: Solution) -> str | None:
        scalar = solution.scalar(name)
        if scalar is None:
            return None
        # A template of one variable keeps its type: numbers and truth values are written without quotes.
        if scalar.plain and not filters:
            return scalar.text
        return _quoted(solution.text(name, filters))

    return value


def _object(members: list[tuple[Parts, Json]]) -> Json:
    def value(solution: Solution) -> str:
        found = ((key, member(solution)) for key, member in members)
        # A member whose only variable is unbound is left out.
        return "{" + ",".join(f"{_quoted(_text(key, solution))}:{text}" for key, text in found if text) + "}"

    return value


def _array(items: list[Json]) -> Json:
    # In an array it is null, because the other items must keep their places.
    return lambda solution: "[" + ",".join(item(solution) or "null" for item in items) + "]"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
