"""Announcements of Home Assistant MQTT discovery: their topics, and the entities that their JSON describes.

Source: https://www.home-assistant.io/integrations/mqtt, "MQTT Discovery": discovery topic, discovery payload, supported
abbreviations, base topic, device discovery with shared options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from edge.discovery.abbreviations import ABBREVIATIONS, DEVICE_ABBREVIATIONS
from edge.mapping.fault_reasons import because, placed, reason_of

_TOPIC: Final = re.compile(
    r"(?P<component>\w+)/(?:(?P<node>[A-Za-z0-9_-]+)/)?(?P<object>[A-Za-z0-9_-]+)/config", re.ASCII
)
_BASE: Final = "~"
_DEVICE: Final = "device"
"""Component of announcements that describe all entities of a device."""
_SHARED: Final = (
    *("availability", "availability_mode", "availability_template", "availability_topic", "payload_available"),
    *("payload_not_available", "command_topic", "state_topic", "qos", "encoding"),
)
"""Options of a device that its entities inherit."""
LONGEST_TOPIC: Final = 1000
"""Characters of a topic that can be announced."""
_MOST_TOPICS: Final = 8
"""Availability topics of an entity that are read."""
_LONGEST: Final = 200
"""Characters of a name or identifier."""
_UNSTORABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u2028\u2029]+")
_BIDI_CONTROLS: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]+")
"""Characters that change the direction of the text around them (Unicode Standard Annex 9, property Bidi_Control)."""


class BadAnnouncement(ValueError):
    """The announcement cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Device:
    """The device of an entity."""

    id: str = ""
    """Its first identifier, percent-encoded; empty: the announcement names none."""
    name: str = ""
    about: str = ""
    """Manufacturer and model."""
    area: str = ""


@dataclass(frozen=True, slots=True)
class Entity:
    """One entity of a device, with its options in full words."""

    component: str
    id: str
    """Identifies it among those of its component; percent-encoded, at most one slash."""
    name: str
    config: Mapping[str, Any]
    device: Device

    def text(self, key: str, default: str = "") -> str:
        """Return an option as text: a number as it is written, true and false in lower case, as in JSON."""
        value = self.config.get(key)
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, str | int | Decimal) else default

    def number(self, key: str) -> Decimal | None:
        """Return an option as number; None if it is not one."""
        value = self.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
            return None
        return Decimal(value) if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", str(value)) else None

    def topic(self, key: str) -> str:
        """Return an option that is a topic; empty without one."""
        value = self.config.get(key)
        return value if isinstance(value, str) else ""

    def words(self, key: str) -> list[str]:
        """Return an option that is a list of names, without those that cannot be stored."""
        value = self.config.get(key)
        items = value if isinstance(value, list) else []
        return [each for each in items if isinstance(each, str) and each and is_plain(each)]

    def boolean(self, key: str) -> bool:
        """Whether an option is true."""
        return self.config.get(key) is True


@dataclass(frozen=True, slots=True)
class Announcement:
    """What one topic announces."""

    topic: str
    entities: tuple[Entity, ...]
    faults: tuple[str, ...] = field(default=())
    """Entities that cannot be read, with the reason."""


def is_announcement(topic: str, prefix: str) -> bool:
    """Whether this is the topic of an announcement. `prefix`: with its slash."""
    likely = topic.startswith(prefix) and topic.endswith("/config") and len(topic) <= LONGEST_TOPIC
    return likely and _TOPIC.fullmatch(topic, len(prefix)) is not None


def read_announcement(topic: str, prefix: str, payload: str) -> Announcement:
    """Read an announcement that is not empty. Raises `BadAnnouncement`."""
    found = _TOPIC.fullmatch(topic, len(prefix))
    if found is None:
        raise BadAnnouncement("the topic is not one of announcements")
    config = _expanded(_parsed(payload))
    device = _device(config.get("device"))
    where = "/".join(part for part in (found["node"], found["object"]) if part)
    if found["component"] != _DEVICE:
        return Announcement(topic, (_entity(found["component"], where, config, device),))
    entities, faults = [], []
    for key, each in _components(config):
        try:
            entities.append(_of_device(f"{where}_{key}", each, config, device))
        except BadAnnouncement as error:
            faults.append(placed(f"components.{clean(key)}", reason_of(error)))
    return Announcement(topic, tuple(each for each in entities if each is not None), tuple(faults))


