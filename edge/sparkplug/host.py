"""Host application: turns the messages of edge nodes into births, values and requests for rebirths.

It has no connection and no clock: the caller passes messages and times, and sends what `due` returns.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

from edge.discovery.announcement import clean, is_plain
from edge.mapping.errors import listed_fault
from edge.mapping.fault_reasons import reason_of
from edge.mapping.settings import MappingLimits
from edge.sparkplug.births import NAMESPACE, Births, Source, is_of_protocol
from edge.sparkplug.datatypes import DATATYPES, BadMetric, value_of
from edge.sparkplug.edge_node import EdgeNode, Message
from edge.sparkplug.payload import BOOLEAN, BadPayload, Metric, Payload, decode, encode
from edge.sparkplug.settings import SparkplugSettings

_log = logging.getLogger(__name__)

_KINDS: Final = {"NBIRTH": 4, "NDATA": 4, "NDEATH": 4, "DBIRTH": 5, "DDATA": 5, "DDEATH": 5}
"""Levels of the topics of edge nodes, by the third level."""
_LONGEST_NAME: Final = 200
_LONGEST_INTERVAL: Final = 300.0
"""Longest seconds between two requests for a rebirth."""
_QUIET: Final = 4
"""Intervals without a request after which the next interval is the shortest one."""
_SPACING: Final = 0.05
"""Seconds between two requests to different nodes."""
_MOST_VALUES: Final = 500
"""Metrics of a document for the mappings."""
_MOST_BYTES: Final = 65_536
"""Bytes of its texts, after which a new document begins."""
_MOST_REFUSED: Final = 100
"""Devices of a node whose births are refused. Beyond them, the values of any device that is not born are ignored."""
_REBIRTH: Final = "Node Control/Rebirth"

NodeKey = tuple[str, str]
"""Group and name of an edge node."""


class Values(NamedTuple):
    """A document for the mappings."""

    topic: str
    payload: bytes
    historical: bool
    """Whether the values are past ones, which the node sends late."""


@dataclass(slots=True)
class _Node:
    """An edge node, and the times of requests for its rebirth."""

    state: EdgeNode = field(default_factory=EdgeNode)
    interval: float = 0.0
    """Seconds from the last request to the next one."""
    asked: float | None = None
    """Time of the last request."""
    ask_at: float | None = None
    """Time of the next request; None: none is necessary."""
    check_at: float | None = None
    """Time at which devices that are not born until then count as not available. It passes after `ask_at`."""
    awaited: bool = False
    """Whether a request for a rebirth was sent, and neither a birth nor a death has come since."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why the birth of a device, or of the node (""), cannot be used. A rebirth would be the same one."""


