"""Entities of announcements as observations: the topics of their values, and the meaning of these values.

Sources: https://www.home-assistant.io/integrations/ sensor.mqtt, binary_sensor.mqtt, switch.mqtt, light.mqtt,
number.mqtt, select.mqtt, text.mqtt, cover.mqtt, lock.mqtt, fan.mqtt, climate.mqtt, event.mqtt (options and defaults).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final

from edge.discovery.announcement import Entity
from edge.discovery.device_classes import NUMERIC, TEXTUAL

Keys = dict[str, Any]

_VALUE: Final = "{value}"
NO_NUMBER: Final = ["", "None", "none", "null", "unknown", "unavailable", "nan", "NaN", "NAN"]
"""Texts that devices send instead of a number that they do not have."""
_NO_TEXT: Final = ["", "None"]


@dataclass(frozen=True, slots=True)
class Observed:
    """A value of an entity."""

    part: str
    """Name of the value among those of its entity; empty: it is the entity's state."""
    topic: str
    template: str
    """Empty: the payload is the value."""
    keys: Keys = field(default_factory=dict)
    """Keys of the reading."""
    unit: str | None = None
    """Unit as Home Assistant writes it; None: the entity names none."""
    device_class: str = ""
    command: Keys | None = None
    """The setter, with the option `command_template` under "template"; None: the value cannot be set."""
    path: tuple[str, ...] = ()
    """Where the value is in a JSON payload, for entities whose payloads have a fixed form."""


def observed_by(entity: Entity) -> Iterator[Observed]:
    """Yield the values of an entity. Entities without values, such as buttons, have none."""
    reads = _KINDS.get(entity.component)
    if reads is not None:
        yield from (each for each in reads(entity) if each.topic)


def _state(entity: Entity, part: str = "", prefix: str = "", template: str = "value_template") -> Observed:
    return Observed(part, entity.topic(f"{prefix}state_topic"), entity.text(template))


def _with(observed: Observed, **changes: Any) -> Observed:  # noqa: ANN401 - fields of several types
    values = {name: getattr(observed, name) for name in Observed.__slots__}
    return Observed(**{**values, **changes})


def _command(entity: Entity, name: str = "command", /, **keys: object) -> Keys | None:
    """Return the setter whose topic and template have this name; None if the entity cannot be set."""
    topic = entity.topic(f"{name}_topic")
    if not topic:
        return None
    qos = entity.config.get("qos")
    found = {
        "topic": topic,
        "template": entity.text(f"{name}_template"),
        "qos": qos if qos in (0, 1, 2) and not isinstance(qos, bool) else None,
        "retain": True if entity.boolean("retain") else None,
        **keys,
    }
    return {key: value for key, value in found.items() if value is not None and value != ""}


def _truth(on: str, off: str) -> dict[str, bool]:
    """Return the meaning of two texts. A template writes true and false as True and False."""
    spoken = {
        "true": ("true", "True"),
        "True": ("True", "true"),
        "false": ("false", "False"),
        "False": ("False", "false"),
    }
    found = dict.fromkeys(spoken.get(on, (on,)), True)
    return {**dict.fromkeys(spoken.get(off, (off,)), False), **found}


def _on_off(entity: Entity, on: str = "payload_on", off: str = "payload_off") -> dict[str, str]:
    return {"true": entity.text(on, "ON"), "false": entity.text(off, "OFF")}


def _unit(entity: Entity) -> str | None:
    """Return the unit of an entity. Some firmwares send a blank instead of none."""
    unit = entity.config.get("unit_of_measurement")
    # Home Assistant writes the micro sign; devices also write the Greek letter, which looks the same.
    return unit.strip().replace("\u03bc", "\u00b5") or None if isinstance(unit, str) else None


def _sensor(entity: Entity) -> Iterator[Observed]:
    kind = entity.text("device_class")
    unit = _unit(entity)
    numeric = kind in NUMERIC or bool(unit) or entity.text("state_class") != ""
    keys: Keys
    if numeric and kind not in TEXTUAL:
        keys = {"absent": NO_NUMBER}
    else:
        keys = {"absent": _NO_TEXT, "datatype": "string" if kind in TEXTUAL else "auto"}
        unit = None
    yield _with(_state(entity), keys=keys, unit=unit, device_class=kind)


def _binary_sensor(entity: Entity) -> Iterator[Observed]:
    words = _on_off(entity)
    keys: Keys = {"values": _truth(words["true"], words["false"]), "absent": _NO_TEXT}
    # Such a sensor never says that it is off: each message is one detection.
    if entity.number("off_delay") is not None:
        keys["event"] = True
    yield _with(_state(entity), keys=keys, device_class=entity.text("device_class"))


def _switch(entity: Entity) -> Iterator[Observed]:
    words = _on_off(entity)
    states = _truth(entity.text("state_on", words["true"]), entity.text("state_off", words["false"]))
    yield _with(_state(entity), keys={"values": states, "absent": _NO_TEXT}, command=_command(entity, values=words))


