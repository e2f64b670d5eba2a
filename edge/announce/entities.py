"""Entities of Home Assistant for observations: their announcements, states and commands.

Sources: https://www.home-assistant.io/integrations/ mqtt, sensor.mqtt, binary_sensor.mqtt, switch.mqtt, light.mqtt,
number.mqtt, select.mqtt, text.mqtt (options and defaults).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeGuard

import pyoxigraph as ox

from edge import __version__
from edge.announce.classes import binary_class, measure
from edge.announce.topics import Place, identifier
from edge.discovery.announcement import clean
from edge.observed_values import Settable, is_numeric, local_name, to_json, type_of

Config = dict[str, Any]

UNKNOWN: Final = b"None"
"""State of which Home Assistant makes "unknown"."""
_LONGEST_STATE: Final = 255
"""Characters of a state of Home Assistant."""
_DATE_TIME: Final = "http://www.w3.org/2001/XMLSchema#dateTime"
_KINDS: Final = {"switch": "switch", "number": "number", "choice": "select", "text": "text"}
_SET_KINDS: Final = {"switch": "binary", "number": "number", "select": "choice", "text": "free"}
_UNITLESS: Final = "Unitless"
"""End of the unit that truth values have, too."""
_SMALLEST_STEP: Final = 0.001
"""Smallest step of a number that Home Assistant accepts."""
_GATEWAY: Final = "gateway"


@dataclass(frozen=True, slots=True)
class Observed:
    """An observation, or the result of a continuous query."""

    iri: str
    name: str
    value: ox.Literal | None
    unit: str | None = None
    property_name: str = ""
    """Local name of its property."""
    area: str = ""
    """Name of its place; empty: none but the device."""
    settable: Settable | None = None
    hint: str = ""
    """Component as which it was announced before, for one without a value."""

    @property
    def object_id(self) -> str:
        """Its identifier in topics."""
        return identifier(self.iri, local_name(self.iri))

    def hinted(self, component: str) -> Observed:
        """Return it as one that was announced before with this component."""
        return replace(self, hint=component)


@dataclass(frozen=True, slots=True)
class Device:
    """A device; without an IRI, the gateway itself."""

    iri: str = ""
    name: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class StateOf:
    """A topic with the state of an observation."""

    topic: str
    kind: str
    """ "binary", "number", "level", "time", "text", "choice" or "free". Levels and free texts have no "unknown"."""

    def fits(self, value: ox.Literal | None) -> bool:
        """Whether a new value, or none, leaves the announcement as it is."""
        if value is None or self.kind in ("level", "choice", "free"):
            return True
        return self.kind == _kind(value)

    def payload(self, value: ox.Literal | None) -> bytes:
        """Return the message for a value; the empty one removes the state."""
        text = None if value is None else _STATES[self.kind](value)
        if not text:
            return b"" if self.kind in ("free", "level") else UNKNOWN
        return text[:_LONGEST_STATE].encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class CommandOf:
    """A topic on which Home Assistant sets an observation."""

    iri: str
    settable: Settable

    def json(self, payload: bytes) -> str:
        """Return the desired value as JSON. Raises `ValueError` for a payload that is not text."""
        text = payload.decode()
        if self.settable.get("kind") == "switch":
            return {"ON": "true", "OFF": "false"}.get(text, json.dumps(text))
        return text if self.settable.get("kind") == "number" else json.dumps(text)


@dataclass(frozen=True, slots=True)
class Entity:
    """An announced entity."""

    component: str
    object_id: str
    config: Config
    states: Mapping[str, StateOf] = field(default_factory=dict)
    """By the IRI of the observation."""
    commands: Mapping[str, CommandOf] = field(default_factory=dict)
    """By topic."""

    def payload(self) -> bytes:
        """Return the announcement."""
        return json.dumps(self.config, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


class EntityMaker:
    """Makes the entities of one gateway."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def gateway(self) -> Entity:
        """Return the entity of the gateway: whether it runs. It belongs to the device to which the others refer."""
        config = {
            "name": "Connection",
            "unique_id": f"{self._place.node}_{_GATEWAY}",
            "state_topic": self._place.status,
            "payload_on": "online",
            "payload_off": "offline",
            "device_class": "connectivity",
            "entity_category": "diagnostic",
            "qos": 1,
            **self._about(Device()),
        }
        return Entity("binary_sensor", _GATEWAY, config)

    def entity(
        self, device: Device, observed: Observed, dimmer: Observed | None, *, available: Observed | None, area: str
    ) -> Entity | None:
        """Return the entity of an observation; None: the kind of its value is not known yet.

        `dimmer`: the brightness, if both are a light. `available`: the observation that says whether the device is
        available. `area`: the one of the device.
        """
        entity = self._single(observed) if dimmer is None else self._light(observed, dimmer)
        if entity is not None:
            entity.config.update(self._availability(available, entity))
            entity.config.update(self._about(device, area))
            entity.config["name"] = _without(entity.config["name"], clean(device.name))
        return entity

    def _single(self, observed: Observed) -> Entity | None:
        component, kind = _component(observed)
        if not component:
            return None
        state = StateOf(self._place.state(observed.object_id), kind)
        config = {**self._common(observed, state), **_details(component, kind, observed)}
        commands: dict[str, CommandOf] = {}
        if observed.settable is not None:
            config["command_topic"] = topic = self._place.command(observed.object_id)
            commands[topic] = CommandOf(observed.iri, observed.settable)
        return Entity(component, observed.object_id, config, {observed.iri: state}, commands)

    def _light(self, lamp: Observed, dimmer: Observed) -> Entity:
        state = StateOf(self._place.state(lamp.object_id), "binary")
        level = StateOf(self._place.state(dimmer.object_id), "level")
        switch, dim = self._place.command(lamp.object_id), self._place.command(dimmer.object_id)
        assert lamp.settable is not None, "of a light"  # noqa: S101
        assert dimmer.settable is not None, "of a light"  # noqa: S101
        config = {
            **self._common(lamp, state),
            "command_topic": switch,
            "brightness_state_topic": level.topic,
            "brightness_command_topic": dim,
            "brightness_scale": int(dimmer.settable["max"]),
        }
        commands = {switch: CommandOf(lamp.iri, lamp.settable), dim: CommandOf(dimmer.iri, dimmer.settable)}
        return Entity("light", lamp.object_id, config, {lamp.iri: state, dimmer.iri: level}, commands)

    def _common(self, observed: Observed, state: StateOf) -> Config:
        return {
            "name": clean(observed.name) or clean(local_name(observed.iri)) or observed.iri[:100],
            "unique_id": f"{self._place.node}_{observed.object_id}",
            "state_topic": state.topic,
            "qos": 1,
        }

    def _availability(self, available: Observed | None, entity: Entity) -> Config:
        topics: list[Config] = [{"topic": self._place.status}]
        if available is not None and available.iri not in entity.states:
            topic = self._place.state(available.object_id)
            topics.append({"topic": topic, "payload_available": "ON", "payload_not_available": "OFF"})
        return {"availability": topics, "availability_mode": "all"}

    def _about(self, device: Device, area: str = "") -> Config:
        node = self._place.node
        if not device.iri:
            about: Config = {"identifiers": [node], "name": "sepa-edge", "model": "Gateway", "sw_version": __version__}
            return {"device": {**about, "manufacturer": "sepa-edge"}, "origin": _ORIGIN}
        about = {
            "identifiers": [f"{node}_{identifier(device.iri)}"],
            "name": clean(device.name) or device.iri[:100],
            "model": clean(device.model),
            "suggested_area": clean(area),
            "via_device": node,
        }
        return {"device": {key: each for key, each in about.items() if each}, "origin": _ORIGIN}