class SparkplugHost:
    """All edge nodes. Not thread-safe, except for `faults`, `refused`, `nodes` and `available`."""

    def __init__(
        self,
        settings: SparkplugSettings,
        limits: MappingLimits,
        *,
        emit: Callable[[Values, datetime], bool],
        refuse: Callable[[str, str, bytes, datetime], None],
        born: Callable[[Source], None],
    ) -> None:
        """`emit` passes a document on to the mappings; False: there is no room. `refuse` receives the topic of a value
        or message that cannot be used, the reason, the payload and its time. `born` is called after each birth.
        """
        self._settings = settings
        self._emit = emit
        self._refuse = refuse
        self._born = born
        self.births = Births(limits, writable=settings.writable, store=settings.store, most=settings.max_metrics)
        self._nodes: dict[NodeKey, _Node] = {}
        self._now = 0.0
        self._free = 0.0
        """Time before which no request for a rebirth is sent."""
        self.available: dict[Source, bool] = {}
        """Whether nodes and devices are available, as far as that is known."""
        self.changed = False
        """Whether births have changed since the caller has cleared this."""
        self.replaced = False
        """Whether one of them replaces another birth, to which waiting documents belong."""
        self.rebirths = 0
        """Requests for a rebirth."""

    @property
    def nodes(self) -> int:
        """Number of known edge nodes."""
        return len(self._nodes)

    def restore(self, dumped: Iterable[object], now: float) -> None:
        """Take the births of an earlier run. Their nodes are asked for new ones, because aliases may have changed."""
        found: set[NodeKey] = set()

        def takes(source: Source) -> bool:
            key = (source.group, source.node)
            if self._settings.groups and source.group not in self._settings.groups:
                return False
            if key not in found and len(found) >= self._settings.max_nodes:
                return False
            found.add(key)
            return True

        self.births.restore(dumped, takes)
        for source in self.births.known:
            self._nodes.setdefault((source.group, source.node), _Node())
        self.changed = bool(self.births.known)
        self.lose(now)

    def lose(self, now: float) -> None:
        """Note that messages of all nodes may be lost, as after a connection has ended."""
        for node in self._nodes.values():
            node.state.forget_birth()
            self._ask(node, now)

    def take(self, topic: str, payload: bytes, received: datetime, now: float, *, retained: bool = False) -> None:
        """Process a message. `now`: seconds of a monotonic clock."""
        levels = topic.split("/")
        if len(levels) < 4 or levels[0] != NAMESPACE or _KINDS.get(levels[2]) != len(levels):
            return
        self._now = now
        if retained:
            self._refuse(topic, "it is retained, so it can be old; no message of Sparkplug is", payload, received)
            return
        source = Source(levels[1], levels[3], levels[4] if len(levels) == 5 else "")
        try:
            self._check(levels, payload)
            node = self._node(source)
            message = Message(levels[2][1:], source.device, decode(payload))
        except (BadPayload, BadMetric) as error:
            self._refuse(topic, str(error), payload, received)
            known = self._nodes.get((source.group, source.node))
            if known is not None and known.state.born:  # the sequence has a gap now
                known.state.forget_birth()
                self._ask(known, now)
            return
        ready, reason = node.state.take(message, now)
        for each in ready:
            reason = self._process(node, Source(source.group, source.node, each.device), each, received, now) or reason
        if reason:
            self._request(source, node, reason, now)

    def tick(self, now: float, received: datetime, *, connected: bool = True) -> None:
        """Act on messages and devices that are missing for too long. `received`: the time of their values.

        `connected`: whether the requests of `due` are sent.
        """
        self._now = now
        for (group, name), node in self._nodes.items():
            reason = node.state.overdue(now, self._settings.reorder_timeout)
            if reason:
                self._request(Source(group, name), node, reason, now)
            # A node that is about to be asked has its time to answer after that.
            if node.check_at is not None and now >= node.check_at and (node.ask_at is None or not connected):
                node.check_at = None
                for source in self._of_node(group, name):
                    present = node.state.born and (not source.device or source.device in node.state.devices)
                    self._mark(source, received, present=present)
                if node.awaited and not node.state.born:
                    self._ask(node, now)  # the request or its answer can be lost

    def due(self, now: float) -> Iterator[str]:
        """Yield the topics of requests for a rebirth that are to be sent now."""
        for (group, name), node in self._nodes.items():
            if now < self._free:
                return
            if node.ask_at is not None and now >= node.ask_at:
                # Also if each request is answered: the births of a faulty node may lack something each time.
                again = node.asked is not None and now - node.asked < _QUIET * node.interval
                longer = min(_LONGEST_INTERVAL, 2 * node.interval) if again else 0.0
                node.interval = max(self._settings.rebirth_interval, longer)
                node.ask_at, node.asked, node.awaited = None, now, True
                if not node.state.born:
                    node.check_at = now + self._settings.reorder_timeout
                self._free = now + _SPACING
                self.rebirths += 1
                yield Source(group, name).command_topic

    def pause(self, now: float) -> float:
        """Return the seconds until `tick` or `due` has something to do."""
        times = [max(self._free, node.ask_at) for node in self._nodes.values() if node.ask_at is not None]
        for node in self._nodes.values():
            if node.check_at is not None and node.ask_at is None:
                times.append(node.check_at)
            if node.state.held:
                times.append(node.state.held_since + self._settings.reorder_timeout)
        return max(0.0, min(times, default=now + 60.0) - now)

    def refused(self) -> dict[Source, str]:
        """Return why the last births of some nodes and devices cannot be used."""
        return {
            Source(group, name, device): reason
            for (group, name), node in list(self._nodes.items())
            for device, reason in node.refused.copy().items()
        }

    def faults(self) -> list[dict[str, object]]:
        """Births, and parts of them, that cannot be used: as `MappingFiles.faults`."""
        refused = [
            listed_fault(source.path, reason, begin="its birth cannot be used: ")
            for source, reason in self.refused().items()
        ]
        return [*refused, *self.births.faults()]

    def is_born(self, source: Source) -> bool:
        """Whether a node or device is born, and no message of it is missing."""
        node = self._nodes.get((source.group, source.node))
        return node is not None and node.state.born and source.device in node.state.devices

    def alias_of(self, source: Source, metric: str) -> int | None:
        """Return the alias of a metric; None: it has none."""
        node = self._nodes.get((source.group, source.node))
        return None if node is None else node.state.names.get((source.device, metric))

    def _check(self, levels: list[str], payload: bytes) -> None:
        """Raise `BadMetric` if a message cannot be used."""
        if any(not 0 < len(level) <= _LONGEST_NAME or not is_plain(level) for level in levels):
            raise BadMetric(f"an identifier has 1 to {_LONGEST_NAME} characters, without control characters")
        if any(level in (".", "..") for level in levels):
            raise BadMetric("an identifier is a dot or two, which cannot be a part of an IRI")
        if len(payload) > self._settings.max_payload:
            raise BadMetric(f"the payload has {len(payload)} bytes; sparkplug.max_payload is smaller")

    def _node(self, source: Source) -> _Node:
        """Return the state of a node, which is new if necessary. Raises `BadMetric` if there are too many."""
        key = (source.group, source.node)
        node = self._nodes.get(key)
        if node is not None:
            return node
        if len(self._nodes) >= self._settings.max_nodes:
            unborn = [key for key, each in self._nodes.items() if not each.state.born]
            gone = min(unborn, key=lambda each: Source(*each) in self.births.known, default=None)
            if gone is None:
                raise BadMetric(f"there are {self._settings.max_nodes} edge nodes already (sparkplug.max_nodes)")
            self._forget(*gone)
        node = self._nodes[key] = _Node()
        return node

    def _forget(self, group: str, name: str) -> None:
        for source in self._of_node(group, name):
            self.available.pop(source, None)
            self.changed = True
        self.births.forget(group, name)
        del self._nodes[group, name]

    def _of_node(self, group: str, name: str) -> list[Source]:
        return [each for each in self.births.known if (each.group, each.node) == (group, name)]

    def _process(self, node: _Node, source: Source, message: Message, received: datetime, now: float) -> str:
        """Process a message in its turn. Returns why a rebirth is necessary; empty: it is not."""
        if message.kind == "BIRTH":
            return self._birth(node, source, message.payload, received, now)
        if message.kind == "DEATH":
            node.state.devices.discard(source.device)
            gone = [source] if source.device else self._of_node(source.group, source.node)
            for each in gone:
                self._mark(each, received, present=False)
            if not source.device:
                node.ask_at = node.check_at = None
                node.awaited = False
            return ""
        if source.device not in node.state.devices:
            if source.device in node.refused or len(node.refused) >= _MOST_REFUSED:
                return ""
            return f"values came before the birth of {clean(source.path)}"
        return self._values(node, source, message.payload, received)

    def _birth(self, node: _Node, source: Source, payload: Payload, received: datetime, now: float) -> str:
        if not source.device:
            node.ask_at = None
            node.check_at = now + self._settings.reorder_timeout
            node.awaited = False
            node.refused.clear()
        known = self.births.known.get(source)
        try:
            if self.births.put(source, payload.metrics):
                self.changed = True
                self.replaced = self.replaced or known is not None
        except BadMetric as error:
            node.state.end_device(source.device)
            if len(node.refused) < _MOST_REFUSED:
                node.refused[source.device] = reason_of(error)
            self._refuse(source.data_topic, f"its birth cannot be used: {error}", b"", received)
            self._mark(source, received, present=False)
            return ""
        node.refused.pop(source.device, None)
        reasons = self.births.known[source].faults
        if reasons and (known is None or known.faults != reasons):
            _log.warning("sparkplug.unusable", extra={"node": source.path, "reason": "; ".join(reasons)})
        faults = node.state.begin_device(source.device, payload.metrics)
        for fault in faults:
            self._refuse(source.data_topic, f"its birth: {fault}", b"", received)
        self._mark(source, received, present=True)
        self._born(source)
        return self._values(node, source, payload, received)

    def _values(self, node: _Node, source: Source, payload: Payload, received: datetime) -> str:
        """Pass the values of a message on. Returns why a rebirth is necessary; empty: it is not."""
        birth = self.births.known.get(source)
        if birth is None:
            return ""
        unknown = ""
        current, late = _Documents(source.data_topic, historical=False), _Documents(source.data_topic, historical=True)
        for metric in payload.metrics:
            name = node.state.name_of(source.device, metric)
            definition = None if name is None else birth.metrics.get(name)
            if name in birth.skipped or is_of_protocol(name):
                continue
            if name is None or definition is None:
                unknown = f"{clean(source.path)}: the birth lacks {clean(name) or f'the alias {metric.alias}'}"
                continue
            try:
                value = value_of(metric, DATATYPES[definition.datatype])
            except BadMetric as error:
                self._refuse(source.data_topic, f"{clean(name)}: {error}", b"", received)
                continue
            time = payload.timestamp if metric.timestamp is None else metric.timestamp
            (late if metric.historical else current).add(name, value, time)
        # The late ones are older.
        sent = [self._emit(each, received) for documents in (late, current) for each in documents.finish()]
        if not all(sent):
            node.state.forget_birth()
            return "the gateway has no room for its values"
        return unknown

    def _mark(self, source: Source, received: datetime, *, present: bool) -> None:
        if self.available.get(source) is not present and source in self.births.known:
            document = json.dumps({"available": present}).encode()
            if self._emit(Values(source.data_topic, document, historical=False), received):
                self.available[source] = present
            elif (node := self._nodes.get((source.group, source.node))) is not None:
                node.check_at = self._now + self._settings.reorder_timeout

    def _request(self, source: Source, node: _Node, reason: str, now: float) -> None:
        if node.ask_at is None:
            _log.info("sparkplug.rebirth", extra={"node": f"{source.group}/{source.node}", "reason": reason})
        self._ask(node, now)

    def _ask(self, node: _Node, now: float) -> None:
        """Plan a request for a rebirth, no sooner than the interval allows."""
        if node.ask_at is None:
            interval = max(node.interval, self._settings.rebirth_interval)
            node.ask_at = now if node.asked is None else max(now, node.asked + interval)
        if not node.state.born and node.check_at is None:
            node.check_at = now + self._settings.reorder_timeout


