"""An engine with rules, a clock under control, and observations whose values a test sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from edge.automation.rule import GRAPH, Rule
from edge.automation.rule_actions import EngineActions
from edge.automation.rule_file import read_rule
from edge.automation.rules import Rules
from edge.automation.settings import AutomationSettings
from edge.engine.clock import SimulatedClock
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from tests.support.waiting import PATIENCE, wait_for

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
PREFIXES = """\
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
"""


class RuleWorld:
    """An engine, and the rules that it has. `settle` waits until nothing is left to do."""

    def __init__(self, directory: Path | None, *rules: Rule, **settings: Any) -> None:
        self.directory = directory
        self.wanted = list(rules)
        self.names = {rule.name for rule in rules}
        self.settings = AutomationSettings(**settings)
        self.clock = SimulatedClock(START)
        self.events: deque[Callable[[], None]] = deque()
        self.begin()

    def begin(self) -> None:
        self.engine = open_engine(self.directory, EngineSettings(), clock=self.clock)
        self.rules = Rules(self.engine, EngineActions(self.engine), self.settings, self.clock, self.events.append)
        self.follow()

    def follow(self, *rules: Rule) -> None:
        """Replace the rules, if any are given."""
        if rules:
            self.wanted, self.names = list(rules), {rule.name for rule in rules}
        self.rules.follow(self.wanted, self.names)
        self.settle()

    def stop(self) -> None:
        assert self.engine.close()
        self.events.clear()

    def restart(self) -> None:
        self.stop()
        self.begin()

    def settle(self) -> None:
        quiet = 0

        def settled() -> bool:
            nonlocal quiet
            self.engine.on_writer(lambda: None).result(PATIENCE)
            quiet = 0 if self.events or self.engine.due_timers or self.engine.pending_evaluations else quiet + 1
            while self.events:
                self.events.popleft()()
            return quiet == 3  # the writer reads the clock between two of them

        wait_for(settled, "the engine")
        self.rules.tick()
        if self.events:
            self.settle()

    def advance(self, seconds: float) -> None:
        self.clock.at += int(seconds * SECOND)
        self.settle()

    def update(self, text: str) -> None:
        self.engine.update([UpdateRequest(text)]).result(PATIENCE)
        self.settle()

    def observe(self, name: str, value: Any) -> None:
        """Set the value of an observation, with the time."""
        self.update(observation(name, value, self.clock.at))

    def ask(self, select: str) -> list[str]:
        """Return the only column of a query as sorted texts."""
        found = self.engine.query(QueryRequest(select)).result(PATIENCE)
        assert isinstance(found, Solutions)
        return sorted(str(getattr(row[0], "value", row[0])) for row in found.rows)

    def active(self) -> list[str]:
        """The observations of the situations in the graph."""
        return self.ask(f"SELECT ?o {{ GRAPH <{GRAPH}> {{ ?s <urn:sepa-edge:about> ?o }} }}")

    def log(self, name: str) -> list[float]:
        """Seconds since the start at which updates of rules were carried out, as `logging` writes them."""
        times = self.ask(f"SELECT ?t {{ ?s <urn:{name}> ?t }}")
        return [(_seconds(text) - START / SECOND) for text in times]


def observation(name: str, value: Any, time: int = START) -> str:
    """The update that sets the value of an observation, with the time."""
    shown = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return (
        f"{PREFIXES}DELETE {{ ?r qudt:numericValue ?v . ?i time:inXSDDateTimeStamp ?t }} "
        f"INSERT {{ <urn:{name}> sosa:hasResult <urn:{name}/r> ; sosa:observedProperty <urn:p> . "
        f"<urn:{name}/r> qudt:numericValue {shown} ; time:hasTime <urn:{name}/i> . "
        f'<urn:{name}/i> time:inXSDDateTimeStamp "{time}" }} '
        f"WHERE {{ OPTIONAL {{ <urn:{name}> sosa:hasResult ?r . ?r qudt:numericValue ?v }} "
        f"OPTIONAL {{ <urn:{name}> sosa:hasResult ?r . ?r time:hasTime ?i . ?i time:inXSDDateTimeStamp ?t }} }}"
    )


def logging(name: str) -> str:
    """An update that notes its time."""
    return f"INSERT {{ ?observation <urn:{name}> ?t }} WHERE {{ BIND(NOW() AS ?t) }}"


def rule(text: str, name: str = "test") -> Rule:
    return read_rule(text, name)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
