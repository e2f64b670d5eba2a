"""Observations by device, and the entities that are announced for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from edge.announce.commands import Commands
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
        """Observations by group, which is the IRI of a sensor, of an observation without one, or of a query."""
        self._group_of: dict[str, str] = {}
        self._place_of: dict[str, str] = {}
        self._at: dict[str, dict[str, None]] = {}
        """Observations by place."""
        self._announced: dict[str, list[Entity]] = {}
        self._states: dict[str, tuple[StateOf, str]] = {}
        """State of each announced observation, and its component."""
        self._hints: dict[str, str] = {}
        """Components by object, of announcements that the broker has kept."""
        self._is_hinted = False
        """Whether there are new hints."""
        self._dirty: dict[str, None] = {}
        self._valued: dict[str, None] = {}
        self._cut: dict[str, None] = {}
        """Groups that are not announced completely."""
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
        self._dirty.update(dict.fromkeys(self._members))
        self._members, self._group_of = {}, {}
        self._place_of, self._at = {}, {}

    def apply(self, delta: Delta, *, first: bool) -> None:
        """Apply a change. `first`: nothing was known before."""
        for iri, keys in self._facts.apply(delta).items():
            if not first and "area" in keys:
                self._touch_place(iri)
            if iri in self._members:
                self._dirty[iri] = None  # a sensor has another label
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
        """Check the observations of these topics: others announce them since, or no more."""
        for iri, group in self._group_of.items():
            if not topics.isdisjoint(self._facts.texts(iri, "topic")):
                self._dirty[group] = None

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
        groups = list(self._dirty)[:most]
        members = [iri for group in groups for iri in self._members.get(group, ())]
        settable = self._settable(members) if members and self._commands.access is not None else {}
        for group in groups:
            del self._dirty[group]
            self._announce(group, settable)
        if self._dirty:
            return True
        for iri in self._valued:
            self._put_state(iri)
        self._valued.clear()
        return False

    def _keeps_kind(self, iri: str) -> bool:
        known = self._states.get(iri)
        return known is not None and known[0].fits(self._facts.value(iri))

    def _touch_place(self, place: str) -> None:
        for iri in self._at.get(place, ()):
            self._dirty[self._group_of[iri]] = None

    def _sort(self, iri: str) -> None:
        """Put an observation into its group, and note its place."""
        old = _leave(self._members, self._group_of, iri)
        if old is not None:
            self._dirty[old] = None
        _leave(self._at, self._place_of, iri)
        if iri in self._facts and not iri.startswith(self._excluded):
            group, place = self._facts.iri(iri, "sensor") or iri, self._facts.iri(iri, "place")
            self._group_of[iri], self._place_of[iri] = group, place
            self._members.setdefault(group, {})[iri] = None
            self._at.setdefault(place, {})[iri] = None
            self._dirty[group] = None

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

    def _announce(self, group: str, settable: Mapping[str, Settable]) -> None:
        found: list[Entity]
        query = self._queries.observed(group, "")
        if query is not None:
            query = query if query.value is not None else query.hinted(self._hint(query))
            found = self._maker.device(Device(), [query])
        else:
            sensor = group if group not in self._group_of else ""
            name = (self._facts.text(group, "name") or local_name(group)) if sensor else ""
            device = Device(sensor, name, self._facts.text(group, "about") if sensor else "")
            members = [iri for iri in self._members.get(group, ()) if not self._is_foreign(iri)]
            found = self._maker.device(device, [self._observed(iri, sensor, settable) for iri in members])
        self._replace(group, self._fitting(group, found))

    def _is_foreign(self, iri: str) -> bool:
        return any(topic in self._foreign for topic in self._facts.texts(iri, "topic"))

    def _fitting(self, group: str, found: list[Entity]) -> list[Entity]:
        room = self._settings.max_entities - self.entities + len(self._announced.get(group, ()))
        if len(found) <= room:
            self._cut.pop(group, None)
            return found
        if not self._cut:
            _log.warning(
                "announce.full",
                extra={"setting": "announce.max_entities", "entities": self._settings.max_entities, "first": group},
            )
        self._cut[group] = None
        return found[: max(0, room)]

    def _replace(self, group: str, found: list[Entity]) -> None:
        old = self._announced.pop(group, [])
        if found:
            self._announced[group] = found
        topics = {self._topic(each) for each in found}
        states = {state.topic for each in found for state in each.states.values()}
        commands = {topic for each in found for topic in each.commands}
        for entity in old:
            if self._topic(entity) not in topics:
                self._outgoing.put(self._topic(entity), b"", _AT_ONCE)
            for iri, state in entity.states.items():
                self._states.pop(iri, None)
                if state.topic not in states:
                    self._outgoing.put(state.topic, b"", self._settings.interval)
            for topic in entity.commands.keys() - commands:
                self._commands.remove(topic)
        self.entities += len(found) - len(old)
        for entity in found:
            self._put(entity)
        if len(found) < len(old):
            self._dirty.update(self._cut)

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
