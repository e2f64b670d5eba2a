"""Dry run of a rule: the recent values of observations are played through a copy of the graph, with a clock of its own.

The rule runs on a real engine, by the code that runs it live. Only its time is simulated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple

import pyoxigraph as ox

from edge.automation.rule import GRAPH, Rule, Solution
from edge.automation.rule_actions import EngineActions
from edge.automation.runner import SituationListener
from edge.automation.settings import AutomationSettings
from edge.automation.simulation import SimulatedRule
from edge.engine.clock import SimulatedClock
from edge.engine.requests import UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.graph import LiveGraph
from edge.protocol.errors import ResultTooLarge
from edge.protocol.results import Term

MOST_QUADS: Final = 200_000
"""Quads of the largest graph of which a copy is made: some seconds."""
_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_PREFIXES: Final = """\
PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
"""
_VALUE: Final = """\
DELETE { ?result qudt:numericValue ?old . ?instant time:inXSDDateTimeStamp ?oldTime }
INSERT { ?result qudt:numericValue ?value . ?instant time:inXSDDateTimeStamp ?time }
WHERE {
  ?observation sosa:hasResult ?result .
  OPTIONAL { ?result qudt:numericValue ?old }
  OPTIONAL { ?result time:hasTime ?instant . ?instant time:inXSDDateTimeStamp ?oldTime }
}"""
_HAS_RESULT: Final = ox.NamedNode("http://www.w3.org/ns/sosa/hasResult")
_HAS_VALUE: Final = ox.NamedNode("http://qudt.org/1.1/schema/qudt#numericValue")

_Place = tuple[str, str]
"""IRI of an observation, and that of its graph; empty for the default graph."""


class PastValue(NamedTuple):
    """One value of an observation. `time`: microseconds since 1970."""

    time: int
    observation: str
    graph: str
    value: bool | float | str


@dataclass(slots=True)
class Occurrence:
    """A situation as it would have been. Times in microseconds since 1970."""

    began: int
    ended: int | None
    solution: dict[str, str]


@dataclass(slots=True)
class DryRunResult:
    """Outcome of a dry run."""

    begin: int
    end: int
    values: int
    """Number of values that were played."""
    occurrences: list[Occurrence] = field(default_factory=list)
    failures: int = 0
    failure: str = ""
    """Reason of the last failure; empty if no update failed."""


def dry_run_rule(
    graph: LiveGraph,
    rule: Rule,
    values: Sequence[PastValue],
    begin: int,
    end: int,
    engine_settings: EngineSettings,
    settings: AutomationSettings,
) -> DryRunResult:
    """Return what a rule would have done from `begin` to `end` with these values, in the order of time.

    Descriptions of observations, and all else in the graph, are those of now. Raises `ResultTooLarge` for a large
    graph, `InvalidRequest` if the rule's query cannot be followed.
    """
    if len(graph) > MOST_QUADS:
        raise ResultTooLarge(
            f"The graph has {len(graph):,} quads, more than the {MOST_QUADS:,} of which a dry run makes a copy"
        )
    with closing(_DryRun(SimulatedClock(begin), engine_settings, settings, rule)) as run:
        run.load(graph, {(each.observation, each.graph) for each in values})
        run.rule.start()
        for each in values:
            run.pass_time(each.time)
            run.set_value(each)
        run.pass_time(end)
        tally = run.rule.tally()
    return DryRunResult(begin, end, len(values), run.occurrences, tally.failed, tally.failure)


class _DryRun:
    """One dry run in progress."""

    def __init__(
        self, clock: SimulatedClock, engine_settings: EngineSettings, settings: AutomationSettings, rule: Rule
    ) -> None:
        self.occurrences: list[Occurrence] = []
        self._clock = clock
        self._engine: Scheduler = open_engine(None, engine_settings, clock=clock, start=False)
        self._actions = EngineActions(self._engine, self._engine.turn)
        self.rule = SimulatedRule(self._engine, clock, settings, SituationListener(self._began, self._ended), rule)
        self._going_on: dict[frozenset[tuple[str, Term]], Occurrence] = {}
        self._datatypes: dict[_Place, str] = {}

    def close(self) -> None:
        """Close the engine, whose journal is a database in memory."""
        self.rule.close()
        self._engine.close()

    def load(self, graph: LiveGraph, played: Collection[_Place]) -> None:
        """Copy the graph, without the values that will be played and without situations."""
        statements = [each for each in graph.walk() if each[3] is None or each[3].value != GRAPH]
        results: dict[tuple[Term, str], _Place] = {}
        for subject, predicate, result, name in statements:
            if predicate == _HAS_RESULT and isinstance(subject, ox.NamedNode):
                place = subject.value, "" if name is None else name.value
                if place in played:
                    results[result, place[1]] = place
        kept: list[Statement] = []
        for each in statements:
            subject, predicate, value, name = each
            played_as = results.get((subject, "" if name is None else name.value)) if predicate == _HAS_VALUE else None
            if played_as is None:
                kept.append(each)
            elif isinstance(value, ox.Literal):
                self._datatypes[played_as] = value.datatype.value
        self._engine.load(ChangeSet(kept, created=list({name for *_, name in kept if name is not None})))

    def pass_time(self, until: int) -> None:
        """Let time pass, and do what is due."""
        while (due := self.rule.due()) is not None and due <= until:
            self._clock.at = max(self._clock.at, due)
            self.rule.tick()
        self._clock.at = max(self._clock.at, until)

    def set_value(self, past: PastValue) -> None:
        """Write one value into the copy."""
        bindings: dict[str, Term] = {
            "observation": ox.NamedNode(past.observation),
            "value": _literal(past.value, self._datatypes.get((past.observation, past.graph))),
            "time": ox.Literal(_as_text(past.time), datatype=ox.NamedNode(_XSD + "dateTimeStamp")),
        }
        graph = f"WITH <{past.graph}>\n" if past.graph else ""
        self._actions.perform([UpdateRequest(f"{_PREFIXES}{graph}{_VALUE}", bindings=bindings)])
        self.rule.work()

    def _began(self, solution: Solution) -> None:
        shown = {name: str(getattr(term, "value", term)) for name, term in solution.items()}
        occurrence = self._going_on[frozenset(solution.items())] = Occurrence(self._clock.at, None, shown)
        self.occurrences.append(occurrence)

    def _ended(self, solution: Solution) -> None:
        occurrence = self._going_on.pop(frozenset(solution.items()), None)
        if occurrence is not None:
            occurrence.ended = self._clock.at


def _literal(value: bool | float | str, datatype: str | None) -> ox.Literal:
    """Return a value with the datatype that the observation has now."""
    if isinstance(value, bool):
        return ox.Literal(value)
    if isinstance(value, str):
        return ox.Literal(value) if datatype is None else ox.Literal(value, datatype=ox.NamedNode(datatype))
    kind = (datatype or "").removeprefix(_XSD)
    if kind in ("double", "float"):
        text = repr(float(value))
    elif kind and kind != "decimal" and float(value).is_integer():
        text = str(int(value))
    else:
        text, kind = f"{Decimal(repr(value)):f}", "decimal"
    return ox.Literal(text, datatype=ox.NamedNode(_XSD + kind))


def _as_text(time: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)).isoformat().replace("+00:00", "Z")
