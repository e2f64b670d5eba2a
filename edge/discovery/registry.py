"""Announcements of devices over MQTT, and the mappings that they become. Stored, so that they apply after a restart."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from edge import durable
from edge.discovery.announcement import BadAnnouncement, clean, is_announcement, read_announcement
from edge.discovery.announcement_store import Limits, StoredAnnouncement, StoredAnnouncements
from edge.discovery.mappings import AnnouncementCompiler, Availability, CompiledAnnouncement
from edge.mapping.errors import listed_fault
from edge.mapping.fault_reasons import because, reason_of
from edge.mapping.pack import MappingPack
from edge.mapping.rules import CompiledMapping
from edge.mapping.settings import MappingLimits

_log = logging.getLogger(__name__)

_NAME: Final = "discovery"
_SHARE: Final = 0.2
"""Share of the time that the connection may spend on announcements, after a burst of `_BURST` seconds."""
_BURST: Final = 5.0
_TURN: Final = 0.1
"""Seconds of announcements after which messages of others have their turn."""
_PAUSE: Final = 0.2
"""Seconds from one declaration of observations to the next, and from one look at waiting announcements to the next."""
_OVERHEAD: Final = 200
"""Bytes of memory of a waiting announcement besides its topic and payload."""
_RETRY: Final = 30.0
"""Seconds to the next attempt to store announcements after a failure."""
_SHOWN: Final = 3
"""Faults of an announcement that are logged and listed."""
_MOST_NOTED: Final = 200
"""Kinds of doubtful parts that are logged, each once."""
_MOST_REFUSED: Final = 100
"""Refused announcements that are listed."""


class HomeAssistantDiscovery:
    """Announcements by their topics. `take` and `apply` belong to the thread of the connection, which they do not
    block: another thread declares observations and stores the announcements.
    """

    def __init__(
        self,
        settings: Limits,
        limits: MappingLimits,
        file: Path,
        *,
        announce: Callable[[Sequence[MappingPack]], None],
        declare: Callable[[], None],
        own_topics: tuple[str, ...] = (),
        sends_on: Callable[[str], bool] = lambda _: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`announce` receives the mappings, which apply to the next message; `declare` adds their observations to the
        graph, and may block. `own_topics`: beginnings of topics of the gateway. `sends_on`: whether an actuator of the
        gateway sends messages with a topic: then it has made the announcement itself, for others.
        """
        self.prefix = f"{settings.prefix}/"
        self._settings = settings
        self._file = file
        self._announce = announce
        self._declare = declare
        self._sends_on = sends_on
        self._clock = clock
        self._compiler = AnnouncementCompiler(
            limits, commands=settings.commands, own_topics=own_topics, prefix=self.prefix
        )
        self._lock = threading.Lock()
        """Guards all attributes below but the next ones."""
        self._pending: deque[tuple[str, bytes]] = deque()
        self._waiting = 0
        """Bytes of memory of them."""
        self._dropping = False
        """Whether announcements were dropped since none waited."""
        self._taking = threading.Lock()
        """Guards these three for a moment."""
        self._stored: StoredAnnouncements = StoredAnnouncements(settings)
        self._faults: dict[str, tuple[str, ...]] = {}
        self._kept: set[str] = set()
        """Topics whose last announcement was faulty, so that an earlier one applies."""
        self._problems: dict[str, tuple[str, ...]] = {}
        """Those that several announcements have together, by topic."""
        self._availability: dict[tuple[Availability, frozenset[str]], tuple[CompiledMapping | None, list[str]]] = {}
        self._noted: set[str] = set()
        self._budget = _BURST
        self._budgeted = clock()
        self._unstored = False
        """Whether announcements have changed since they were stored."""
        self._undeclared = False
        """Whether they have changed since their observations were declared."""
        self._store_at = -math.inf
        """Earliest time to store, after a failure; before the first one, and after a success, it is past."""
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edge-discovery", daemon=True)
        self._restore()

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    @property
    def entities(self) -> int:
        """Announced entities."""
        return self._stored.entities

    @property
    def stored(self) -> int:
        """Stored announcements."""
        return len(self._stored)

    @property
    def waiting(self) -> int:
        """Announcements that are not yet applied."""
        return len(self._pending)

    def start(self) -> None:
        """Start the thread that declares and stores."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """Store what has changed, and stop."""
        self._stopping.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def faults(self) -> list[dict[str, object]]:
        """Announcements, or parts of them, that cannot be used: as `MappingFiles.faults`, with the topic as `file`."""
        # Without the lock, which is held while announcements are read: the event loop calls this.
        found = [*list(self._faults.items()), *self._problems.items()]
        return [listed_fault(topic, reason, kept=topic in self._kept) for topic, reasons in found for reason in reasons]

    def take(self, topic: str, payload: bytes) -> bool:
        """Note a message. False: it is not an announcement."""
        if not is_announcement(topic, self.prefix):
            return False
        # Of a payload that is too long, its length is enough for the fault.
        payload = payload[: self._settings.max_announcement + 1]
        with self._taking:
            size = len(topic) + len(payload) + _OVERHEAD
            dropped = bool(self._pending) and self._waiting + size > self._settings.max_bytes
            first = dropped and not self._dropping
            if dropped:  # a flood, of which no device needs all
                self._dropping = True
            else:
                self._waiting += size
                self._pending.append((topic, payload))
        if first:
            remedy = "let the device announce again; if too many devices announce at once, raise discovery.max_bytes"
            _log.warning("discovery.dropped", extra={"topic": topic, "remedy": remedy})
        return True

    def apply(self) -> None:
        """Apply what was taken: the mappings are those of the next message."""
        if not self._pending:
            return
        with self._lock:
            began = self._clock()
            self._budget = min(_BURST, self._budget + _SHARE * (began - self._budgeted))
            self._budgeted = began
            # A device that announces without end must not stop the readings of others.
            if self._budget > 0:
                self._apply_pending(began + _TURN)
                self._budget -= self._clock() - began
            if self._pending:
                self._changed.set()

    def _apply_pending(self, until: float) -> None:
        changed = False
        while (taken := self._next()) is not None:
            changed |= self._put(*taken)
            if self._clock() > until:
                break
        if changed:
            self._replace()
            self._unstored = self._undeclared = True
            self._changed.set()

    def _replace(self) -> None:
        try:
            self._announce([self._pack()])
        except Exception:  # noqa: BLE001  a defect must not end the thread; the previous mappings apply
            _log.exception("discovery.failed")

    def _next(self) -> tuple[str, bytes] | None:
        with self._taking:
            if not self._pending:
                self._dropping = False
                return None
            topic, payload = self._pending.popleft()
            self._waiting -= len(topic) + len(payload) + _OVERHEAD
            return topic, payload

    def _put(self, topic: str, payload: bytes) -> bool:
        """Add, replace or remove an announcement. Returns whether mappings have changed."""
        known = self._stored.get(topic)
        if not payload:
            return self._remove(topic)
        if known is not None and known.text.encode() == payload:
            if topic in self._kept:  # its faulty successor is gone
                self._kept.discard(topic)
                self._report(topic, known.compiled.faults)
            return False
        try:
            if known is None:
                self._stored.check_room()  # before it is read, which takes time
            found = self._read(topic, payload)
        except BadAnnouncement as error:
            if known is not None:
                self._kept.add(topic)
            self._report(topic, (reason_of(error),))
            return False
        if self._is_own(found.compiled):
            return self._remove(topic)
        if not found.compiled.entities:  # as an empty one: limits of entities do not bound the number of these
            removed = self._remove(topic)
            self._report(topic, found.compiled.faults)
            return removed
        self._kept.discard(topic)
        self._stored.put(topic, found)
        self._report(topic, found.compiled.faults)
        for note in found.compiled.notes:
            # One unit that is not known can be that of many devices.
            if note not in self._noted and len(self._noted) < _MOST_NOTED:
                self._noted.add(note)
                _log.warning("discovery.doubtful", extra={"topic": topic, "reason": note})
        return True

    def _remove(self, topic: str) -> bool:
        """Remove an announcement with its faults. Returns whether there was one."""
        self._kept.discard(topic)
        self._faults.pop(topic, None)
        return self._stored.remove(topic)

    def _is_own(self, compiled: CompiledAnnouncement) -> bool:
        """Whether the gateway itself sends all values of an announcement."""
        topics = [mapping.topic.exact for mapping in compiled.mappings]
        return bool(topics) and all(topic is not None and self._sends_on(topic) for topic in topics)

    def _read(self, topic: str, payload: bytes) -> StoredAnnouncement:
        limits = self._settings
        if len(payload) > limits.max_announcement:
            raise BadAnnouncement(because("announcement_bytes", limit=limits.max_announcement))
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            raise BadAnnouncement(because("payload_not_text")) from None
        announcement = read_announcement(topic, self.prefix, text)
        self._stored.check_device(len(announcement.entities))
        try:
            compiled = self._compiler.compile(announcement)
        except Exception as error:
            # As in `_replace`; and this announcement comes again.
            _log.exception("discovery.failed", extra={"topic": topic})
            raise BadAnnouncement(f"it cannot be read: {type(error).__name__}") from error
        found = StoredAnnouncement(text, len(topic) + len(payload), compiled)
        self._stored.check(topic, found)
        return found

    def _report(self, topic: str, faults: Sequence[str]) -> None:
        """List the faults of an announcement, and log them if they are new."""
        shown = tuple(faults[:_SHOWN])
        if len(faults) > _SHOWN:
            shown += (because("further_problems", count=len(faults) - _SHOWN),)
        if not shown:
            self._faults.pop(topic, None)
        elif self._faults.get(topic) != shown:
            self._faults[topic] = shown
            _log.warning("discovery.unusable", extra={"topic": clean(topic), "reason": "; ".join(shown)})
            refused = [each for each in self._faults if each not in self._stored]
            if len(refused) > _MOST_REFUSED:
                self._faults.pop(refused[0])

    def _pack(self) -> MappingPack:
        """Return all mappings. Of several for one observation, the first applies."""
        owners: dict[str, str] = {}
        mappings: list[CompiledMapping] = []
        problems: dict[str, tuple[str, ...]] = {}
        topics: dict[Availability, set[str]] = {}
        for topic, stored in self._stored.items():
            for mapping in stored.compiled.mappings:
                observation = _observation(mapping)
                if observation not in owners:
                    owners[observation] = topic
                    mappings.append(mapping)
                else:
                    before = because("announced_before", name=owners[observation], observation=observation)
                    problems[topic] = (before,)
            for each, device in stored.compiled.availability:
                topics.setdefault(each, set()).add(device)
        first = {each.topic: each for each in reversed(topics)}  # of several for one topic
        named = [(each, frozenset(devices - {""})) for each, devices in topics.items() if first[each.topic] is each]
        keys = [(each, devices if len(devices) == 1 else frozenset()) for each, devices in named]
        self._availability = {key: self._available(key) for key in keys}
        for (each, _), (found, faults) in self._availability.items():
            mappings += [found] if found is not None else []
            if faults:
                problems[clean(each.topic)] = tuple(faults)
        self._problems = problems
        return MappingPack(_NAME, tuple(mappings), own=False)

    def _available(self, key: tuple[Availability, frozenset[str]]) -> tuple[CompiledMapping | None, list[str]]:
        """Return the mapping of an availability topic, and its faults. `key`: with the only device, or none."""
        known = self._availability.get(key)
        if known is not None:
            return known
        topic = clean(key[0].topic)
        try:
            found, faults = self._compiler.availability(*key)
        except Exception as error:  # noqa: BLE001
            # As in `_replace`; the topic is that of one device, and others have theirs.
            _log.exception("discovery.failed", extra={"topic": topic})
            found, faults = None, [f"availability: it cannot be read: {type(error).__name__}"]
        for fault in faults:
            _log.warning("discovery.unusable", extra={"topic": topic, "reason": fault})
        return found, faults

    # The thread that declares and stores

    def _run(self) -> None:
        due = 0.0
        while not self._stopping.is_set():
            waits = [
                at - time.monotonic()
                for at, what in ((due, self._undeclared), (self._store_at, self._unstored))
                if what
            ]
            self._changed.wait(max(0.0, min(waits)) if waits else None)
            self._changed.clear()
            self.apply()
            # At once: a broker may not deliver an announcement again.
            if time.monotonic() >= self._store_at:
                self._store_changes()
            if self._undeclared and time.monotonic() >= due:
                self._undeclared, began = False, time.monotonic()
                self._declare()
                # The engine has other work than a device that changes its announcements all the time.
                due = time.monotonic() + max(_PAUSE, (time.monotonic() - began) / _SHARE)
            if self._pending:  # they wait for their share of the time
                self._stopping.wait(_PAUSE)
        with self._lock:  # the broker does not deliver them again
            self._apply_pending(math.inf)
        self._store_changes()

    def _store_changes(self) -> None:
        """Store the announcements if they have changed."""
        if not self._unstored:
            return
        self._unstored, began = False, time.monotonic()
        self._store()
        self._stopping.wait((time.monotonic() - began) / _SHARE)

    def _store(self) -> None:
        with self._lock:
            announcements = {topic: stored.text for topic, stored in self._stored.items()}
        content = json.dumps({"announcements": announcements}, ensure_ascii=False).encode()
        try:
            durable.write(self._file, content)
        except OSError as error:
            if self._store_at == -math.inf:
                remedy = f"free space, or permit the gateway to write there; it tries again every {_RETRY:.0f} seconds"
                facts = {"file": str(self._file), "reason": str(error), "remedy": remedy}
                _log.error("discovery.not_stored", extra=facts)
            self._unstored, self._store_at = True, time.monotonic() + _RETRY
        else:
            self._store_at = -math.inf

    def _restore(self) -> None:
        try:
            document = json.loads(self._file.read_bytes())
            announcements = document["announcements"].items()
        except FileNotFoundError:
            return
        except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
            _log.error("discovery.unreadable", extra={"file": str(self._file), "reason": str(error)})
            return
        for topic, text in announcements:
            if isinstance(text, str) and is_announcement(topic, self.prefix):
                self._put(topic, text.encode())
        if self._stored:
            self._replace()


def _observation(mapping: CompiledMapping) -> str:
    terms = mapping.rules[0].terms
    return (terms.observation.constant or "") if terms is not None else ""
