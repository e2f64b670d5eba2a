"""Checks and explanations for authors of mapping files: faults, the evaluation of a message, and suggested mappings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from edge.mapping.evaluate import BoundMapping
from edge.mapping.explain_conditions import failed, failed_in, other_level
from edge.mapping.jsonpath import Hit, JsonPath
from edge.mapping.mapper import Mapper
from edge.mapping.modbus_devices import TOPIC as MODBUS
from edge.mapping.outcome import Mapped
from edge.mapping.payload import PayloadError, PayloadMessage
from edge.mapping.payload_position import DOCUMENTS
from edge.mapping.reading import Reading
from edge.mapping.rules import ReadingRule
from edge.mapping.suggestion import suggest

_MOST_OTHERS: Final = 5
_MOST_NAMES: Final = 1000
"""Member names that are compared with one that the payload lacks."""
_MOST_ITEMS: Final = 10
"""Numbers of items in a text."""
_LONGEST_TOPIC: Final = 256
"""Characters of a topic that is compared with patterns: the time grows with its square."""
_LONGEST_NAME: Final = 64
"""Characters of a member name that is compared with others."""
_MOST_PAIRS: Final = 500_000
"""Pairs of characters that are compared for one message. The time of a comparison grows with them: 40 ms in all."""
_KEYS = (
    "observation",
    "value",
    "datatype",
    "unit",
    "location",
    "property",
    "sensor",
    "sensor_label",
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
    others: tuple[Candidate, ...] = ()
    """For an unmapped topic: the mappings of these patterns, and mappings with another `topic_regex`."""
    reasons: tuple[str, ...] = ()
    """Times and units that the payload lacks, and for a message without readings and problems: why each reading of the
    applied mappings yields nothing.
    """
    missing: tuple[str, ...] = ()
    """For a message with readings: the values of the operator's mappings that the payload, or items of it, lack."""
    suggestion: str | None = None
    """For an unmapped topic: a mapping to paste into a file and adapt."""


@dataclass(slots=True)
class _NameSearch:
    """Finds similar member names for one message, with a bounded number of comparisons."""

    left: int = _MOST_PAIRS

    def most_similar(self, lacking: str, names: Sequence[str]) -> str | None:
        """Return the name that is most similar to one that the payload lacks, whatever their case; None: none is."""
        wanted = lacking.casefold()
        if len(wanted) > _LONGEST_NAME:
            return None
        folded: dict[str, str] = {}
        for name in names[:_MOST_NAMES]:
            # Other letters can be longer in the folded form, but never shorter.
            key = name[: _LONGEST_NAME + 1].casefold()
            self.left -= len(wanted) * len(key)
            if self.left < 0:
                break
            if len(key) <= _LONGEST_NAME:
                folded.setdefault(key, name)  # of names that differ in their case only, the first one
        import difflib  # 3 ms, and only explanations need it

        close = difflib.get_close_matches(wanted, folded, n=1)
        return folded[close[0]] if close else None


def explain(mapper: Mapper, topic: str, payload: bytes, now: datetime | None = None) -> MessageExplanation:
    """Explain how `mapper` evaluates a message (`now`: time of arrival), and suggest a mapping for it."""
    outcome = mapper.map(topic, payload, now)
    message = PayloadMessage(topic, payload)
    candidates = list(_candidates(mapper, outcome, message))
    if not candidates and (writer := mapper.writer(topic)) is not None:
        candidates.append(Candidate(*writer, {}, True, "what this actuator sends itself"))
    if outcome.matched:
        reasons: list[str] = []
        missing: list[str] = []
        search = _NameSearch()
        own = {
            mapping.name
            for pack in mapper.packs
            for mapping in pack.mappings
            # A poll of a Modbus device has only the registers that are due.
            if pack.own and not mapping.topic.text.startswith(MODBUS)
        }
        if payload and not outcome.ignored:
            silent = not (outcome.readings or outcome.problems)
            for bound in (each for group in mapper.groups(topic) for each in group):
                if bound.mapping.name in outcome.mappings:
                    read = message.read_by(bound.mapping.layout)
                    reasons += _reasons(bound, read, search, silent=silent)
                    # The packs of the gateway name the values of all models of a device.
                    if not silent and bound.mapping.name in own:
                        missing += _missing(bound, read, search)
        return MessageExplanation(topic, outcome, tuple(candidates), reasons=tuple(reasons), missing=tuple(missing))
    patterns = {mapping.topic.text for pack in mapper.packs for mapping in pack.mappings if mapping.topic.text != "#"}
    similar = sorted(patterns) if len(topic) <= _LONGEST_TOPIC else ()
    import difflib  # 3 ms, and only explanations need it

    nearest = difflib.get_close_matches(topic, similar, n=3, cutoff=0.4)
    others = tuple(islice(_others(mapper, topic, {each.mapping for each in candidates}, nearest), _MOST_OTHERS))
    return MessageExplanation(
        topic, outcome, tuple(candidates), tuple(nearest), others, suggestion=suggest(topic, payload)
    )


