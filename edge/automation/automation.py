"""All rules of the gateway: follows their files, on one thread."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from edge.automation.rule import Rule
from edge.automation.rule_actions import EngineActions
from edge.automation.rule_files import RuleFiles
from edge.automation.rules import RuleEngine, Rules, RuleState
from edge.automation.settings import AutomationSettings
from edge.engine.clock import Clock
from edge.protocol.errors import EdgeError, RequestTimeout

_log = logging.getLogger(__name__)

_MOST_QUEUED: Final = 10_000
"""Notifications that may wait."""
_SECOND: Final = 1_000_000


class Automation:
    """The rules. One thread owns them; `look`, `known`, `states` and `faults` may be called from any thread."""

    def __init__(self, engine: RuleEngine, settings: AutomationSettings, directory: Path, clock: Clock) -> None:
        self._interval = int(settings.reload_interval * _SECOND)
        self._clock = clock
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._rules = Rules(
            engine,
            EngineActions(engine),
            settings,
            clock,
            self._events.put,
            crowded=lambda: self._events.qsize() >= _MOST_QUEUED,
        )
        self._files = RuleFiles(directory)
        self._unfollowed = True
        """Whether the rules could not be applied and have to be applied again."""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="edge-automation", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, which reads the rules."""
        self._thread.start()

    def stop(self, timeout: float = 3.0) -> None:
        """End all subscriptions. Delayed updates go on."""
        self._stopping = True
        self._events.put(lambda: None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def look(self, timeout: float = 30.0) -> None:
        """Read changed files now. Returns when the rules apply. Raises `EdgeError`."""
        done: Future[None] = Future()

        def look() -> None:
            try:
                self._look()
            except Exception as error:
                done.set_exception(
                    error
                    if isinstance(error, EdgeError)
                    else EdgeError("The rules could not be applied; the log has the reason")
                )
                raise
            done.set_result(None)

        self._events.put(look)
        try:
            done.result(timeout)
        except TimeoutError:
            raise RequestTimeout("The change is stored, and applies when the engine has time for it") from None

    @property
    def known(self) -> Mapping[str, Rule]:
        """The rules that could be read, by name."""
        return {rule.name: rule for rule in self._files.rules}

    def states(self) -> Mapping[str, RuleState]:
        """Return the states of the rules that apply, by name."""
        return self._rules.states()

    def faults(self) -> list[dict[str, object]]:
        """Rules that cannot be used: `file` and `reason`."""
        files: list[dict[str, object]] = [
            {"file": str(path), "reason": reason} for path, reason in self._files.faults.items()
        ]
        return files + [
            {"file": str(self._files.path(name)), "reason": state.stopped}
            for name, state in self.states().items()
            if state.stopped
        ]

    # Everything below runs on the thread

    def _run(self) -> None:
        look_at = self._clock.steady()
        while not self._stopping:
            try:
                if self._clock.steady() >= look_at:
                    look_at = self._clock.steady() + self._interval
                    self._look()
                self._rules.tick()
                wait = (look_at - self._clock.steady()) / _SECOND
                sooner = self._rules.wait()
                self._events.get(timeout=max(0.0, wait if sooner is None else min(wait, sooner)))()
            except queue.Empty:
                continue
            except EdgeError as error:
                _log.warning("automation.interrupted", extra={"reason": error.description})
            except Exception:  # noqa: BLE001  a defect in one event must not end the thread
                _log.exception("automation.fault")
        self._rules.close()

    def _look(self) -> None:
        """Follow the files."""
        changed = self._files.read()
        if changed or self._unfollowed or not self._rules.follows:
            self._unfollowed = True
            self._rules.follow(self._files.rules, self._files.names - self._files.disabled)
            self._unfollowed = False
