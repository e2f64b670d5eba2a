"""Mapper: converts a message to readings and problems. The mappings of each topic are cached."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from edge.mapping.announced import Group, before_ignored, without_taken
from edge.mapping.evaluate import BoundMapping, BoundRule, MessageEvaluation, bind
from edge.mapping.outcome import Collector, Declared, FullError, Mapped
from edge.mapping.pack import MappingPack
from edge.mapping.payload import PayloadMessage
from edge.mapping.rules import CompiledMapping, ReadingRule, Terms
from edge.mapping.setter import Setter
from edge.mapping.settings import MappingLimits
from edge.mapping.template import CaptureError
from edge.mapping.topics import TopicIndex
from edge.mapping.values import storable

_Precedence = tuple[int, tuple[int, ...], bool, bool]
_LONGEST_TOPIC = 65_535
_UNMAPPED = Mapped(False)


class Mapper:
    """Maps messages by the mappings of several packs. Thread-safe.

    Files of the operator (`MappingPack.own`) take precedence over built-in packs, then the most specific topic
    pattern counts. All mappings of the same precedence apply. Less specific ones apply only if the more specific ones
    do not match the payload (`when`), or have `also`. Mappings that devices have announced come last, except that they
    go before a pack that ignores the topic. Topics on which the gateway itself sends are never theirs.
    """

    def __init__(self, packs: Iterable[MappingPack] = (), limits: MappingLimits | None = None) -> None:
        self.packs = tuple(packs)
        self.limits = limits or MappingLimits()
        self.actuators = tuple(actuator for pack in self.packs for actuator in pack.actuators)
        self.ports = tuple(port for pack in self.packs for port in pack.ports)
        self.devices = tuple(device for pack in self.packs for device in pack.devices)
        # Numbered in file order, which decides between mappings of equal precedence.
        self._index: TopicIndex[tuple[int, CompiledMapping]] = TopicIndex()
        self._mappings = mappings = without_taken(mapping for pack in self.packs for mapping in pack.mappings)
        for order, mapping in enumerate(mappings):
            self._index.add(mapping.topic, (order, mapping))
        self._setters = [
            (mapping, rule.setter) for mapping in mappings for rule in mapping.rules if rule.setter is not None
        ]
        self._routes: dict[str, tuple[Group, ...]] = {}
        self._terms: dict[tuple[object, ...], Terms] = {}

    def map(self, topic: str, payload: bytes, now: datetime | None = None) -> Mapped:
        """Map a message. Never raises: unusable parts are reported as problems.

        `now` is the time of arrival (with zone), the base of relative SenML times; without it they are dropped.
        """
        routes = self._routes.get(topic)
        if routes is None:
            routes = self._route(topic)
        if not routes:
            writer = self.writer(topic)
            return _UNMAPPED if writer is None else Mapped(True, (writer[0],), ignored=True)
        if not payload:
            # MQTT deletes a retained message with an empty one: there is no measurement and no problem.
            return Mapped(True)
        out = Collector(self.limits)
        if len(payload) > self.limits.payload:
            name = routes[0][0].mapping.name
            out.problem(name, "payload", f"has {len(payload)} bytes, the limit is {self.limits.payload}")
            return Mapped(True, problems=tuple(out.problems))
        evaluation = MessageEvaluation(PayloadMessage(topic, payload), out, self._render, now)
        applied, ignored = self._apply(evaluation, routes)
        return Mapped(bool(applied), tuple(applied), tuple(out.readings), tuple(out.problems), ignored)

    def _apply(self, evaluation: MessageEvaluation, routes: tuple[Group, ...]) -> tuple[list[str], bool]:
        applied: list[str] = []
        ignored = False
        for group in routes:
            last = False
            # The conditions of all mappings of a group see the same message.
            fitting = [each for each in group if not each.mapping.when or fits(each.mapping, evaluation.message)]
            try:
                for bound in fitting:
                    applied.append(bound.mapping.name)
                    last = last or not bound.mapping.also
                    if bound.mapping.ignore:
                        ignored = True
                    else:
                        evaluation.run(bound)
            except FullError:
                break
            if last:
                break
        return applied, ignored

    def _route(self, topic: str) -> tuple[Group, ...]:
        levels = topic.split("/")
        if len(topic) > _LONGEST_TOPIC or not storable(topic):
            return ()
        groups: dict[_Precedence, list[tuple[int, BoundMapping]]] = {}
        found = self._index.find(topic, levels)
        ours = any(mapping.announced for _, mapping in found) and self.sends_on(topic)
        for order, mapping in found:
            if mapping.announced and ours:
                continue
            captures = mapping.topic.captures(levels)
            if mapping.topic_regex is not None:
                match = mapping.topic_regex.fullmatch(topic) if len(topic) <= self.limits.regex_text else None
                if match is None:
                    continue
                captures.update({name: value or "" for name, value in match.groupdict().items()})
            # Sorts ascending: own files first, then more specific topics, then mappings with `topic_regex`, then those
            # with conditions. Announced mappings come last.
            rank = 2 if mapping.announced else 0 if mapping.own else 1
            key = (rank, mapping.topic.specificity, mapping.topic_regex is None, not mapping.when)
            groups.setdefault(key, []).append((order, bind(mapping, topic, captures)))
        routes = before_ignored(
            [tuple(bound for _, bound in sorted(groups[key], key=lambda each: each[0])) for key in sorted(groups)]
        )
        if len(self._routes) >= self.limits.topics:
            self._routes = {}  # replaced as a whole, so that other threads never see it half filled
        self._routes[topic] = routes
        return routes

    def _render(self, rule: ReadingRule, captures: dict[str, str]) -> Terms:
        templates = rule.terms
        if templates is None:
            raise CaptureError("nothing is yielded")
        key = (rule, *[captures[name] for name in templates.names])
        terms = self._terms.get(key)
        if terms is None:
            terms = templates.render(captures)
            if len(self._terms) >= self.limits.terms:
                self._terms = {}
            self._terms[key] = terms
        return terms

    def groups(self, topic: str) -> tuple[Group, ...]:
        """Return the mappings of a topic, by descending precedence."""
        return self._routes.get(topic) or self._route(topic)

    def setter(self, topic: str, observation: str) -> tuple[Setter, Mapping[str, str]] | None:
        """Return the setter of an observation that messages of `topic` describe, and its captures; None without one."""
        rules = [each for group in _reachable(self.groups(topic)) for bound in group for each in bound.rules]
        # A rule that gives just this observation says more than one that captures a part of its name.
        for ready in sorted(rules, key=lambda each: each.terms is None):
            found = _captures(ready, observation)
            if found is not None:
                setter = ready.rule.setter
                return None if setter is None or not setter.names <= found.keys() else (setter, found)
        return None

    def sets_like(self, other: Mapper) -> bool:
        """Whether values are set as by another mapper: announcements of values that cannot be set do not matter."""
        return self._setting() == other._setting()

    def _setting(self) -> list[CompiledMapping]:
        every = (mapping for pack in self.packs for mapping in pack.mappings)
        return [each for each in every if not each.announced or any(rule.setter is not None for rule in each.rules)]

    def writer(self, topic: str) -> tuple[str, str] | None:
        """Return the actuator or mapping that sends messages with this topic: without a mapping, they are ignored.

        The result is its name and the template of its topic; None without one.
        """
        for actuator in self.actuators:
            if actuator.writes(topic):
                return actuator.name, actuator.added.topic.text
        return next(
            ((mapping.name, setter.topic.text) for mapping, setter in self._setters if setter.topic.matches(topic)),
            None,
        )

    def sends_on(self, topic: str) -> bool:
        """Whether an actuator, or a mapping that is not announced, sends messages with this topic."""
        return any(actuator.writes(topic) for actuator in self.actuators) or any(
            setter.topic.matches(topic) for mapping, setter in self._setters if not mapping.announced
        )

    def declared(self) -> tuple[Declared, ...]:
        """Return the observations that mappings of a single topic determine completely, in file order."""
        found: list[Declared] = []
        topics: dict[str, dict[CompiledMapping, list[BoundMapping]]] = {}  # one can have many mappings
        for mapping in self._mappings:
            topic = mapping.topic.exact
            if topic is None or mapping.ignore:
                continue
            reachable = topics.get(topic)
            if reachable is None:
                reachable = topics[topic] = {}
                for bound in (each for group in _reachable(self.groups(topic)) for each in group):
                    reachable.setdefault(bound.mapping, []).append(bound)
            for bound in reachable.get(mapping, ()):
                found.extend(_declarations(bound, topic))
        return tuple(found)

    def yields(self, topic: str, observation: str) -> bool:
        """Whether the files can map a message of `topic` to a reading of `observation`."""
        for group in _reachable(self.groups(topic)):
            for bound in group:
                for ready in bound.rules:
                    if _captures(ready, observation) is not None:
                        return True
        return False


def fits(mapping: CompiledMapping, message: PayloadMessage) -> bool:
    """Whether the conditions of `mapping` hold."""
    if not mapping.when:
        return True
    message = message.read_by(mapping.layout)
    return all(condition.holds(message) for condition in mapping.when)


def _reachable(groups: tuple[Group, ...]) -> Iterable[Group]:
    for group in groups:
        yield group
        # A mapping without conditions applies to every payload. Unless it declares `also`, no lower group is evaluated.
        if any(not bound.mapping.when and not bound.mapping.also for bound in group):
            return


def _declarations(bound: BoundMapping, topic: str) -> Iterable[Declared]:
    for ready in bound.rules:
        if ready.terms is not None and not ready.rule.existing:
            yield Declared(bound.mapping.name, topic, **asdict(ready.terms))


def _captures(ready: BoundRule, observation: str) -> Mapping[str, str] | None:
    """Return the captures with which a rule gives an observation; None if it cannot."""
    if ready.rule.terms is None:
        return None
    if ready.terms is not None:
        return ready.captures if ready.terms.observation == observation else None
    try:
        return ready.rule.terms.observation.match(observation, ready.captures)
    except CaptureError:
        return None
