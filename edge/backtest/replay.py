"""The backtest: stored values become updates by the code of the adapters, on an engine with a simulated clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import count
from types import TracebackType
from typing import Final, Self

import pyoxigraph as ox

from edge.adapters.observations import Observations
from edge.backtest.change import Change
from edge.backtest.follower import Follower, QueryFollower
from edge.backtest.past_values import PastValues
from edge.backtest.program import Program
from edge.backtest.rule_follower import RuleFollower
from edge.backtest.stored_value import StoredValue, arrival
from edge.backtest.unthreaded import UnthreadedEngine
from edge.backtest.window_follower import WindowFollower
from edge.engine.clock import SimulatedClock
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.engine.store.changes import ChangeSet, Statement
from edge.engine.store.terms import canonical

_log = logging.getLogger(__name__)

_TYPE: Final = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_OBSERVATION: Final = ox.NamedNode("http://www.w3.org/ns/sosa/Observation")
_HAS_RESULT: Final = ox.NamedNode("http://www.w3.org/ns/sosa/hasResult")
_VALUE: Final = ox.NamedNode("http://qudt.org/1.1/schema/qudt#numericValue")
_HAS_TIME: Final = ox.NamedNode("http://www.w3.org/2006/time#hasTime")
_STAMP: Final = ox.NamedNode("http://www.w3.org/2006/time#inXSDDateTimeStamp")


def replay(
    program: Program, values: Iterable[StoredValue], begin: int, end: int, context: Iterable[ox.Quad] = ()
) -> Iterator[Change]:
    """Yield what a gateway would have reported from `begin` until before `end`, both in microseconds since 1970.

    `values` of one gateway, in the order of time. Those before `begin` are the state at the begin: at least the last
    value of each observation, and all values of the last `program.lead`. Values from `end` on are ignored. `context`:
    further content of the live graph, such as descriptions. Holds the values with which windows begin, and then one
    value at a time. Raises `EdgeError`.
    """
    with _Replay(program, begin, context) as run:
        yield from run.play(values, end)


def variables(program: Program) -> Sequence[str]:
    """Return the variables of the rows of a backtest. Raises `EdgeError` if the engine refuses the program."""
    with _Replay(program, 0, ()) as run:
        return run.start()


class _Replay:
    """One backtest in progress."""

    def __init__(self, program: Program, begin: int, context: Iterable[ox.Quad]) -> None:
        self._clock = clock = SimulatedClock(begin)
        # The share of a client counts real time, of which a backtest has no other client to protect.
        settings = EngineSettings(evaluation_budget=0)
        self._scheduler = open_engine(None, settings, clock=clock, start=False)
        self._lead = begin - program.lead
        self._past = PastValues()
        self._engine = UnthreadedEngine(self._scheduler)
        names = count(1)
        self._observations = Observations(self._engine, new_name=lambda: f"backtest-{next(names)}")
        self._described: set[str] = set()
        """Observations that the context describes, and of which only the values change."""
        self._refused = 0
        """Number of values that are not valid RDF."""
        self._example = ""
        try:
            self._load(context)
            self._follower = self._make(program, settings)
        except BaseException:
            self._scheduler.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing(self._scheduler):
            self._follower.close()

    def start(self) -> Sequence[str]:
        """Begin to follow the program."""
        names = self._follower.start()
        self._past.clear()
        return names

    def play(self, values: Iterable[StoredValue], end: int) -> Iterator[Change]:
        """Play the values until the end."""
        begin, started = self._clock.at, False
        for each in values:
            if each.time >= end:
                break
            if not started and each.time >= begin:
                started = True
                self.start()
                yield from self._follower.take()
            if started:
                yield from self._pass_time(each.time)
            if self._write(each) and not started and each.time >= self._lead:
                self._past.add(each)
            if started:
                yield from self._follower.take()
        if not started:
            self.start()
            yield from self._follower.take()
        yield from self._pass_time(end - 1)
        if self._refused:
            _log.warning("%d stored values are not valid RDF and were left out. %s", self._refused, self._example)

    def _make(self, program: Program, settings: EngineSettings) -> Follower:
        match program.kind:
            case "rule":
                return RuleFollower(self._scheduler, self._clock, program.rule())
            case "window":
                return WindowFollower(self._engine, self._clock, program.text, settings, self._past.of)
            case "query":
                return QueryFollower(self._engine, self._clock, program.text)

    def _load(self, context: Iterable[ox.Quad]) -> None:
        """Add the context to the graph, in the value form in which a gateway has it.

        Without the values of observations and their times: those of the history apply.
        """
        quads = list(context)
        self._described = {
            quad.subject.value
            for quad in quads
            if quad.predicate == _TYPE and quad.object == _OBSERVATION and isinstance(quad.subject, ox.NamedNode)
        }
        results = {
            quad.object
            for quad in quads
            if quad.predicate == _HAS_RESULT and getattr(quad.subject, "value", "") in self._described
        }
        instants = {quad.object for quad in quads if quad.predicate == _HAS_TIME and quad.subject in results}
        statements: dict[Statement, None] = {}
        for s, p, o, graph in quads:
            if (p == _VALUE and s in results) or (p == _STAMP and s in instants):
                continue
            statements[s, p, canonical(o), None if isinstance(graph, ox.DefaultGraph) else graph] = None
        named = dict.fromkeys(graph for *_, graph in statements if graph is not None)
        self._scheduler.load(ChangeSet(list(statements), created=list(named)))
        self._observations.start()

    def _pass_time(self, until: int) -> Iterator[Change]:
        """Let time pass, and do what is due."""
        while (due := self._follower.due()) is not None and due <= until:
            self._clock.at = max(self._clock.at, due)
            self._follower.tick()
            yield from self._follower.take()
        self._clock.at = max(self._clock.at, until)

    def _write(self, stored: StoredValue) -> bool:
        """Write a value. Returns False if it is not valid RDF: the adapter refuses it, as it did at the gateway."""
        # A rule may have deleted the observation. Then its next value adds it again, as at the gateway.
        value_only = stored.series in self._described and self._observations.has(stored.series)
        # Without waiting: an engine without a thread has written it, or never will.
        plan = self._observations.write([arrival(stored, value_only=value_only)]).result(0)
        for _, reason in plan.refused:
            self._refused += 1
            self._example = self._example or f"The first one is of {stored.series!r}: {reason}"
        return not plan.refused
