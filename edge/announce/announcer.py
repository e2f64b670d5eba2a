"""Announces the observations of the graph to Home Assistant, and sets values for it."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from edge.adapters.settings import MqttSettings
from edge.announce import facts
from edge.announce.client_rights import ClientRights
from edge.announce.commands import Commands
from edge.announce.entities import EntityMaker
from edge.announce.following import Engine, Following
from edge.announce.foreign import ForeignAnnouncements
from edge.announce.groups import Groups
from edge.announce.outgoing import Outgoing
from edge.announce.query_results import QueryResults
from edge.announce.settings import AnnounceSettings
from edge.announce.topics import Place
from edge.announce.work_faults import WorkFaults
from edge.engine.requests import QueryRequest, SubscriberNotification
from edge.observed_values import Settable
from edge.protocol.access import DEFAULT_GRAPH, Access
from edge.query_files import read_queries

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 10_000
"""Events that may wait. Beyond it, subscriptions start again later."""
_LOOK: Final = 2.0
"""Seconds between two checks of the rights, the mappings and the query files."""
_SETTLE: Final = 0.1
"""Seconds from a change to its announcement: several updates often belong together."""
_PATIENCE: Final = 10.0
"""Seconds to wait for the retained messages of the broker before the first announcement."""
_TURN: Final = 200
"""Devices that are announced before other events have their turn."""


class Announcer:
    """The announcements of one gateway. One thread owns the state; events of other threads are queued for it."""

    _fault = ""
    """Why observations are not known; empty: no problem."""
    _is_synced = False
    """Whether all retained messages of the broker are known."""
    _ready_at: float | None = None
    """Time from which on entities are announced; None: not before the messages of the broker are known."""
    _look_at = 0.0
    """Time of the next check of the rights, the mappings and the query files."""
    _settle_at: float | None = None
    """Time of the next announcements; None: nothing has changed."""

    def __init__(
        self,
        engine: Engine,
        connection: MqttSettings,
        settings: AnnounceSettings,
        place: Place,
        former: Sequence[Place] = (),
        *,
        on: bool = True,
        access: Callable[[], Access | None],
        settable: Callable[[Sequence[str]], Mapping[str, Settable]],
        mapper: Callable[[], object],
        queries_dir: Path,
        cleared: Callable[[], None] = lambda: None,
    ) -> None:
        """`former`: places of earlier settings, whose announcements are removed. `on`: False to remove all. `access`
        returns the present rights of the client whose rights count; None: none. It raises `EdgeError` while they cannot
        be read: then those known before stay. `settable` returns how values can be
        set; `mapper` an object that is another one after a change of that. `cleared`: called when only announcements of
        `place` are left, or none with `on` False.
        """
        self._engine = engine
        self._settings = settings
        self._place = place
        self._own = tuple(each for where in (place, *former) for each in where.own)
        self._on = on
        self._mapper = mapper
        self._directory = queries_dir
        self._cleared = cleared
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="edge-announce", daemon=True)
        self._deadline: float | None = None
        post, waiting = self._events.put, self._are_many_waiting
        self._outgoing = Outgoing(
            connection,
            settings.rate,
            place,
            former,
            serves=on,
            post=post,
            waiting=waiting,
            received=self._received,
            synced=self._synced,
        )
        self._commands = Commands(engine, post)
        self._queries = QueryResults(engine, post, waiting, self._query_changed)
        self._foreign = ForeignAnnouncements(place.prefix)
        self._groups = Groups(
            settings, place, EntityMaker(place), self._outgoing, self._commands, self._queries, self._foreign, settable
        )
        self._facts: Following | None = None
        self._rights = ClientRights(access)
        self._work_faults = WorkFaults()
        self._known_mapper: object = None
        self._known_facts = not on
        """Whether the observations of the graph are known: before, nothing that is retained can be outdated."""
        self._found: dict[str, None] = {}
        """Own retained topics that the broker has, and that were not announced in this run."""

    @property
    def fault(self) -> str:
        """Why nothing is announced, or not everything; empty: no problem."""
        return self._rights.unreadable or self._fault or self._work_faults.fault or self._outgoing.fault

    @property
    def alive(self) -> bool:
        """Whether its threads run."""
        return self._thread.is_alive() and self._outgoing.alive

    @property
    def connected(self) -> bool:
        """Whether the broker is connected."""
        return self._outgoing.connected

    @property
    def entities(self) -> int:
        """Announced entities."""
        return self._groups.entities

    @property
    def left_out(self) -> int:
        """Devices that are not announced completely, because there are too many entities."""
        return self._groups.left_out

    @property
    def published(self) -> int:
        """Messages that the broker acknowledged."""
        return self._outgoing.published

    def start(self) -> None:
        """Start the threads; retries forever if the broker is unreachable."""
        self._outgoing.start()
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Report that the gateway is offline, and disconnect, within `timeout` seconds. Announcements stay."""
        deadline = time.monotonic() + timeout

        def finish() -> None:
            self._deadline = deadline - timeout / 4  # the last quarter is for the end of the connection
            self._outgoing.goodbye()
            self._close()

        self._events.put(finish)
        if self._thread.is_alive():
            self._thread.join(timeout)
        self._outgoing.stop(max(0.1, deadline - time.monotonic()))

    # Everything below runs on the announcer's thread

    def _are_many_waiting(self) -> bool:
        return self._events.qsize() >= _MOST_WAITING

    def _run(self) -> None:
        if self._on:
            self._groups.announce_gateway()
        while not self._finished():
            now = time.monotonic()
            if self._work_faults.retry_at <= now:
                try:
                    self._work(now)
                except Exception as error:  # noqa: BLE001  a defect must not end the thread
                    self._work_faults.failed(error, time.monotonic())
                else:
                    self._work_faults.succeeded()
            self._take_event()

    def _take_event(self) -> None:
        """Wait for an event until the next scheduled work, and apply it."""
        try:
            event = self._events.get(timeout=self._pause())
        except queue.Empty:
            return
        try:
            event()
        except Exception as error:  # noqa: BLE001  a defect in one event must not end the thread
            self._work_faults.log(error)

    def _finished(self) -> bool:
        if self._deadline is None:
            return False
        return not self._outgoing.connected or not len(self._outgoing) or time.monotonic() >= self._deadline

    def _work(self, now: float) -> None:
        if self._on and self._deadline is None:
            if now >= self._look_at:
                self._look_at = now + _LOOK
                self._look()
            for following in self._followings():
                following.attempt(now)
            if self._settle_at is not None and now >= self._settle_at and self._is_ready(now):
                more = self._groups.settle(_TURN)
                self._settle_at = now if more else None
                if not more and self._known_facts:
                    self._outgoing.online()
                    self._remove_outdated()
        self._commands.send()
        self._outgoing.send()
        self._check_cleared()

    def _pause(self) -> float | None:
        """Return the seconds until the next scheduled work; None: wait for an event."""
        if not self._events.empty():
            return 0.0
        now = time.monotonic()
        ends = [self._outgoing.pause(now), None if self._deadline is None else self._deadline - now]
        if self._on and self._deadline is None:
            ends.append(self._look_at - now)
            if self._settle_at is not None and self._ready_at is not None:
                ends.append(max(self._settle_at, self._ready_at) - now)
            ends += [each.retry_at - now for each in self._followings() if each.retry_at is not None]
        left = [each for each in ends if each is not None]
        if self._work_faults.fault:
            left = [self._work_faults.retry_at - now]
            left += [] if self._deadline is None else [self._deadline - now]
        return max(0.0, min(left)) if left else None

    def _is_ready(self, now: float) -> bool:
        """Whether the messages that the broker has retained are known, or do not come."""
        if self._ready_at is None and self._outgoing.connected:
            self._ready_at = now + _PATIENCE
        return self._ready_at is not None and now >= self._ready_at

    def _followings(self) -> Iterable[Following]:
        return [*([] if self._facts is None else [self._facts]), *self._queries]

    def _close(self) -> None:
        for following in self._followings():
            following.close()

    def _look(self) -> None:
        """Follow changes of the rights, the mappings, and the query files."""
        self._rights.look()
        if self._rights.changed:
            self._follow(self._rights.present)
            self._rights.changed = False
        if not self._rights.known:
            return
        mapper = self._mapper()
        if mapper is not self._known_mapper:
            self._known_mapper = mapper
            self._groups.recheck()
            self._changed()
        found = read_queries(self._directory)
        if self._directory not in found.faults:
            self._queries.follow(found.queries, self._rights.present)

    def _follow(self, rights: Access | None) -> None:
        if self._facts is not None:
            self._facts.close()
        self._facts, self._fault = None, ""
        sets = rights is not None and "update" in rights.actions
        sets = sets and rights is not None and (rights.write is None or DEFAULT_GRAPH in rights.write)
        self._commands.access = rights if sets and self._settings.commands else None
        if rights is None:
            who = self._settings.client
            self._fault = (
                f'the client "{who}" (announce.client) is not known, or may not subscribe'
                if who
                else "security is on; set announce.client to the client whose rights decide what is announced"
            )
            _log.error("announce.no_rights", extra={"reason": self._fault})
            self._groups.reset()
            self._known_facts = True
            self._changed()
            return
        request = QueryRequest(facts.query(), access=rights, source=rights.client)
        self._facts = Following(
            self._engine, request, self._events.put, self._are_many_waiting, self._take, self._failed
        )

    def _failed(self, reason: str) -> None:
        if self._fault != reason:
            _log.error("announce.subscription_failed", extra={"reason": reason})
        self._fault = reason

    def _take(self, notification: SubscriberNotification) -> None:
        self._fault = ""
        if notification.sequence == 0:
            self._groups.reset()
            self._known_facts = True
        self._groups.apply(notification.delta, first=notification.sequence == 0)
        self._changed()

    def _query_changed(self, iri: str) -> None:
        self._groups.touch(iri)
        self._changed()

    def _changed(self) -> None:
        if self._settle_at is None:
            self._settle_at = time.monotonic() + _SETTLE

    # Messages

    def _received(self, topic: str, payload: bytes, retained: bool) -> None:
        if topic == self._place.online:
            # A retained one is older than this connection, for which everything was published again.
            if payload == b"online" and not retained:
                self._outgoing.repeat_soon(time.monotonic())
        elif self._foreign.is_one(topic) and not topic.startswith(self._own):
            changed = self._foreign.take(topic, payload)
            if changed and self._is_ready(time.monotonic()):
                self._groups.recheck_topics(changed)
                self._changed()
        elif retained:
            self._found_retained(topic)
        else:
            self._commands.take(topic, payload)

    def _found_retained(self, topic: str) -> None:
        """Note a message of the broker below the own topics. A retained command is neither of them."""
        if topic.endswith("/set") or topic in self._outgoing:
            return
        if topic == self._place.status and self._on:
            return
        announced = self._place.announced(topic)
        if announced is not None and self._on:
            self._groups.hint(*announced)
        self._found[topic] = None
        self._changed()

    def _synced(self) -> None:
        self._is_synced = True
        self._ready_at = 0.0
        self._changed()

    def _remove_outdated(self) -> None:
        """Remove retained messages that are not wanted any more, as soon as that is certain."""
        if not self._queries.known:
            return
        for topic in self._found:
            if topic not in self._outgoing:
                self._outgoing.clear(topic)
        self._found.clear()

    def _check_cleared(self) -> None:
        """Report that no message of earlier settings is left."""
        if self._on and self._deadline is not None:
            return  # the queue was dropped, and removals with it
        if not self._on:
            self._remove_outdated()
        if self._is_synced and not self._found and not len(self._outgoing):
            self._is_synced = False
            self._cleared()
