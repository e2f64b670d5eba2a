"""Checks and explanations for authors of mapping files: faults, the evaluation of a message, and suggested mappings."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from edge.mapping.evaluate import BoundMapping
from edge.mapping.jsonpath import Hit
from edge.mapping.mapper import Mapper, fits
from edge.mapping.outcome import Mapped
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.places import DOCUMENTS
from edge.mapping.reading import Reading
from edge.mapping.rules import Rule
from edge.mapping.suggestion import suggest

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
    "event",
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
    reasons: tuple[str, ...] = ()
    """Times and units that the payload lacks, and for a message without readings and problems: why each reading of the
    applied mappings yields nothing.
    """
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
        reasons: list[str] = []
        if payload and not outcome.ignored:
            silent = not (outcome.readings or outcome.problems)
            for bound in (each for group in mapper.groups(topic) for each in group):
                if bound.mapping.name in outcome.mappings:
                    reasons += _reasons(bound, message.read_by(bound.mapping.layout), silent=silent)
        return MessageExplanation(topic, outcome, tuple(candidates), reasons=tuple(reasons))
    patterns = {mapping.topic.text for pack in mapper.packs for mapping in pack.mappings if mapping.topic.text != "#"}
    nearest = difflib.get_close_matches(topic, sorted(patterns), n=3, cutoff=0.4)
    return MessageExplanation(topic, outcome, tuple(candidates), tuple(nearest), suggestion=suggest(topic, payload))


def _reasons(bound: BoundMapping, message: PayloadMessage, *, silent: bool) -> Iterator[str]:
    """Yield what the payload lacks for a mapping. `silent`: also why each of its readings yields nothing."""
    mapping = bound.mapping
    try:
        documents = [message.document] if mapping.payload in DOCUMENTS else []
        if mapping.each is not None:
            hits = [*mapping.each.walk(message.document)]
            if not hits:
                yield f'{mapping.name}: the payload has no items at "{mapping.each.text}"'
                return
            if mapping.pick is not None and mapping.pick.of(hits) is None:
                yield f'{mapping.name}: no item has a number at "{mapping.pick.path.text}"'
                return
            documents = [hit.value for hit in hits]
        if mapping.decode is not None:
            documents = [mapping.decode.decoded(each) for each in documents]
    except PayloadError:
        return
    for rule in mapping.rules:
        hits = [hit for each in documents for hit in (rule.path.walk(each) if rule.path is not None else ())]
        if silent:
            yield f"{mapping.name}, {rule.what}: {_reason(rule, message, hits)}"
        for key, path in (("time", rule.time.path if rule.time is not None else None), ("unit_from", rule.unit_path)):
            starts = documents if path is None or not path.absolute else [message.whole]
            if path is not None and path.relative:
                starts = [hit.parent for hit in hits]
            if path is not None and hits and not any(path.leads_somewhere(start) for start in starts):
                yield f'{mapping.name}, {rule.what}: the payload has nothing at "{path.text}" ({key})'


def _reason(rule: Rule, message: PayloadMessage, hits: Sequence[Hit]) -> str:
    if rule.terms is None:
        return "it is ignored"
    if not rule.applies(message):
        return "its condition does not hold"
    if rule.path is not None and not hits:
        return "the payload has no such value"
    taken = [hit for hit in hits if rule.takes(hit.parent)]
    if hits and not taken:
        return "its condition on the object that contains the value does not hold"
    if any(isinstance(hit.value, dict | list) for hit in taken):
        return "it is an object or a list, and not a value"
    if taken and all(hit.value is None for hit in taken):
        return "it is null"
    texts = [hit.value for hit in taken] if rule.path is not None else [message.text]
    if any(text in rule.convert.absent for text in texts if isinstance(text, str)):
        return "`absent` lists it"
    return "it has no value of the datatype"


def members(reading: Reading) -> dict[str, str]:
    """Return the parts of a reading that it has, as texts."""
    found = {}
    for key in _KEYS:
        value = getattr(reading, key)
        if value is not None:
            found[key] = value.isoformat() if isinstance(value, datetime) else str(value)
    if found.get("event") == "":
        found["event"] = "each message"
    return found


def to_json(explanation: MessageExplanation) -> dict[str, object]:
    """Return an explanation for programs."""
    outcome = explanation.outcome
    return {
        "topic": explanation.topic,
        "matched": outcome.matched,
        "mappings": list(outcome.mappings),
        "candidates": [
            {"mapping": each.mapping, "topic": each.topic, "applied": each.applied, "why": each.why}
            for each in explanation.candidates
        ],
        "readings": [members(reading) for reading in outcome.readings],
        "problems": [
            {"mapping": problem.mapping, "what": problem.what, "reason": problem.reason, "kept": problem.kept}
            for problem in outcome.problems
        ],
        "reasons": list(explanation.reasons),
        "suggestion": explanation.suggestion,
    }
