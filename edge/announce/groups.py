"""Observations by device, and the entities that are announced for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final

from edge.announce.commands import Commands
from edge.announce.device_entities import DeviceEntities
from edge.announce.entities import Device, Entity, EntityMaker, Observed, StateOf
from edge.announce.facts import VALUE, Facts
from edge.announce.foreign import ForeignAnnouncements
from edge.announce.outgoing import Outgoing
from edge.announce.query_results import QueryResults
from edge.announce.settings import AnnounceSettings
from edge.announce.topics import Place
from edge.discovery.mappings import NAMESPACE
from edge.engine.requests import Delta
from edge.observed_values import Settable, local_name

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 0.2
"""Seconds between two announcements of an entity."""
_ALONE: Final = "alone "
"""Beginning of the groups of observations without a sensor. No IRI has a space, so none of a sensor begins with it."""


class Groups:
    """Groups of observations: those of a sensor, or a single one. Not thread-safe."""

    def __init__(
        self,
        settings: AnnounceSettings,
        place: Place,
        maker: EntityMaker,
        outgoing: Outgoing,
        commands: Commands,
        queries: QueryResults,
        foreign: ForeignAnnouncements,
        settable: Callable[[Sequence[str]], Mapping[str, Settable]],
    ) -> None:
        self._settings = settings
        self._place = place
        self._maker = maker
        self._outgoing = outgoing
        self._commands = commands
        self._queries = queries
        self._foreign = foreign
        self._settable = settable
        # Values that come from Home Assistant must not return to it.
        self._excluded = (NAMESPACE, *settings.exclude)
        self._facts = Facts()
        self._members: dict[str, dict[str, None]] = {}
        """Observations by group: the IRI of a sensor or of a query, or `_ALONE` and that of the only observation."""
        self._group_of: dict[str, str] = {}
        self._place_of: dict[str, str] = {}
        self._at: dict[str, dict[str, None]] = {}
        """Observations by place."""
        self._devices: dict[str, DeviceEntities] = {}
        """By group."""
        self._announced: dict[str, dict[str, Entity]] = {}
        """Entities by group, and by observation."""
        self._owners: dict[str, str] = {}
        """Group by topic. An observation that changes its group may be announced there before it leaves the old one."""
        self._states: dict[str, tuple[StateOf, str]] = {}
        """State of each announced observation, and its component."""
        self._hints: dict[str, str] = {}
        """Components by object, of announcements that the broker has kept."""
        self._is_hinted = False
        """Whether there are new hints."""
        self._dirty: dict[str, dict[str, None] | None] = {}
        """Groups to announce again, each with its changed observations; None: with all."""
        self._changed_topics: set[str] = set()
        """Topics that others announce since, or no more."""
        self._valued: dict[str, None] = {}
        self._cut: dict[str, dict[str, None]] = {}
        """Observations by group that are not announced because there are too many entities."""
        self.entities = 0

    @property
    def left_out(self) -> int:
        """Groups that are not announced completely."""
        return len(self._cut)

    def announce_gateway(self) -> None:
        """Announce the entity of the gateway itself."""
        self._put(self._maker.gateway())

    def reset(self) -> None:
        """Forget all facts: if others follow, they are complete."""
        self._facts = Facts()
        self.recheck()
        self._members, self._group_of = {}, {}
        self._place_of, self._at = {}, {}

    def apply(self, delta: Delta, *, first: bool) -> None:
        """Apply a change. `first`: nothing was known before."""
        for iri, keys in self._facts.apply(delta).items():
            if not first and "area" in keys:
                self._touch_place(iri)
            if iri in self._members and keys & {"name", "about"}:
                self.touch(iri)  # a sensor has another label
            if keys == {VALUE} and self._keeps_kind(iri):
                self._valued[iri] = None
            else:
                self._sort(iri)

    def touch(self, group: str) -> None:
        """Announce a group again."""
        self._dirty[group] = None

    def recheck(self) -> None:
        """Check for all groups whether values can be set."""
        self._dirty.update(dict.fromkeys(self._members))

    def recheck_topics(self, topics: AbstractSet[str]) -> None:
        """Check the observations of these topics at the next turn: others announce them since, or no more."""
        self._changed_topics |= topics

    def hint(self, component: str, object_id: str) -> None:
        """Note as what an object was announced before a restart."""
        if len(self._hints) < self._settings.max_entities:
            self._hints[object_id] = component
            self._is_hinted = True

    def settle(self, most: int) -> bool:
        """Announce up to so many groups, and the new values of others. Returns whether there are more."""
        if self._is_hinted:
            # Those without a value are announced only with a hint.
            self._is_hinted = False
            self._dirty.update(dict.fromkeys(each for each in self._members if each not in self._announced))
        self._find_changed_topics()
        turn = {group: self._changed(group) for group in islice(self._dirty, most)}
        members = [iri for changed in turn.values() for iri in changed if iri in self._group_of]
        settable = self._settable(members) if members and self._commands.access is not None else {}
        for group, changed in turn.items():
            del self._dirty[group]
            try:
                self._announce(group, changed, settable)
            except Exception:
                self._devices.pop(group, None)  # the next change announces all
                raise
        if not self._dirty:
            self._fill()
        if self._dirty:
            return True
        for iri in self._valued:
            self._put_state(iri)
        self._valued.clear()
        return False

    def _find_changed_topics(self) -> None:
        topics, self._changed_topics = self._changed_topics, set()
        for iri, group in self._group_of.items() if topics else ():
            if not topics.isdisjoint(self._facts.texts(iri, "topic")):
                self._touch_member(group, iri)

    def _changed(self, group: str) -> dict[str, None]:
        """Return the observations of a group that are announced again. All are if the device itself is another."""
        known, changed = self._devices.get(group), self._dirty[group]
        if known is not None and changed is not None and known.device == self._device(group):
            return changed
        self._devices.pop(group, None)
        return self._members.get(group, {}).copy()

    def _touch_member(self, group: str, iri: str) -> None:
        changed = self._dirty.setdefault(group, {})
        if changed is not None:
            changed[iri] = None

    def _keeps_kind(self, iri: str) -> bool:
        known = self._states.get(iri)
        return known is not None and known[0].fits(self._facts.value(iri))

    def _touch_place(self, place: str) -> None:
        for iri in self._at.get(place, ()):
            self._touch_member(self._group_of[iri], iri)

    def _sort(self, iri: str) -> None:
        """Put an observation into its group, and note its place."""
        old = _leave(self._members, self._group_of, iri)
        if old is not None:
            self._touch_member(old, iri)
        _leave(self._at, self._place_of, iri)
        if iri in self._facts and not iri.startswith(self._excluded):
            group, place = self._facts.iri(iri, "sensor") or f"{_ALONE}{iri}", self._facts.iri(iri, "place")
            self._group_of[iri], self._place_of[iri] = group, place
            self._members.setdefault(group, {})[iri] = None
            self._at.setdefault(place, {})[iri] = None
            self._touch_member(group, iri)

    def _observed(self, iri: str, device: str, settable: Mapping[str, Settable]) -> Observed:
        facts = self._facts
        prop, place = facts.iri(iri, "property"), facts.iri(iri, "place")
        area = "" if place in ("", device) else facts.text(place, "area") or local_name(place)
        found = Observed(
            iri,
            facts.text(iri, "label") or local_name(iri),
            facts.value(iri),
            facts.iri(iri, "unit") or facts.text(iri, "unit") or None,
            local_name(prop) if prop else "",
            area,
            settable.get(iri),
        )
        return found if found.value is not None else found.hinted(self._hint(found))

    def _hint(self, observed: Observed) -> str:
        known = self._states.get(observed.iri)
        return known[1] if known is not None else self._hints.get(observed.object_id, "")

    def _device(self, group: str) -> Device:
        if group.startswith(_ALONE):
            return Device()
        return Device(group, self._facts.text(group, "name") or local_name(group), self._facts.text(group, "about"))

    def _announce(self, group: str, changed: Mapping[str, None], settable: Mapping[str, Settable]) -> None:
        query = self._queries.observed(group, "")
        found: dict[str, Entity | None]
        known: DeviceEntities | None = None
        if query is not None:
            query = query if query.value is not None else query.hinted(self._hint(query))
            found = DeviceEntities(self._maker, Device()).change({group: query})
        else:
            known = self._devices.get(group)
            found = {}
            if known is None:
                known = self._devices[group] = DeviceEntities(self._maker, self._device(group))
                found = dict.fromkeys([*self._announced.get(group, ()), *self._cut.get(group, ())])
            members = self._members.get(group, {})
            found |= known.change(
                {
                    iri: self._observed(iri, known.device.iri, settable)
                    if iri in members and not self._is_foreign(iri)
                    else None
                    for iri in changed
                }
            )
            if not members:
                del self._devices[group]
        fitting = self._fitting(group, found)
        if known is not None:
            before = self._announced.get(group, {})
            others = known.refer({iri: entity is not None for iri, entity in fitting.items()})
            fitting |= {iri: each for iri, each in others.items() if fitting.get(iri, before.get(iri)) is not None}
        self._replace(group, fitting)

    def _is_foreign(self, iri: str) -> bool:
        return any(topic in self._foreign for topic in self._facts.texts(iri, "topic"))

    def _fitting(self, group: str, found: dict[str, Entity | None]) -> dict[str, Entity | None]:
        """Leave out entities that are too many, and note that."""
        before, was_full = self._announced.get(group, {}), bool(self._cut)
        room = self._settings.max_entities - self.entities + sum(iri in before for iri in found)
        missing = self._cut.pop(group, {})
        fitting: dict[str, Entity | None] = {}
        # Those that are announced keep their places; new ones are left out.
        for iri in sorted(found, key=lambda each: each not in before):
            entity = found[iri]
            room -= entity is not None
            fitting[iri] = entity if room >= 0 else None
            if entity is fitting[iri]:
                missing.pop(iri, None)
            else:
                missing[iri] = None
        if missing:
            self._cut[group] = missing
        if missing and not was_full:
            _log.warning(
                "announce.full",
                extra={
                    "setting": "announce.max_entities",
                    "entities": self._settings.max_entities,
                    "first": group.removeprefix(_ALONE),
                },
            )
        return fitting

    def _fill(self) -> None:
        """Announce as many of those that were left out as there is room for."""
        room = max(0, self._settings.max_entities - self.entities)
        missing = ((group, iri) for group, left_out in self._cut.items() for iri in left_out)
        for group, iri in islice(missing, room):
            self._touch_member(group, iri)

    def _replace(self, group: str, found: Mapping[str, Entity | None]) -> None:
        """Announce the entities of some observations of a group; None: remove the former one."""
        announced = self._announced.setdefault(group, {})
        old = [announced.pop(iri) for iri in found if iri in announced]
        new = {iri: entity for iri, entity in found.items() if entity is not None}
        announced.update(new)
        if not announced:
            del self._announced[group]
        kept = {topic for each in new.values() for topic in self._topics(each)}
        for entity in old:
            self._withdraw(entity, {each for each in self._topics(entity) if self._owners.get(each) == group}, kept)
        self._owners |= dict.fromkeys(kept, group)
        self.entities += len(new) - len(old)
        for entity in new.values():
            self._put(entity)

    def _withdraw(self, entity: Entity, own: AbstractSet[str], kept: AbstractSet[str]) -> None:
        """Remove an entity. `own`: those of its topics that no other group has; `kept`: those of its successors."""
        for topic in own - kept:
            del self._owners[topic]
        if (topic := self._topic(entity)) in own - kept:
            self._outgoing.put(topic, b"", _AT_ONCE)
        for iri, state in entity.states.items():
            if state.topic in own:
                self._states.pop(iri, None)
            if state.topic in own - kept:
                self._outgoing.put(state.topic, b"", self._settings.interval)
        for topic in entity.commands.keys() & (own - kept):
            self._commands.remove(topic)

    def _put(self, entity: Entity) -> None:
        self._outgoing.put(self._topic(entity), entity.payload(), _AT_ONCE)
        for topic, command in entity.commands.items():
            self._commands.put(topic, command)
        for iri, state in entity.states.items():
            self._states[iri] = state, entity.component
            self._put_state(iri)

    def _put_state(self, iri: str) -> None:
        known = self._states.get(iri)
        if known is not None:
            query = self._queries.observed(iri, "")
            value = self._facts.value(iri) if query is None else query.value
            self._outgoing.put(known[0].topic, known[0].payload(value), self._settings.interval)

    def _topics(self, entity: Entity) -> Iterable[str]:
        return self._topic(entity), *(each.topic for each in entity.states.values()), *entity.commands

    def _topic(self, entity: Entity) -> str:
        return self._place.config(entity.component, entity.object_id)


def _leave(members: dict[str, dict[str, None]], group_of: dict[str, str], iri: str) -> str | None:
    """Take an observation out of its group. Returns the group; None: it has none."""
    old = group_of.pop(iri, None)
    if old is not None:
        del members[old][iri]
        if not members[old]:
            del members[old]
    return old
