"""Log of messages below the gate's root that no component handles: each topic once."""

from __future__ import annotations

import logging
from typing import Final

from edge.gates.mqtt.topics import Topics

_MOST: Final = 100
"""Maximum number of logged topics."""
_LONGEST: Final = 200
"""Maximum length of a logged topic in characters."""

_log = logging.getLogger(__name__)


class UnhandledTopics:
    """Reports mistyped topics: their clients wait in vain, and only the operator can be informed. Thread-safe."""

    def __init__(self, root: str) -> None:
        self._topics = Topics(root)
        self._reported: set[str] = set()

    def check(self, topic: str) -> None:
        """Report the topic of a message below the root if it is not one of the gate's topics."""
        if not self._topics.includes(topic):
            self.report(topic, f"the topic of a request is {self._topics.request('NAME')}")

    def report(self, topic: str, reason: str) -> None:
        """Log an ignored message."""
        shown = topic[:_LONGEST]
        if shown in self._reported or len(self._reported) >= _MOST:
            return
        self._reported.add(shown)
        more = {} if len(self._reported) < _MOST else {"further_ones": "not logged"}
        _log.warning("mqtt_gate.ignored", extra={"topic": shown, "reason": reason, **more})