class _Documents:
    """Values of a message as documents: an object has each metric once, and a message may have several values of it."""

    def __init__(self, topic: str, *, historical: bool) -> None:
        self._topic = topic
        self._historical = historical
        self._metrics: dict[str, dict[str, object]] = {}
        self._size = 0
        self._done: list[Values] = []

    def add(self, name: str, value: object, time: int | None) -> None:
        """Add a value. `time`: milliseconds since 1970."""
        if name in self._metrics or len(self._metrics) >= _MOST_VALUES or self._size > _MOST_BYTES:
            self._end()
        self._metrics[name] = {"value": value} if time is None else {"value": value, "timestamp": time}
        self._size += len(name) + (len(value) if isinstance(value, str) else 0)

    def finish(self) -> list[Values]:
        """Return the documents."""
        if self._metrics:
            self._end()
        return self._done

    def _end(self) -> None:
        payload = json.dumps({"metrics": self._metrics}, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self._done.append(Values(self._topic, payload, self._historical))
        self._metrics, self._size = {}, 0


def rebirth(timestamp: int) -> bytes:
    """Return the payload of a request for a rebirth. `timestamp`: milliseconds since 1970."""
    return encode(timestamp, Metric(name=_REBIRTH, datatype=11, field=BOOLEAN, value=True))
