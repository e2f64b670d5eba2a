"""Compiles entities of announcements with the compiler of mapping files: an announcement becomes a pack of mappings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError

from edge.discovery.announcement import (
    LONGEST_TOPIC,
    Announcement,
    BadAnnouncement,
    Entity,
    clean,
    encoded,
    is_announcement,
    is_plain,
)
from edge.discovery.device_classes import NUMERIC, PROPERTIES, unit_of
from edge.discovery.entities import KINDS, NO_NUMBER, Keys, Observed, observed_by
from edge.discovery.value_template import DECIMALS, UnsupportedTemplate, compile_template
from edge.mapping.compiling import MappingCompiler
from edge.mapping.errors import FaultsOfTable
from edge.mapping.fault_reasons import because, placed, reason_of
from edge.mapping.file_units import FileUnits
from edge.mapping.model import MappingSpec, ReadingKeys
from edge.mapping.rules import CompiledMapping
from edge.mapping.settings import MappingLimits
from edge.mapping.terms import NAMESPACES

NAMESPACE: Final = "urn:sepa-edge:discovered:"
"""Beginning of the IRIs of announced observations and devices."""
_PLACES: Final = "urn:sepa-edge:place:"
_VALUE: Final = re.compile(r"\{\{-?\s*value\s*(?:\|\s*(?:float|int)\s*)?-?\}\}")
_WORDS: Final[dict[tuple[str, str | None], str]] = {
    ("color_temp", "K"): "color temperature",
    ("color_temp", ""): "color temperature (mired)",  # which is not among the units
}
"""Words for a part of an entity with a unit, where its name does not suffice."""
_MOST_AVAILABILITY: Final = 2
"""Availability topics that are read for each entity of an announcement."""
_PORTS: Final = ("serial/", "modbus/", "spBv1.0/")
"""Beginnings of the topics of commands for serial ports, Modbus devices and Sparkplug edge nodes."""


@dataclass(frozen=True, slots=True)
class Availability:
    """A topic that tells whether devices are available."""

    topic: str
    available: str
    not_available: str
    template: str


@dataclass(frozen=True, slots=True)
class CompiledAnnouncement:
    """An announcement as mappings."""

    mappings: tuple[CompiledMapping, ...]
    availability: tuple[tuple[Availability, str], ...]
    """Topics, and the identifier of a device of which each tells that it is available."""
    faults: tuple[str, ...]
    """Parts that cannot be used."""
    notes: tuple[str, ...]
    """Doubtful parts that are used, such as values without their unknown unit."""
    entities: int
    devices: frozenset[str]


class AnnouncementCompiler:
    """Compiles announcements."""

    def __init__(self, limits: MappingLimits, *, commands: bool, own_topics: tuple[str, ...], prefix: str) -> None:
        """`commands`: whether values can be set. `own_topics`: beginnings of topics of the gateway itself, which no
        announcement can name. `prefix`: beginning of the topics of announcements.
        """
        units = FileUnits({}, NAMESPACES, strict=True, faults=FaultsOfTable())
        self._compiler = MappingCompiler("discovery", NAMESPACES, units, ReadingKeys(), own=False, limits=limits)
        self._commands = commands
        self._own_topics = own_topics
        self._prefix = prefix

    def compile(self, announcement: Announcement) -> CompiledAnnouncement:
        """Compile an announcement. Parts that cannot be used are faults, and the others are used."""
        faults = [*announcement.faults]
        notes: dict[str, None] = {}
        mappings: list[CompiledMapping] = []
        availability: dict[tuple[Availability, str], None] = {}
        for entity in announcement.entities:
            for observed in observed_by(entity):
                mappings += self._mapping(entity, observed, faults, notes)
            if entity.component in KINDS:
                availability.update(dict.fromkeys(_availability(entity)))
        most = _MOST_AVAILABILITY * len(announcement.entities) + 1  # one more for the bridge of the device
        if len(availability) > most:
            faults.append(placed("availability", because("availability_topics", count=len(availability), limit=most)))
        devices = frozenset(entity.device.id or entity.id for entity in announcement.entities)
        return CompiledAnnouncement(
            tuple(mappings),
            tuple(availability)[:most],
            tuple(faults),
            tuple(notes),
            len(announcement.entities),
            devices,
        )

    def availability(self, topic: Availability, devices: frozenset[str]) -> tuple[CompiledMapping | None, list[str]]:
        """Compile the mapping of a topic, and return it with its faults. `devices`: those of which it tells."""
        faults: list[str] = []
        try:
            levels = [encoded(level) if level not in ("", ".", "..") else "-" for level in topic.topic.split("/")]
            keys: Keys = {
                **self._topic(topic.topic),
                "observation": f"{NAMESPACE}available/{'/'.join(levels)}",
                "property": f"{PROPERTIES}available",
                "label": literal(f"available: {clean(topic.topic)}"),
                "values": {topic.not_available: False, topic.available: True},
            }
            keys |= _place(topic.template, keys)
            if "+" in topic.topic:
                raise BadAnnouncement(because("topic_of_many", name=clean(topic.topic)))
        except (BadAnnouncement, UnsupportedTemplate) as error:
            return None, [placed("availability", reason_of(error))]
        if len(devices) == 1:
            keys["sensor"] = keys["location"] = f"{NAMESPACE}device/{next(iter(devices))}"
        if "path" in keys:
            keys["required"] = False
        found = self._compiled(keys, f"available/{topic.topic}", faults)
        return found, faults

    def _mapping(
        self, entity: Entity, observed: Observed, faults: list[str], notes: dict[str, None]
    ) -> Iterator[CompiledMapping]:
        what = "/".join(filter(None, (entity.component, entity.name or entity.id, observed.part)))
        try:
            keys = {**observed.keys, **self._topic(observed.topic), **_described(entity, observed)}
            if observed.path:
                keys["path"] = "".join(f'["{name}"]' for name in observed.path)
            else:
                keys |= _place(observed.template, keys)
            keys |= _measured(entity, observed, keys, notes)
        except (BadAnnouncement, UnsupportedTemplate) as error:
            faults.append(placed(what, reason_of(error)))
            return
        if "path" in keys:
            keys["required"] = False
        if self._commands and observed.command is not None:
            try:
                keys["set"] = self._setter(observed.command, keys)
            except BadAnnouncement as error:
                faults.append(placed(f"{what}: set", reason_of(error)))
        own: list[str] = []
        found = self._compiled(keys, what, own)
        if found is None and "set" in keys:  # a fault of the command does not concern the reading
            others: list[str] = []
            found = self._compiled({key: value for key, value in keys.items() if key != "set"}, what, others)
            own = own if found is not None else others
        faults += own
        if found is not None:
            yield found

    def _topic(self, topic: str) -> Keys:
        """Return the key of a topic. Raises `BadAnnouncement`."""
        self._check(topic)
        levels = topic.split("/")
        if "#" in topic or levels[-1] == "+" or any("+" in level and level != "+" for level in levels):
            raise BadAnnouncement(because("topic_of_many", name=clean(topic)))
        return {"topic": literal(topic)}

    def _check(self, topic: str) -> None:
        if len(topic) > LONGEST_TOPIC or topic.startswith(("$", *self._own_topics)) or not is_plain(topic):
            raise BadAnnouncement(because("topic_not_announced", name=clean(topic)))

    def _setter(self, command: Keys, keys: Keys) -> Keys:
        """Return the key `set`. Raises `BadAnnouncement`."""
        setter = {key: value for key, value in command.items() if key != "template"}
        topic = setter["topic"]
        self._check(topic)
        wild = "+" in topic or "#" in topic
        if wild or topic.startswith(_PORTS) or is_announcement(topic, self._prefix):
            raise BadAnnouncement(because("topic_not_of_commands", name=clean(topic)))
        setter["topic"] = literal(topic)
        if {"scale", "offset"} & keys.keys():
            raise BadAnnouncement(because("converted_by_template"))
        template = command.get("template")
        if template is not None:
            setter["payload"] = _command_payload(template)
        return setter

    def _compiled(self, keys: Mapping[str, Any], name: str, faults: list[str]) -> CompiledMapping | None:
        """Compile a mapping as one of a file."""
        found = FaultsOfTable()
        try:
            spec = MappingSpec.model_validate({**keys, "name": clean(name)})
        except ValidationError as error:
            details = error.errors(include_input=False, include_url=False)
            faults.extend(placed(name, f"{'.'.join(map(str, each['loc']))}: {each['msg']}") for each in details[:3])
            return None
        mapping = self._compiler.compile(spec, found)
        faults.extend(placed(name, clean(str(error.fault))) for error in found.found if not error.warning)
        return None if mapping is None else replace(mapping, announced=True)


def literal(text: str) -> str:
    """Return a text without captures for the mapping language."""
    return text.replace("{", "{{").replace("}", "}}")


def _place(template: str, reading: Keys) -> Keys:
    """Return the keys for a template. `reading`: other keys of the reading. Raises `UnsupportedTemplate`."""
    if not template.strip():
        return {}
    try:
        compiled = compile_template(template)
        keys = compiled.keys()
        if compiled.numeric and reading.get("datatype") == "auto":
            return {**keys, "datatype": "number", "absent": NO_NUMBER}
        no_number = reading.get("values") is not None or reading.get("datatype") == "string"
        calculated = {"scale", "offset"} if reading.get("values") is not None else {"scale", "offset", "round"}
        if no_number and calculated & keys.keys():
            raise UnsupportedTemplate("it calculates a number, but the value is not one")
    except UnsupportedTemplate as error:
        raise UnsupportedTemplate(because("template", name=clean(template), reason=error)) from None
    return keys


def _described(entity: Entity, observed: Observed) -> Keys:
    """Return the terms of a value."""
    device = entity.device
    name = _without(entity.name, device.name)
    words = _WORDS.get((observed.part, observed.unit), observed.part.replace("_", " "))
    own = f"{words} of {name}" if words and name else name or words
    label = f"{own} of {device.name}" if own and device.name else own or device.name or entity.id
    kind = entity.text("device_class")
    state = kind if observed.keys.get("values") is not None and not observed.part else ""
    what = _state_property(state) if state else _property(observed.part or kind or name or entity.component)
    keys: Keys = {
        "observation": f"{NAMESPACE}{encoded(entity.component)}/{entity.id}"
        + (f"/{observed.part}" if observed.part else ""),
        "property": PROPERTIES + what,
        "label": literal(label),
        "comment": literal(device.about) or None,
    }
    if device.id:
        keys["sensor"] = f"{NAMESPACE}device/{device.id}"
        keys["sensor_label"] = literal(device.name) or None
    place = device.area or device.name
    if place:
        keys["location"] = _PLACES + quote(place, safe=":")
    return {key: value for key, value in keys.items() if value is not None}


def _without(name: str, device: str) -> str:
    """Return the name of an entity without that of its device, with which many firmwares begin it."""
    rest = name.removeprefix(device)
    return name if rest[:1].isalnum() and device else rest.strip(" -_:")


def _property(words: str) -> str:
    known = NUMERIC.get(words)
    return property_name(words) if known is None else known.property


def _state_property(device_class: str) -> str:
    """Return the property of a state, such as that a battery is low: it is not the quantity of the same name."""
    word = property_name(device_class)
    return f"{word}_state" if any(each.property == word for each in NUMERIC.values()) else word


def property_name(words: str) -> str:
    """Return the last part of the IRI of a property for the words of a device."""
    return quote(re.sub(r"\W+", "_", words.lower()).strip("_") or "state", safe=":")


def _measured(entity: Entity, observed: Observed, keys: Keys, notes: dict[str, None]) -> Keys:
    """Return unit and property of a number, and its scale if QUDT lacks the unit."""
    kind = NUMERIC.get(observed.device_class) if keys.get("values") is None else None
    unit = observed.unit
    found: Keys = {}
    if kind is not None and unit is None and len(kind.units) == 1 and keys.get("datatype") is None:
        unit = kind.units[0]  # Home Assistant allows no other
    measures = observed.part in ("", "current_temperature", "current_humidity")
    if kind is not None and measures:
        # A unit of another class, such as kWh of a power, shows that the class is wrong.
        if unit is None or unit in kind.units or not kind.units or unit_of(unit, "") is None:
            found["property"] = PROPERTIES + kind.property
        else:
            found["property"] = PROPERTIES + _property(_without(entity.name, entity.device.name) or entity.component)
            notes[f'the unit "{clean(unit)}" is not one of the class "{observed.device_class}"'] = None
    if unit is None:
        return found
    scaled = unit_of(unit, observed.device_class)
    if scaled is None:
        notes[f'the unit "{clean(unit)}" is not known, so its values have none'] = None
        return found
    found["unit"] = scaled.iri
    factor = Decimal(scaled.scale)
    if factor != 1:
        found["scale"] = keys.get("scale", Decimal(1)) * factor
        if "offset" in keys:
            found["offset"] = keys["offset"] * factor
        if "round" in keys:  # the decimals are those of the unit that the device names
            found["round"] = DECIMALS
    return found


def _command_payload(template: str) -> str:
    """Return the payload for a command template: a text with `{{ value }}`. Raises `BadAnnouncement`."""
    parts = _VALUE.split(template)
    if len(parts) == 1 or len(template) > LONGEST_TOPIC or any(re.search(r"\{[{%#]", part) for part in parts):
        raise BadAnnouncement(because("command_template", name=clean(template)))
    return "{value}".join(map(literal, parts))


def _availability(entity: Entity) -> Iterator[tuple[Availability, str]]:
    """Yield the topics that tell whether an entity is available."""
    device = entity.device.id
    several = entity.config.get("availability")
    for each in several if isinstance(several, list) else ():
        one = replace(entity, config=each)
        if one.topic("topic"):
            yield _of_topic(one, "topic", "value_template"), device
    if entity.topic("availability_topic"):
        yield _of_topic(entity, "availability_topic", "availability_template"), device


def _of_topic(entity: Entity, topic: str, template: str) -> Availability:
    return Availability(
        entity.topic(topic),
        entity.text("payload_available", "online"),
        entity.text("payload_not_available", "offline"),
        entity.text(template),
    )