_ORIGIN: Final = {"name": "sepa-edge", "sw_version": __version__}


def _component(observed: Observed) -> tuple[str, str]:
    """Return component and kind of the state; empty: the kind of the value is not known yet."""
    if observed.settable is not None:
        component = _KINDS.get(str(observed.settable.get("kind")), "")
        return component, _SET_KINDS.get(component, "text")
    if observed.value is not None:
        kind = _kind(observed.value)
        return ("binary_sensor" if kind == "binary" else "sensor"), kind
    measured = observed.unit is not None and not observed.unit.endswith(_UNITLESS)
    if observed.hint == "binary_sensor":
        return observed.hint, "binary"
    if observed.hint == "sensor" or measured:
        return "sensor", "number" if measured else "text"
    return "", ""


def _kind(value: ox.Literal) -> str:
    if is_numeric(value):
        return "number"  # also NaN: a sensor that reports it for a while must not change its kind
    return "binary" if type_of(value) == "boolean" else "time" if _time(value) else "text"


def _details(component: str, kind: str, observed: Observed) -> Config:
    """Return the options of a component."""
    how: Settable = observed.settable or {}
    if component == "binary_sensor":
        return _given(device_class=binary_class(observed.property_name))
    if component == "sensor":
        if kind == "time":
            return {"device_class": "timestamp"}
        return measure(observed.property_name, observed.unit).options() if kind == "number" else {}
    if component == "number":
        found = measure(observed.property_name, observed.unit)
        limits = {key: how[key] for key in ("min", "max") if _is_finite(how.get(key))}
        step = how.get("step")
        return {
            **_given(device_class=found.device_class, unit_of_measurement=found.unit),
            **({} if limits.get("min", -math.inf) >= limits.get("max", math.inf) else limits),
            **({"step": step} if _is_finite(step) and step >= _SMALLEST_STEP else {}),
        }
    if component == "select":
        return {"options": list(how.get("choices", ()))}
    return {"max": _LONGEST_STATE} if component == "text" else {}