def clean(text: object, longest: int = _LONGEST) -> str:
    """Return a name for people: without control characters, also those of the direction of text, and shortened."""
    return _UNSTORABLE.sub(" ", _BIDI_CONTROLS.sub("", text)).strip()[:longest] if isinstance(text, str) else ""


def is_plain(text: str) -> bool:
    """Whether an identifier has no control characters, and no blanks at its ends."""
    return _UNSTORABLE.search(text) is None and text.strip() == text


def encoded(text: str) -> str:
    """Return a text as a part of an IRI. Raises `BadAnnouncement`."""
    # As a part of an IRI, "." and ".." would stand for another path.
    if not 0 < len(text) <= _LONGEST or text in (".", ".."):
        raise BadAnnouncement(because("identifier_length", limit=_LONGEST))
    try:
        return quote(text, safe=":")
    except UnicodeEncodeError:
        raise BadAnnouncement("an identifier is not valid Unicode") from None


def _parsed(payload: str) -> dict[str, Any]:
    try:
        document = json.loads(payload, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise BadAnnouncement(because("payload_not_json", reason=clean(str(error)))) from None
    if not isinstance(document, dict):
        raise BadAnnouncement(because("payload_not_object"))
    return document


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _expanded(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in full words, with the base topic filled in."""
    config = _spelled_out(given)
    base = config.get(_BASE)
    several = config.pop("availability", None)
    items: list[Any] = several if isinstance(several, list) else [several]
    topics = [_spelled_out(each) for each in items[:_MOST_TOPICS] if isinstance(each, dict)]
    if topics:
        config["availability"] = topics
    # A long one would be copied to each topic.
    if isinstance(base, str) and len(base) <= LONGEST_TOPIC:
        for table in (config, *topics):
            for key, value in table.items():
                if key.endswith("topic") and isinstance(value, str):
                    table[key] = _with_base(value, base)
    return config


def _spelled_out(options: Mapping[str, Any]) -> dict[str, Any]:
    return {ABBREVIATIONS.get(key, key): value for key, value in options.items()}


def _with_base(topic: str, base: str) -> str:
    if topic.startswith(_BASE):
        return base + topic[1:]
    return topic[:-1] + base if topic.endswith(_BASE) else topic


def _device(given: object) -> Device:
    if not isinstance(given, dict):
        return Device()
    about = {DEVICE_ABBREVIATIONS.get(key, key): value for key, value in given.items()}
    identifier = _first_text(about.get("identifiers"))
    if not identifier and isinstance(about.get("connections"), list):
        identifier = next(("-".join(each) for each in about["connections"] if _is_connection(each)), "")
    maker = " ".join(filter(None, (clean(about.get("manufacturer")), clean(about.get("model")))))
    name, area = clean(about.get("name")), clean(about.get("suggested_area"))
    return Device(encoded(identifier) if identifier else "", name, maker, area)


def _first_text(value: object) -> str:
    first = value[0] if isinstance(value, list) and value else value
    return str(first) if isinstance(first, str | int) and not isinstance(first, bool) else ""


def _is_connection(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)


def _components(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    given = config.get("components")
    if not isinstance(given, dict):
        raise BadAnnouncement(because("components_missing"))
    for key, each in given.items():
        if isinstance(each, dict):
            yield key, each


def _of_device(where: str, given: Mapping[str, Any], shared: Mapping[str, Any], device: Device) -> Entity | None:
    """Return an entity of a device; None for one that is removed: of it, only the platform is left."""
    own = _expanded({**({_BASE: shared[_BASE]} if _BASE in shared else {}), **given})
    component = own.get("platform")
    if not isinstance(component, str):
        raise BadAnnouncement(because("platform_missing"))
    if len(given.keys() - {_BASE}) == 1:
        return None
    config = {**{key: shared[key] for key in _SHARED if key in shared}, **own}
    return _entity(component, where, config, device)


def _entity(component: str, where: str, config: Mapping[str, Any], device: Device) -> Entity:
    unique = config.get("unique_id")
    named = isinstance(unique, str | int) and not isinstance(unique, bool) and unique != ""
    identifier = encoded(str(unique)) if named else "/".join(map(encoded, where.split("/", 1)))
    return Entity(clean(component), identifier, clean(config.get("name")), config, device)