def _light(entity: Entity) -> Iterator[Observed]:
    schema = entity.text("schema", "basic")
    if schema == "json":
        yield from _json_light(entity)
    if schema != "basic":
        return
    words = _on_off(entity)
    template = "state_value_template" if entity.text("state_value_template") else "value_template"
    state = _state(entity, template=template)
    keys = {"values": _truth(words["true"], words["false"]), "absent": _NO_TEXT}
    yield _with(state, keys=keys, command=_command(entity, values=words))
    limit = entity.number("brightness_scale") or Decimal(255)
    yield _with(
        _state(entity, "brightness", "brightness_", "brightness_value_template"),
        keys={"absent": NO_NUMBER},
        unit="",
        command=_command(entity, "brightness_command", min=Decimal(0), max=limit, step=Decimal(1)),
    )
    warmth, bounds = _warmth(entity)
    yield _with(
        _state(entity, "color_temp", "color_temp_", "color_temp_value_template"),
        keys={"absent": NO_NUMBER},
        unit=warmth,
        command=_command(entity, "color_temp_command", **bounds),
    )


def _json_light(entity: Entity) -> Iterator[Observed]:
    state = _state(entity, template="none")
    sends = _command(entity)
    switch = None if sends is None else {**sends, "payload": {"state": _VALUE}}
    keys = {"values": {"ON": True, "OFF": False}}
    yield _with(state, keys=keys, path=("state",), command=switch)
    modes = set(entity.words("supported_color_modes")) - {"onoff"}
    if entity.boolean("brightness") or modes:
        limit = entity.number("brightness_scale") or Decimal(255)
        bounds = {"min": Decimal(0), "max": limit, "step": Decimal(1)}
        payload = {"state": "ON", "brightness": _VALUE}
        dim = None if sends is None else {**sends, **bounds, "payload": payload}
        yield _with(state, part="brightness", path=("brightness",), unit="", command=dim)
    if "color_temp" in modes:
        warmth, limits = _warmth(entity)
        payload = {"state": "ON", "color_temp": _VALUE}
        warm = None if sends is None else {**sends, **limits, "payload": payload}
        yield _with(state, part="color_temp", path=("color_temp",), unit=warmth, command=warm)


def _warmth(entity: Entity) -> tuple[str, dict[str, Decimal]]:
    """Return the unit of the colour temperature, which is empty for mired, and the bounds of its setter."""
    is_kelvin = entity.boolean("color_temp_kelvin")
    unit, other, low, high = ("kelvin", "mireds", 2000, 6535) if is_kelvin else ("mireds", "kelvin", 153, 500)
    # The mired is a millionth of the reciprocal of the kelvin. So the bounds in the other unit are in the other order.
    # Announcements convert the unit, too, and then have fractions.
    least = _ceiling(entity.number(f"min_{unit}") or _reciprocal(entity.number(f"max_{other}")))
    most = _floor(entity.number(f"max_{unit}") or _reciprocal(entity.number(f"min_{other}")))
    # Defaults of Home Assistant, unless they contradict the other bound: such a lamp has other ones.
    if least is None:
        least = Decimal(low) if most is None or most > low else Decimal(1)
    if most is None and least < high:
        most = Decimal(high)
    bounds = {"min": least} if most is None else {"min": least, "max": most}
    return "K" if is_kelvin else "", {**bounds, "step": Decimal(1)}


def _reciprocal(temperature: Decimal | None) -> Decimal | None:
    """Return kelvin as mired, and mired as kelvin; None for no positive number."""
    return 1_000_000 / temperature if temperature is not None and temperature > 0 else None


def _ceiling(number: Decimal | None) -> Decimal | None:
    return None if number is None else number.to_integral_value(ROUND_CEILING)


def _floor(number: Decimal | None) -> Decimal | None:
    return None if number is None else number.to_integral_value(ROUND_FLOOR)


def _number(entity: Entity) -> Iterator[Observed]:
    bounds = {
        "min": _or(entity.number("min"), Decimal(1)),
        "max": _or(entity.number("max"), Decimal(100)),
        "step": _step(entity, "step"),
    }
    yield _with(
        _state(entity),
        keys={"absent": NO_NUMBER},
        unit=_unit(entity),
        device_class=entity.text("device_class"),
        command=_command(entity, **bounds),
    )


def _or(number: Decimal | None, default: Decimal) -> Decimal:
    return default if number is None else number


def _step(entity: Entity, key: str) -> Decimal:
    """Return the step of a number. Home Assistant allows only positive ones."""
    step = entity.number(key)
    return Decimal(1) if step is None or step <= 0 else step


def _select(entity: Entity) -> Iterator[Observed]:
    options = entity.words("options")
    yield _with(
        _state(entity),
        keys={"datatype": "string", "absent": _NO_TEXT},
        command=_command(entity, values={each: each for each in options}) if options else None,
    )


