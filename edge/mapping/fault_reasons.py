"""Reasons of faults that other languages have, by code: of mapping files, announcements and births.

`edge/web/texts/faults` has their texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


class Reason(str):
    """The English text of a reason, with the code and the values from which other languages make theirs."""

    __slots__ = ("code", "place", "values")

    code: str | None
    """None: only English has it."""
    values: Mapping[str, str]
    place: str
    """Beginning of the text: the part that has the fault. Empty: the text has only the reason."""

    def __new__(cls, text: str, code: str | None, values: Mapping[str, str], place: str = "") -> Reason:
        """Keep `values`, which are those of the placeholders, next to the text."""
        found = super().__new__(cls, text)
        found.code, found.values, found.place = code, values, place
        return found

    @property
    def alone(self) -> Reason:
        """The same without the place."""
        return Reason(self.removeprefix(f"{self.place}: "), self.code, self.values) if self.place else self


REASONS: Final[Mapping[str, str]] = {
    "announced_before": "{name} has announced {observation} before",
    "announcement_bytes": "it has more than {limit} bytes (discovery.max_announcement)",
    "availability_topics": "it has {count} topics, of which {limit} are read",
    "birth_twice": "the birth has it twice",
    "command_template": 'the command template "{name}" is not supported',
    "components_missing": 'a device needs an object "components"',
    "converted_by_template": "its value is converted by the template",
    "datatype_unknown": "its datatype {name} is not one of Sparkplug B",
    "datatype_unused": "its datatype is {name}, of which no observation is made; publish its parts as metrics",
    "further_problems": "{count} further problems",
    "identifier_length": "an identifier must have 1 to {limit} characters",
    "max_bytes": "all devices would have more than {limit} bytes (discovery.max_bytes)",
    "max_device_bytes": "the device would have more than {limit} bytes (discovery.max_device_bytes)",
    "max_device_entities": "the device would have more than {limit} entities (discovery.max_device_entities)",
    "max_entities": "all devices would have more than {limit} entities (discovery.max_entities)",
    "metric_name": "its name has control characters, blanks at its ends, or two kinds of quotation marks",
    "metric_of_device": "a device of the node has the same name",
    "metric_of_node": "its node has a metric of the same name",
    "metric_unnamed": "a metric has no name",
    "metrics_limit": "all nodes would have more than {limit} metrics (sparkplug.max_metrics)",
    "not_mapped": "it cannot be mapped: {reason}",
    "payload_not_json": "the payload is not JSON: {reason}",
    "payload_not_object": "the payload is not a JSON object",
    "payload_not_text": "the payload is not UTF-8 text",
    "platform_missing": 'it needs a "platform"',
    "template": 'the template "{name}" is not supported: {reason}',
    "topic_not_announced": 'the topic "{name}" cannot be announced',
    "topic_not_of_commands": 'the topic "{name}" is not one of commands',
    "topic_of_many": 'the topic "{name}" stands for too many topics',
    "unit_converted": "it cannot be set, because its unit is converted",
    "unit_unknown": 'the unit "{name}" is not known, so it has none',
    "actuator_topic_missing": "An actuator needs a topic.",
    "binary_fields": "Binary payloads have fields, and no others do.",
    "brace": 'A brace is open or stray in "{name}".',
    "captured_twice": "The topic captures {{{name}}} twice.",
    "condition_empty": "A condition says nothing.",
    "device_name": "A name has 1 to 64 letters, digits, _, - and dots.",
    "device_taken": "Another device of this file has that name.",
    "exists_path": '"exists" needs a path.',
    "field_name": "A field has a name of letters, digits, _ and -.",
    "field_taken": "Another field has that name.",
    "for_payload": '"{name}" is for payloads of kind {kind}, this one is {payload}.',
    "in_readings": 'A mapping with readings has no "{name}" of its own. Set it in each reading.',
    "no_effect": "This has no effect: {reason}.",
    "no_hexadecimal": '"{name}" is not hexadecimal.',
    "no_readings": "The list of readings is empty.",
    "no_registers": "The device has no registers.",
    "not_a_capture": '"{name}" in "{text}" is not a capture.',
    "not_a_datatype": '"{name}" is not a datatype.',
    "not_a_filter": '"{name}" is not a filter.',
    "not_a_path": '"{name}" is not a path: it is invalid from "{rest}".',
    "not_a_prefix": '"{name}" is not a prefix.',
    "not_a_regex": "Not a regular expression: {reason}.",
    "not_a_time_format": '"{name}" is not a time format.',
    "not_a_type": '"{name}" is not a type.',
    "not_a_unit": '"{name}" is not a unit.',
    "not_absolute": '"{name}" is not an absolute IRI.',
    "not_an_iri": '"{name}" is neither an IRI nor a CURIE.',
    "not_captured": '"{text}" uses {{{name}}}, which nothing captures.',
    "not_selected": '"{text}" uses {{{name}}}, which the query does not select.',
    "observation_missing": "A reading needs an observation.",
    "path_empty": "A path is empty.",
    "payload_missing": "A message needs a payload.",
    "port_taken": "Another port of this file has that name.",
    "prefix_unknown": 'The prefix "{name}" of "{text}" is not known; declare it in [namespaces].',
    "register_taken": "Another register of the device has that name.",
    "same_observation": '"{name}" has the same observation: its values replace each other.',
    "the_last_level": '"{name}" stands for all remaining levels and must be the last.',
    "topic_length": "A topic has 1 to 65535 characters, and none is NUL.",
    "topic_missing": "A mapping needs a topic.",
    "unknown_unit": 'QUDT has no unit "{name}".',
    "whole_level": '"{name}" must be a whole level; in "{text}" it is a part.',
    "zone_unknown": 'The time zone "{name}" is not known on this machine.',
}
"""English texts with placeholders in the format of `str.format`. The value `reason` is English in every language."""

TYPES: Final[Mapping[str, str]] = {
    "bool_type": "bool",
    "bool_parsing": "bool",
    "dict_type": "table",
    "model_type": "table",
    "decimal_parsing": "number",
    "decimal_type": "number",
    "float_parsing": "number",
    "float_type": "number",
    "greater_than": "above",
    "greater_than_equal": "at_least",
    "int_from_float": "integer",
    "int_parsing": "integer",
    "int_type": "integer",
    "less_than": "below",
    "less_than_equal": "at_most",
    "list_type": "list",
    "literal_error": "one_of",
    "scalar": "scalar",
    "string_type": "text",
}
"""Codes of values that Pydantic refuses, after "type_", by its own word."""
_BOUNDS: Final = {"gt": "limit", "ge": "limit", "lt": "limit", "le": "limit", "expected": "expected"}


def because(code: str, **values: object) -> Reason:
    """Return the reason with a code of `REASONS`."""
    given = {name: str(value) for name, value in values.items()}
    return Reason(REASONS[code].format_map(given), code, given)


def placed(place: str, reason: str) -> Reason:
    """Return a reason that begins with the part that has the fault."""
    known = reason if isinstance(reason, Reason) else Reason(reason, None, {})
    return Reason(f"{place}: {reason}", known.code, known.values, place)


def reason_of(error: ValueError) -> str:
    """Return the text of an error, with its code if it is a `Reason`: `str` forgets that."""
    text = error.args[0] if error.args else ""
    return text if isinstance(text, str) else str(error)


def of_type(text: str, word: str, context: Mapping[str, object]) -> str:
    """Return the text of Pydantic about a value, with a code if its `word` for the error has one."""
    code = TYPES.get(word)
    if code is None:
        return text
    values = {_BOUNDS[name]: str(context[name]).replace(" or ", ", ") for name in context if name in _BOUNDS}
    return Reason(text, f"type_{code}", values)