def _is_finite(number: object) -> TypeGuard[float]:
    return isinstance(number, int | float) and math.isfinite(number)


def _given(**options: str) -> Config:
    return {name: value for name, value in options.items() if value}


def is_availability(observed: Observed | None) -> bool:
    """Whether an observation says that its device is available."""
    return (
        observed is not None
        and observed.property_name == "available"
        and observed.value is not None
        and type_of(observed.value) == "boolean"
        and observed.settable is None
    )


def _without(name: str, device: str) -> str:
    """Return the name of an entity without that of its device, which Home Assistant puts before it."""
    if not device:
        return name
    short = name.removesuffix(f" of {device}")
    if short == name and name.startswith(device) and not name[len(device) : len(device) + 1].isalnum():
        short = name[len(device) :].strip(" -_:/")
    return short or name


def _time(value: ox.Literal) -> bool:
    if value.datatype.value != _DATE_TIME:
        return False
    try:
        return datetime.fromisoformat(value.value).tzinfo is not None
    except ValueError:
        return False


def _binary(value: ox.Literal) -> str | None:
    return {"true": "ON", "false": "OFF"}.get(to_json(value)) if type_of(value) == "boolean" else None


def _number(value: ox.Literal) -> str | None:
    if type_of(value) != "number":
        return None
    text = to_json(value)
    return text if len(text) <= _LONGEST_STATE else f"{Decimal(value.value):.15e}"


def _as_text(value: ox.Literal) -> str:
    return re.sub("[\x00-\x1f\x7f]+", " ", to_json(value) if type_of(value) != "string" else value.value)


_STATES: Final = {
    "binary": _binary,
    "number": _number,
    "level": _number,
    "time": lambda value: value.value if _time(value) else None,
    "text": _as_text,
    "choice": _as_text,
    "free": _as_text,
}