def _text(entity: Entity) -> Iterator[Observed]:
    yield _with(_state(entity), keys={"datatype": "string", "absent": ["None"]}, command=_command(entity))


def _cover(entity: Entity) -> Iterator[Observed]:
    words = {
        "open": entity.text("payload_open", "OPEN"),
        "closed": entity.text("payload_close", "CLOSE"),
        "stopped": entity.text("payload_stop", "STOP"),
    }
    states = {
        entity.text(f"state_{word}", default): default
        for word, default in (
            *(("opening", "opening"), ("closing", "closing"), ("stopped", "stopped")),
            *(("open", "open"), ("closed", "closed")),
        )
    }
    yield _with(_state(entity), keys={"values": states, "absent": _NO_TEXT}, command=_command(entity, values=words))
    low = _or(entity.number("position_closed"), Decimal(0))
    high = _or(entity.number("position_open"), Decimal(100))
    percent = sorted((low, high)) == [Decimal(0), Decimal(100)]
    bounds = {"min": min(low, high), "max": max(low, high), "step": Decimal(1)} if low != high else {}
    yield Observed(
        "position",
        entity.topic("position_topic"),
        entity.text("position_template"),
        {"absent": NO_NUMBER},
        unit="%" if percent else "",
        command=_command(entity, "set_position", **bounds),
    )


def _lock(entity: Entity) -> Iterator[Observed]:
    states = _truth(entity.text("state_locked", "LOCKED"), entity.text("state_unlocked", "UNLOCKED"))
    moving = [entity.text(f"state_{word}", word.upper()) for word in ("locking", "unlocking", "jammed")]
    words = {"true": entity.text("payload_lock", "LOCK"), "false": entity.text("payload_unlock", "UNLOCK")}
    yield _with(
        _state(entity),
        keys={"values": states, "absent": [*_NO_TEXT, *moving]},
        command=_command(entity, values=words),
    )


def _fan(entity: Entity) -> Iterator[Observed]:
    words = _on_off(entity)
    keys = {"values": _truth(words["true"], words["false"]), "absent": _NO_TEXT}
    yield _with(_state(entity, template="state_value_template"), keys=keys, command=_command(entity, values=words))
    low = _or(entity.number("speed_range_min"), Decimal(1))
    high = _or(entity.number("speed_range_max"), Decimal(100))
    bounds = {"min": Decimal(0), "max": high, "step": Decimal(1)} if high > 0 else {}
    yield _with(
        _state(entity, "speed", "percentage_", "percentage_value_template"),
        keys={"absent": NO_NUMBER},
        unit="%" if [low, high] == [Decimal(1), Decimal(100)] else "",
        command=_command(entity, "percentage_command", **bounds),
    )


def _climate(entity: Entity) -> Iterator[Observed]:
    # Without this option, the unit is a setting of Home Assistant, which the gateway does not know.
    unit = {"C": "°C", "F": "°F"}.get(entity.text("temperature_unit"))
    number: Keys = {"absent": NO_NUMBER}
    for part, topic, measured in (
        ("current_temperature", "current_temperature", "temperature"),
        ("current_humidity", "current_humidity", "humidity"),
    ):
        yield Observed(
            part,
            entity.topic(f"{topic}_topic"),
            entity.text(f"{topic}_template"),
            number,
            unit=unit if measured == "temperature" else "%",
            device_class=measured,
        )
    bounds = {
        "min": _or(entity.number("min_temp"), Decimal(7)),
        "max": _or(entity.number("max_temp"), Decimal(35)),
        "step": _step(entity, "temp_step"),
    }
    target = _state(entity, "target_temperature", "temperature_", "temperature_state_template")
    command = _command(entity, "temperature_command", **bounds)
    yield _with(target, keys=number, unit=unit, device_class="temperature", command=command)
    text: Keys = {"datatype": "string", "absent": _NO_TEXT}
    modes = {each: each for each in entity.words("modes")}
    yield _with(
        _state(entity, "mode", "mode_", "mode_state_template"),
        keys=text,
        command=_command(entity, "mode_command", values=modes) if modes else None,
    )
    yield Observed("action", entity.topic("action_topic"), entity.text("action_template"), text)


def _event(entity: Entity) -> Iterator[Observed]:
    template = entity.text("value_template")
    keys: Keys = {"datatype": "string", "absent": _NO_TEXT, "event": True}
    yield _with(_state(entity), keys=keys, path=() if template else ("event_type",))


_KINDS: Final[Mapping[str, Callable[[Entity], Iterator[Observed]]]] = {
    "binary_sensor": _binary_sensor,
    "climate": _climate,
    "cover": _cover,
    "event": _event,
    "fan": _fan,
    "light": _light,
    "lock": _lock,
    "number": _number,
    "select": _select,
    "sensor": _sensor,
    "switch": _switch,
    "text": _text,
}

KINDS: Final = frozenset(_KINDS)
"""Components whose entities have values that the gateway reads."""
