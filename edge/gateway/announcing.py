"""Announcements to Home Assistant: starts and stops them, and removes those of earlier settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from edge.adapters.settings import MqttSettings
from edge.announce.places import FILE_NAME, load, store
from edge.announce.topics import Place, node_of
from edge.config import Settings
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.mappings import Mappings
from edge.gateway.watchdog import Component, Stalled
from edge.metrics import Metrics
from edge.protocol.access import Access

if TYPE_CHECKING:
    from edge.announce.announcer import Announcer


class Announcing:
    """The announcements, if they are on, or if those of an earlier start have to be removed."""

    def __init__(
        self,
        settings: Settings,
        engine: Scheduler,
        connection: MqttSettings,
        mappings: Mappings,
        rights: Callable[[str], Access | None],
    ) -> None:
        """`rights` returns the rights of a registered client; None: it is not registered. It raises `EdgeError` while
        they cannot be read.
        """
        self._settings = settings
        self._engine = engine
        self._connection = connection
        self._mappings = mappings
        self._rights = rights
        self._file = settings.data_dir / FILE_NAME
        place = Place(settings.discovery.prefix, settings.announce.root, node_of(connection.client_id))
        is_on = settings.announce.home_assistant
        places = load(self._file)
        self._own = ([place] if is_on else []) + [each for each in places if not is_on or each != place]
        self._announcer: Announcer | None = None
        if self._own:
            self._announcer = self._make(is_on)

    @property
    def own_topics(self) -> tuple[str, ...]:
        """Beginnings of the topics on which the gateway announces. They hold no readings."""
        return tuple(each for place in self._own for each in place.own)

    @property
    def fault(self) -> str:
        """Why nothing is announced; empty without a problem."""
        return "" if self._announcer is None else self._announcer.fault

    def start(self, stack: AsyncExitStack, metrics: Metrics, timeout: float) -> list[Component]:
        """Announce; `stack` stops it within `timeout` seconds."""
        announcer, watch = self._announcer, metrics.watch
        entities, sent = "Entities that the gateway has announced.", "Announcements and states that the broker took."
        left_out = "Devices with entities that are not announced."
        watch("home_assistant_entities", entities, lambda: announcer.entities if announcer else 0)
        watch("home_assistant_messages", sent, lambda: announcer.published if announcer else 0)
        watch("home_assistant_fault", "Whether announcements fail: 1 or 0.", lambda: bool(self.fault))
        watch("home_assistant_left_out", left_out, lambda: announcer.left_out if announcer else 0)
        if announcer is None:
            return []
        announcer.start()
        stack.push_async_callback(asyncio.to_thread, announcer.stop, timeout)
        return [Component("announcements", self._prove, ends=True)]

    async def _prove(self) -> None:
        if self._announcer is not None and not self._announcer.alive:
            raise Stalled("a thread of it has ended")

    def _make(self, is_on: bool) -> Announcer:
        # Imported here: without announcements, the gateway saves the memory and start-up time.
        from edge.announce.announcer import Announcer

        place, *former = self._own
        if is_on:
            store(self._file, self._own)  # before the first announcement, so that none can be left behind
        return Announcer(
            self._engine,
            self._connection,
            self._settings.announce,
            place,
            former,
            on=is_on,
            access=lambda: self._rights(self._settings.announce.client),
            settable=self._settable,
            mapper=lambda: self._mappings.files.mapper,
            queries_dir=self._settings.queries_dir,
            cleared=lambda: store(self._file, [place] if is_on else []),
        )

    def _settable(self, observations: Sequence[str]) -> Mapping[str, Mapping[str, object]]:
        return self._mappings.settable(observations)
