"""Setters: the message that sets the value of an observation at its device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from edge.mapping.bounded_numbers import bounded_number
from edge.mapping.commands import TopicTemplate, payload_template
from edge.mapping.encode import check_variable
from edge.mapping.errors import BadKeyError, under
from edge.mapping.jsonpath import parse_path
from edge.mapping.model import SetSpec
from edge.mapping.reading import XSD_BOOLEAN, XSD_STRING
from edge.mapping.solution import CommandError, Solution, SolutionTerm
from edge.mapping.values import Converter, shown

VALUE: Final = "value"
"""Variable of the payload that stands for the desired value."""
_LACKING: Final = "not_captured"
_TRUTH: Final = frozenset({"true", "false"})
_WRITTEN: Final = frozenset({"true", "false", "1", "0"})
"""Forms of a boolean (XML Schema 1.1 part 2, section 3.3.2.2)."""


@dataclass(frozen=True, slots=True, eq=False)
class Setter:
    """A compiled setter."""

    topic: TopicTemplate
    payload: Callable[[Solution], str]
    convert: Converter | None
    """Conversion of the desired value; None: it is sent as it is."""
    names: frozenset[str]
    """Captures that it needs."""
    low: Decimal | None
    high: Decimal | None
    step: Decimal | None
    choices: tuple[str, ...]
    """The values that it accepts; empty: any, within the limits."""
    qos: int
    retain: bool
    limit: int
    """Bytes of the longest payload."""

    def render(self, captures: Mapping[str, str], value: SolutionTerm) -> tuple[str, bytes]:
        """Return topic and payload. Raises `CommandError`."""
        if self.low is not None or self.high is not None:
            self._check(value.text)
        if self.convert is None and self.choices and value.text not in _WRITTEN:
            raise CommandError(f"{shown(value.text)} is not a truth value")
        if self.convert is None and self.choices:
            # JSON has two truth values, however the graph writes them: 1, "1" and "true" would be other JSON.
            value = SolutionTerm("true" if value.text in ("true", "1") else "false", XSD_BOOLEAN)
        converters = {} if self.convert is None else {VALUE: self.convert}
        terms = {**{name: SolutionTerm(text) for name, text in captures.items()}, VALUE: value}
        solution = Solution(terms, converters)
        payload = self.payload(solution).encode("utf-8", "surrogatepass")
        if len(payload) > self.limit:
            raise CommandError(f"the payload has {len(payload)} bytes, the limit is {self.limit}")
        return self.topic.render(solution), payload

    def describe(self) -> dict[str, object]:
        """Return how people set it: `kind` is "switch", "choice", "number" or "text"."""
        if self.choices and set(self.choices) <= _TRUTH:
            return {"kind": "switch"}
        if self.choices:
            return {"kind": "choice", "choices": list(self.choices)}
        if self.low is None and self.high is None:
            return {"kind": "text"}
        limits = {"min": self.low, "max": self.high, "step": self.step}
        return {"kind": "number", **{name: None if each is None else float(each) for name, each in limits.items()}}

    def _check(self, text: str) -> None:
        number = bounded_number(text)
        if number is None:
            raise CommandError(f"{shown(text)} is not a number")
        if self.low is not None and number < self.low:
            raise CommandError(f"{shown(text)} is below the minimum {self.low}")
        if self.high is not None and number > self.high:
            raise CommandError(f"{shown(text)} is above the maximum {self.high}")


def compile_setter(spec: SetSpec, reading: Converter, known: Collection[str], limit: int) -> Setter:
    """Compile the setter of a reading. Without `values`, those of the reading are reversed.

    `known`: captures of the topic, and those in the IRI of the observation. `limit`: bytes of the longest payload.
    Raises `BadKeyError`.
    """
    try:
        return _compiled(spec, reading, known, limit)
    except BadKeyError as error:
        error.fault = BadKeyError(
            error.fault.reason,
            key="set" if error.fault.key is None else f"set.{error.fault.key}",
            allowed=error.fault.allowed,
            nearest=error.fault.nearest,
        ).fault
        raise


def _compiled(spec: SetSpec, reading: Converter, known: Collection[str], limit: int) -> Setter:
    numeric = spec.scale is not None or spec.offset is not None
    if spec.values is not None and (numeric or spec.min is not None or spec.max is not None):
        raise BadKeyError("A table of values is not scaled or bounded.", key="values")
    if spec.min is not None and spec.max is not None and spec.min >= spec.max:
        raise BadKeyError(f"The smallest value {spec.min} is not below the largest.", key="min")
    if reading.calculated and not numeric:
        raise BadKeyError(
            "The reading is scaled; say how a desired value becomes that of the device.", allowed="scale, offset"
        )
    table: dict[str, tuple[str, str]] | None = None
    if spec.values is not None:
        table = {text: (str(value), XSD_STRING) for text, value in spec.values.items()}
    elif reading.table is not None and not numeric and spec.min is None and spec.max is None:
        table = {}
        for text, (value, _) in reading.table.items():
            table.setdefault(value, (text, XSD_STRING))  # the first text of a value is its usual one
    convert = None
    if table is not None:
        convert = Converter(kind="auto", table=table)
    elif numeric:
        convert = Converter(kind="number", scale=spec.scale, offset=spec.offset)
    boolean = table is None and reading.kind == "boolean"
    topic = under("topic", lambda text: TopicTemplate(text, known, _LACKING), spec.topic)
    payload = under(
        "payload", lambda given: payload_template(given, {*known, VALUE}, _LACKING, spec.encode), spec.payload
    )
    if spec.encode is not None:
        bytes_text = parse_path(spec.encode.path).first(spec.payload)
        if table is not None or reading.kind != "string":
            check_variable(str(bytes_text), VALUE, [] if table is None else [text for text, _ in table.values()])
    choices = tuple(table) if table is not None else ("true", "false") if boolean else ()
    _check_choices(choices, known, payload, {} if convert is None else {VALUE: convert}, boolean=boolean)
    return Setter(
        topic,
        payload,
        convert,
        topic.names,
        spec.min,
        spec.max,
        spec.step,
        choices,
        1 if spec.qos is None else spec.qos,
        bool(spec.retain),
        limit,
    )


def _check_choices(
    choices: Sequence[str],
    known: Collection[str],
    payload: Callable[[Solution], str],
    converters: Mapping[str, Converter],
    *,
    boolean: bool,
) -> None:
    """Check that each value of a switch or a table gives a message. Raises `BadKeyError`."""
    # Zero is a capture that is text, a number and hexadecimal.
    captures = {name: SolutionTerm("00") for name in known}
    for choice in choices:
        value = SolutionTerm(choice, XSD_BOOLEAN if boolean else XSD_STRING)
        try:
            payload(Solution({**captures, VALUE: value}, converters))
        except CommandError as error:
            raise BadKeyError(f"{shown(choice)} can never be sent: {error}.", key="payload") from None
