"""Messages below the root of the gate that nobody takes: each topic is told once, in the log."""

from __future__ import annotations

import logging
from typing import Final

from edge.gates.mqtt.topics import Topics

_MOST: Final = 100
"""Topics that are told."""
_LONGEST: Final = 200
"""Characters of a topic that are shown."""

_log = logging.getLogger(__name__)


class UnhandledTopics:
    """Who mistypes a topic waits for an answer in vain, and only the operator can be told. For use by any thread."""

    def __init__(self, root: str) -> None:
        self._topics = Topics(root)
        self._told: set[str] = set()

    def look(self, topic: str) -> None:
        """A message came on a topic below the root."""
        if not self._topics.are(topic):
            self.tell(topic, f"the topic of a request is {self._topics.request('NAME')}")

    def tell(self, topic: str, reason: str) -> None:
        """A message is ignored."""
        shown = topic[:_LONGEST]
        if shown in self._told or len(self._told) >= _MOST:
            return
        self._told.add(shown)
        more = {} if len(self._told) < _MOST else {"further_ones": "not told"}
        _log.warning("mqtt_gate.ignored", extra={"topic": shown, "reason": reason, **more})
