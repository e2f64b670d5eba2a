"""Keys `time`, `store` and `event` of a reading, compiled."""

from __future__ import annotations

import re

from edge.mapping.errors import BadKeyError, under
from edge.mapping.jsonpath import parse_path
from edge.mapping.model import EventSpec, StoreSpec, TimeSpec
from edge.mapping.payload_position import DOCUMENTS
from edge.mapping.reading import Event
from edge.mapping.rules import EventRule, TimeRule
from edge.mapping.store import StoreRules
from edge.mapping.times import time_format


def time_rule(
    value: object, payload: str, regex: re.Pattern[str] | None, known: dict[object, TimeRule]
) -> TimeRule | None:
    """Return how the time of a value is found. Equal ones share one rule, in `known`. Raises `BadKeyError`."""
    if value is None or payload == "senml":
        return None
    spec = value if isinstance(value, TimeSpec) else TimeSpec(path=str(value))
    if spec in known:
        return known[spec]
    try:
        form = time_format(spec.format, spec.zone)
        if payload in DOCUMENTS:
            rule = TimeRule(parse_path(spec.path), None, form)
        elif regex is not None and spec.path in regex.groupindex:
            rule = TimeRule(None, spec.path, form)
        else:
            raise BadKeyError(f'The pattern has no group "{spec.path}" for the time.', allowed="(?P<time>...)")
    except BadKeyError as error:
        raise error.under("time") from None
    known[spec] = rule
    return rule


def store_rules(value: object) -> StoreRules | None:
    """Return which readings are stored; None: none. Raises `BadKeyError`."""
    if not isinstance(value, StoreSpec):
        return None if value in (None, "none") else StoreRules(change=value == "change")
    if not value.model_fields_set:
        raise BadKeyError("The table says nothing.", key="store", allowed=", ".join(StoreSpec.model_fields))
    if value.change is False and value.dead_band is not None:
        raise BadKeyError("Readings with a dead band are stored on change anyway.", key="store.change")
    return StoreRules(bool(value.change) or value.dead_band is not None, value.dead_band, value.at_most_every)


def event_rule(value: object, payload: str) -> EventRule | None:
    """Return how a reading is an event; None: it is a state. Raises `BadKeyError`."""
    if not isinstance(value, EventSpec):
        return EventRule(None, Event()) if value is True else None
    event = Event(within=None if value.within is None else float(value.within))
    if value.id is None and event.within is None:
        raise BadKeyError('The table says nothing: it needs "event.id" or "event.within".', key="event")
    if value.id is None:
        return EventRule(None, event)
    if payload not in DOCUMENTS:
        allowed = "event = true, event = { within = 2 }"
        raise BadKeyError(f"The payload {payload} has no paths.", key="event.id", allowed=allowed)
    return EventRule(under("event.id", parse_path, value.id), event)
