"""From properties and units of observations to device classes and units of Home Assistant.

The tables are those of the other direction, reversed. Sources: Home Assistant Developer Docs, "Sensor entity" (device
classes, state classes) and "Binary sensor entity" (device classes).
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from edge.discovery.device_classes import NUMERIC, unit_of
from edge.mapping.unit_symbols import unit_symbols

BINARY: Final = frozenset(
    {
        *("battery", "battery_charging", "carbon_monoxide", "cold", "connectivity", "door", "garage_door", "gas"),
        *("heat", "light", "moisture", "motion", "moving", "occupancy", "opening", "plug", "power", "presence"),
        *("problem", "running", "safety", "smoke", "sound", "tamper", "update", "vibration", "window"),
    }
)
"""Device classes of binary sensors. Without "lock", where "on" is unlocked: observations say whether it is locked."""
_ALIASES: Final = {"available": "connectivity", "battery_low": "battery", "water_leak": "moisture"}
"""Other names of properties whose values are those of a class."""
_STATE: Final = "_state"
_STATE_CLASSES: Final[dict[str, str]] = {
    "energy": "total_increasing",
    "gas": "total_increasing",
    "monetary": "total",
    "reactive_energy": "total_increasing",
    "volume": "total",
    "water": "total_increasing",
    "wind_direction": "",
}
"""State classes of device classes that may not be "measurement"; empty: none."""


class Measure(NamedTuple):
    """How Home Assistant shows a number. Empty texts are left out of announcements."""

    device_class: str
    unit: str
    state_class: str

    def options(self) -> dict[str, str]:
        """Return the options of a sensor."""
        found = {
            "device_class": self.device_class,
            "unit_of_measurement": self.unit,
            "state_class": self.state_class,
        }
        return {name: value for name, value in found.items() if value}


def measure(property_name: str, unit: str | None) -> Measure:
    """Return the measure of a numeric observation.

    `property_name`: local name of its property. `unit`: IRI or symbol; None: it has none. A device class that does not
    allow the unit is left out, because Home Assistant refuses such an announcement.
    """
    symbols = _symbols(unit)
    for name in _named(property_name):
        allowed = NUMERIC[name].units
        found = next((each for each in symbols if each in allowed), None)
        if found is not None:
            return Measure(name, found, _STATE_CLASSES.get(name, "measurement"))
    return Measure("", symbols[0] if symbols else "", "measurement")


def binary_class(property_name: str) -> str:
    """Return the device class of a binary sensor; empty if its property has none."""
    name = property_name.lower()
    name = _ALIASES.get(name, name)
    if any(each.property == name for each in NUMERIC.values()) and name == property_name.lower():
        return ""  # the quantity of this name, such as the charge of a battery
    name = name.removesuffix(_STATE)
    return name if name in BINARY else ""


def _named(property_name: str) -> list[str]:
    name = property_name.lower()
    found = [each for each, known in NUMERIC.items() if known.property == name or each == name]
    # The class of the same name first: a pressure is not one of the atmosphere unless its property says so.
    return sorted(found, key=lambda each: each != name)


def _symbols(unit: str | None) -> tuple[str, ...]:
    """Return the texts of Home Assistant for a unit, the most usual one first."""
    if not unit:
        return ("",)
    known = _by_unit().get(unit)
    if known is not None:
        return known
    if ":" not in unit:  # a symbol that a mapping gave
        return (unit,)
    symbol = unit_symbols().get(unit.rstrip("/#").rpartition("/")[2].rpartition("#")[2])
    return ("",) if symbol is None else (symbol,)


@cache
def _by_unit() -> dict[str, tuple[str, ...]]:
    """Return the texts by IRI of the unit."""
    found: dict[str, dict[str, None]] = {}
    for name, each in NUMERIC.items():
        for text in each.units:
            scaled = unit_of(text, name)
            if scaled is not None and scaled.scale == "1":
                found.setdefault(scaled.iri, {})[text] = None
    return {iri: tuple(texts) for iri, texts in found.items()}
