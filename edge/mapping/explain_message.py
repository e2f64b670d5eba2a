"""Checks and explanations for authors of mapping files: faults, the evaluation of a message, and suggested mappings."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from datetime import datetime

from edge.mapping.mapper import Mapper, fits
from edge.mapping.outcome import Mapped
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.reading import Reading
from edge.mapping.values import JsonNumber

_MOST_READINGS = 40
_KEYS = (
    "observation",
    "value",
    "datatype",
    "unit",
    "location",
    "property",
    "sensor",
    "label",
    "comment",
    "time",
    "store",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mapping whose topic pattern matches."""

    mapping: str
    topic: str
    """Its topic pattern."""
    captures: dict[str, str]
    applied: bool
    why: str
    """Short reason why it was applied or not."""


@dataclass(frozen=True, slots=True)
class MessageExplanation:
    """Evaluation of one message, with explanations."""

    topic: str
    outcome: Mapped
    candidates: tuple[Candidate, ...]
    """In order of precedence."""
    nearest: tuple[str, ...] = ()
    """For an unmapped topic: the most similar topic patterns."""
    suggestion: str | None = None
    """For an unmapped topic: a mapping to paste into a file and adapt."""


def explain(mapper: Mapper, topic: str, payload: bytes, now: datetime | None = None) -> MessageExplanation:
    """Explain how `mapper` evaluates a message (`now`: time of arrival), and suggest a mapping for it."""
    outcome = mapper.map(topic, payload, now)
    message = PayloadMessage(topic, payload)
    candidates: list[Candidate] = []
    for group in mapper.groups(topic):
        for bound in group:
            mapping = bound.mapping
            applied = mapping.name in outcome.mappings
            if applied:
                why = "ignores the message" if mapping.ignore else "applied"
            elif not payload:
                why = "the payload is empty: a cleared retained message"
            elif not fits(mapping, message):
                why = "its condition on the payload does not hold"
            else:
                why = "a mapping of higher precedence was applied"
            captures = {name: value for name, value in bound.captures.items() if name != "topic"}
            candidates.append(Candidate(mapping.name, mapping.topic.text, captures, applied, why))
    if not candidates and (writer := mapper.writer(topic)) is not None:
        candidates.append(Candidate(*writer, {}, True, "what this actuator sends itself"))
    if outcome.matched:
        return MessageExplanation(topic, outcome, tuple(candidates))
    patterns = {mapping.topic.text for pack in mapper.packs for mapping in pack.mappings if mapping.topic.text != "#"}
    nearest = difflib.get_close_matches(topic, sorted(patterns), n=3, cutoff=0.4)
    return MessageExplanation(topic, outcome, tuple(candidates), tuple(nearest), suggest(topic, payload))


def members(reading: Reading) -> dict[str, str]:
    """Return the parts of a reading that it has, as texts."""
    found = {}
    for key in _KEYS:
        value = getattr(reading, key)
        if value is not None:
            found[key] = value.isoformat() if isinstance(value, datetime) else str(value)
    return found


def to_json(explanation: MessageExplanation) -> dict[str, object]:
    """Return an explanation for programs."""
    outcome = explanation.outcome
    return {
        "topic": explanation.topic,
        "matched": outcome.matched,
        "mappings": list(outcome.mappings),
        "readings": [members(reading) for reading in outcome.readings],
        "problems": [
            {"mapping": problem.mapping, "what": problem.what, "reason": problem.reason, "kept": problem.kept}
            for problem in outcome.problems
        ],
        "suggestion": explanation.suggestion,
    }


def suggest(topic: str, payload: bytes) -> str:
    """Return a mapping (TOML) for this message, to paste into a file and adapt."""
    lines = ["[[mapping]]", f"topic = {_quoted(topic.replace('{', '{{').replace('}', '}}'))}"]
    base = "edge:" + re.sub(r"[^A-Za-z0-9_-]+", "-", topic).strip("-")
    message = PayloadMessage(topic, payload)
    try:
        document = message.document
    except PayloadError:
        document = None
    if isinstance(document, list) and any(isinstance(each, dict) and {"n", "bn"} & each.keys() for each in document):
        return "\n".join([*lines, 'payload = "senml"', f'observation = "{base}-{{name}}"', 'label = "{name}"']) + "\n"
    if isinstance(document, dict | list):
        return "\n".join([*lines, *_json_lines(base, document)]) + "\n"
    lines.append(f'observation = "{base}"')
    try:
        text = message.text
    except PayloadError:
        return "\n".join([*lines, 'fields = [{ name = "value", type = "u16" }]', 'path = "value"']) + "\n"
    if text.lower() in ("on", "off", "true", "false"):
        lines.append('datatype = "boolean"')
    elif not re.search("[0-9]", text):
        lines.append('datatype = "string"')
    else:
        lines.append('unit = "unit:DegreeCelsius"  # the unit of your sensor')
    lines += ['location = "edge:place:my-room"', f"label = {_quoted(topic.replace('{', '{{').replace('}', '}}'))}"]
    return "\n".join(lines) + "\n"


def _json_lines(base: str, document: object) -> list[str]:
    found: list[tuple[str, str]] = []
    _leaves(document, "", found, 0)
    lines = ['payload = "json"', 'location = "edge:place:my-room"', "readings = ["]
    for path, kind in found:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", path).strip("-") or "value"
        extra = "" if kind == "number" else f', datatype = "{kind}"'
        lines.append(f'  {{ path = {_quoted(path or "$")}, observation = "{base}-{name}"{extra} }},')
    return [*lines, "]"]


def _leaves(node: object, path: str, found: list[tuple[str, str]], depth: int) -> None:
    # Bounds on the suggestion, since the payload comes from a device: number of readings and depth.
    if len(found) >= _MOST_READINGS or depth > 8:
        return
    if isinstance(node, dict):
        for key, value in node.items():
            plain = re.fullmatch(r"[A-Za-z0-9_:\-]+", key)
            step = key if plain else "[" + json.dumps(key, ensure_ascii=False) + "]"
            if not plain and ('"' in key or "\\" in key):
                continue
            _leaves(value, f"{path}.{step}" if path and plain else path + step, found, depth + 1)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            _leaves(value, f"{path}[{index}]", found, depth + 1)
    elif isinstance(node, bool):
        found.append((path, "boolean"))
    elif isinstance(node, JsonNumber):
        found.append((path, "number"))
    elif isinstance(node, str):
        found.append((path, "string"))


def _quoted(text: str) -> str:
    # TOML also requires an escape for U+007F, which JSON does not.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