def _candidates(mapper: Mapper, outcome: Mapped, message: PayloadMessage) -> Iterator[Candidate]:
    """Yield the mappings whose topic pattern matches, by descending precedence."""
    first = ""
    for group in mapper.groups(message.topic):
        for bound in group:
            mapping = bound.mapping
            applied = mapping.name in outcome.mappings
            if applied:
                why = "ignores the message" if mapping.ignore else "applied"
            elif not message.payload:
                why = "the payload is empty: a cleared retained message"
            elif reason := failed(mapping.when, message.read_by(mapping.layout)):
                why = f"its condition does not hold: {reason}"
            else:
                why = f"{first} takes precedence" if first else "the message was not read"
            captures = {name: value for name, value in bound.captures.items() if name != "topic"}
            yield Candidate(mapping.name, mapping.topic.text, captures, applied, why)
        if not first and not all(bound.mapping.also for bound in group):
            first = next((bound.mapping.name for bound in group if bound.mapping.name in outcome.mappings), "")


def _others(mapper: Mapper, topic: str, shown: Collection[str], nearest: Collection[str]) -> Iterator[Candidate]:
    """Yield mappings that do not match a topic, with the level in which it differs from their pattern."""
    for mapping in (each for pack in mapper.packs for each in pack.mappings if each.name not in shown):
        why = other_level(mapping.topic, topic)
        if why is None and mapping.topic_regex is not None:
            why = "its `topic_regex` does not match the topic"
        elif why is None or mapping.topic.text not in nearest:
            continue
        yield Candidate(mapping.name, mapping.topic.text, {}, False, why)


def _missing(bound: BoundMapping, message: PayloadMessage, search: _NameSearch) -> Iterator[str]:
    """Yield the values of a mapping at whose path the payload, or some of its items, have nothing or null."""
    mapping = bound.mapping
    if mapping.payload not in DOCUMENTS:
        return
    try:
        documents = [message.document]
        if mapping.each is not None:
            documents = [hit.value for hit in mapping.each.walk(message.document)]
        if mapping.decode is not None:
            documents = [mapping.decode.decoded(each) for each in documents]
    except PayloadError:
        return
    for number, rule in enumerate(mapping.rules):
        if rule.terms is None or rule.path is None or rule.default is not None or failed(rule.when, message):
            continue
        which = f"readings[{number}]" if len(mapping.rules) > 1 else "its value"
        lacking = [at for at, each in enumerate(documents) if not rule.path.leads_somewhere(each)]
        if len(lacking) == len(documents):
            yield f"{mapping.name}: {which}: {_nothing_at(rule.path, documents, search)}"
        elif lacking:
            yield f'{mapping.name}: {which}: nothing at "{rule.path.text}"{_items(lacking, documents)}'
        null = [at for at, each in enumerate(documents) if _is_null(rule, each)]
        if null:
            yield f"{mapping.name}: {which}: null is not a value{_items(null, documents)}"


def _is_null(rule: ReadingRule, document: object) -> bool:
    """Whether all that a reading finds in a document is null."""
    hits = [] if rule.path is None else [hit.value for hit in rule.path.walk(document)]
    return bool(hits) and all(value is None for value in hits)


def _items(numbers: Sequence[int], documents: Sequence[object]) -> str:
    """Return which of several items a text is about."""
    if len(documents) == 1:
        return ""
    shown = ", ".join(map(str, numbers[:_MOST_ITEMS])) + (", ..." if len(numbers) > _MOST_ITEMS else "")
    return f" in {'item' if len(numbers) == 1 else 'items'} {shown} of {len(documents)}, counted from 0"


def _nothing_at(path: JsonPath, documents: Sequence[object], search: _NameSearch) -> str:
    """Return that the payload has nothing at a path, with the most similar name that it has there."""
    for document in documents:
        if search.left <= 0:
            break
        missing = path.missing_name(document)
        if missing is not None and (similar := search.most_similar(*missing)) is not None:
            return f'nothing at "{path.text}"; did you mean "{similar}"?'
    return f'nothing at "{path.text}"'


def _reasons(bound: BoundMapping, message: PayloadMessage, search: _NameSearch, *, silent: bool) -> Iterator[str]:
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
            yield f"{mapping.name}, {rule.what}: {_reason(rule, message, documents, hits, search)}"
        for key, path in (("time", rule.time.path if rule.time is not None else None), ("unit_from", rule.unit_path)):
            starts = documents if path is None or not path.absolute else [message.whole]
            if path is not None and path.relative:
                starts = [hit.parent for hit in hits]
            if path is not None and hits and not any(path.leads_somewhere(start) for start in starts):
                yield f'{mapping.name}, {rule.what}: the payload has nothing at "{path.text}" ({key})'


def _reason(
    rule: ReadingRule, message: PayloadMessage, documents: Sequence[object], hits: Sequence[Hit], search: _NameSearch
) -> str:
    if rule.terms is None:
        return "it is ignored"
    if reason := failed(rule.when, message):
        return f"its condition does not hold: {reason}"
    if rule.path is not None and not hits:
        return _nothing_at(rule.path, documents, search)
    taken = [hit for hit in hits if rule.takes(hit.parent)]
    if hits and not taken:
        reason = failed_in(rule.local_when, [hit.parent for hit in hits])
        return f"its condition on the object that contains the value does not hold: {reason}"
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
    if reading.existing:
        found["existing"] = "true"
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
        "others": [{"mapping": each.mapping, "topic": each.topic, "why": each.why} for each in explanation.others],
        "readings": [members(reading) for reading in outcome.readings],
        "problems": [
            {"mapping": problem.mapping, "what": problem.what, "reason": problem.reason, "kept": problem.kept}
            for problem in outcome.problems
        ],
        "reasons": list(explanation.reasons),
        "missing": list(explanation.missing),
        "suggestion": explanation.suggestion,
    }
