"""The entities of one device, of which a change makes again only those that it concerns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from edge.announce.entities import Device, Entity, EntityMaker, Observed, is_availability
from edge.announce.lights import can_be_of_light, lights


class DeviceEntities:
    """Entities by the IRI of their observation, or of the switch of a light.

    A device that announces its values one by one costs as much for each value, however many it has already. Its area
    and its availability, which all entities have, change seldom.
    """

    def __init__(self, maker: EntityMaker, device: Device) -> None:
        self.device = device
        self._maker = maker
        self._observed: dict[str, Observed] = {}
        self._areas: Counter[str] = Counter()
        self._available: dict[str, Observed] = {}
        """Observations of whether the device is available. The first one counts."""
        self._unannounced: set[str] = set()
        """Those of `_available` that are not announced, so that their topics have no message."""
        self._lit: dict[str, Observed] = {}
        """Observations that can be of a light."""
        self._dimmers: dict[str, str] = {}
        """Brightness by switch, of the lights."""
        self._lamps: dict[str, str] = {}
        """Switch by brightness, of the lights."""
        self._common: object = None
        """Area and availability of all entities."""

    def change(self, observed: Mapping[str, Observed | None]) -> dict[str, Entity | None]:
        """Apply new facts about observations; None: the device has it no more. Returns the entities to announce, by
        observation; None: it has none.
        """
        affected = dict.fromkeys(observed)
        is_other_light = False
        for iri, new in observed.items():
            old = self._observed.get(iri)
            self._note(iri, old, new)
            is_other_light = is_other_light or can_be_of_light(old) or can_be_of_light(new)
        if is_other_light:
            affected |= self._pair(affected)
        return self._all_made(affected)

    def refer(self, announced: Mapping[str, bool]) -> dict[str, Entity | None]:
        """Note which observations have an announced entity: others refer to its topic only then. Returns the entities
        that are other ones by that.
        """
        for iri, is_announced in announced.items():
            if is_announced or iri not in self._available:
                self._unannounced.discard(iri)
            else:
                self._unannounced.add(iri)
        return self._all_made({})

    def _all_made(self, affected: dict[str, None]) -> dict[str, Entity | None]:
        """Return the affected entities; all, if they have another area or availability."""
        available = next((each for iri, each in self._available.items() if iri not in self._unannounced), None)
        area = self._area()
        common = available and available.iri, area
        if common != self._common:
            self._common = common
            affected |= dict.fromkeys(self._observed)
        return {iri: self._made(iri, available, area) for iri in affected}

    def _note(self, iri: str, old: Observed | None, new: Observed | None) -> None:
        if old is not None:
            self._areas[old.area] -= 1
            if not self._areas[old.area]:
                del self._areas[old.area]
        if new is None:
            self._observed.pop(iri, None)
        else:
            self._observed[iri] = new
            self._areas[new.area] += 1
        for kept, belongs in ((self._available, is_availability(new)), (self._lit, can_be_of_light(new))):
            if new is not None and belongs:
                kept[iri] = new
            else:
                kept.pop(iri, None)

    def _pair(self, changed: Iterable[str]) -> dict[str, None]:
        """Find the lights. Returns the observations of lights that are others than before, or have changed."""
        before = self._dimmers
        found = [(lamp.iri, dimmer.iri) for lamp, dimmer in lights(self._lit.values())]
        self._dimmers, self._lamps = dict(found), {dimmer: lamp for lamp, dimmer in found}
        pairs = before.items() ^ self._dimmers.items()
        affected = {iri for pair in pairs for iri in pair} | {
            self._lamps[each] for each in changed if each in self._lamps
        }
        return dict.fromkeys(each for each in self._lit if each in affected)

    def _area(self) -> str:
        """Return the area that all observations share, as far as they have one; empty: there are several, or none."""
        others = {"", self.device.name}
        if len(self._areas) - len(others & self._areas.keys()) != 1:
            return ""
        return next(each for each in self._areas if each not in others)

    def _made(self, iri: str, available: Observed | None, area: str) -> Entity | None:
        observed = self._observed.get(iri)
        if observed is None or iri in self._lamps:
            return None
        dimmer = self._dimmers.get(iri)
        return self._maker.entity(
            self.device, observed, None if dimmer is None else self._observed[dimmer], available=available, area=area
        )
