"""Lights: a switch and its brightness, which Home Assistant shows as one entity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edge.announce.entities import Observed
from edge.observed_values import Settable

_DIMMERS: Final = frozenset({"brightness", "dimmer"})


def can_be_of_light(observed: Observed | None) -> bool:
    """Whether an observation is a switch or a brightness. No other one changes the lights of a device."""
    return observed is not None and (_is_switch(observed) or observed.property_name in _DIMMERS)


def lights(observed: Iterable[Observed]) -> list[tuple[Observed, Observed]]:
    """Return pairs of a switch and its brightness."""
    known = list(observed)
    switches = {each.iri: each for each in known if _is_switch(each)}
    dimmers = [each for each in known if each.property_name in _DIMMERS]
    found = []
    for dimmer in dimmers:
        if not _dims(dimmer.settable or {}):
            continue
        parent = dimmer.iri.rpartition("/")[0]
        lamp = next((switches[iri] for iri in (f"{parent}/state", parent) if iri in switches), None)
        if lamp is None and len(switches) == 1 and len(dimmers) == 1:
            lamp = next(iter(switches.values()))
        if lamp is not None:
            found.append((switches.pop(lamp.iri), dimmer))
    return found


def _is_switch(observed: Observed) -> bool:
    return (observed.settable or {}).get("kind") == "switch"


def _dims(settable: Settable) -> bool:
    high, low = settable.get("max"), settable.get("min")
    scale = isinstance(high, int | float) and high >= 1 and float(high).is_integer()
    return settable.get("kind") == "number" and scale and isinstance(low, int | float) and low <= 1
