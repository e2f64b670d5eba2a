"""State of one rule: its situations, and the steps by which they begin and end.

A situation is *waiting* until it has lasted as long as the rule says, then *active*, and *ending* from the time when
its solution is gone until it ends. Waiting and ending are delayed updates of the engine, which survive a restart.
Active situations are in the graph, written by the update that also carries out the rule: each begins and ends once,
also if the gateway is killed. Only silence is counted in memory, from the start of the gateway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import pyoxigraph as ox

from edge.automation.rule import BEGIN, END, Rule, Solution, from_text, to_text
from edge.engine.requests import UpdateRequest
from edge.protocol.bag import Bag
from edge.protocol.errors import (
    EdgeError,
    NotReady,
    RequestTimeout,
    StorageFailed,
    TooManyRequests,
    UpdateConflict,
)
from edge.protocol.results import Row, Term
from edge.protocol.timers import TimerRecord

_log = logging.getLogger(__name__)

_PASSING: Final = (NotReady, RequestTimeout, StorageFailed, TooManyRequests, UpdateConflict)
"""Errors after which the same update may succeed later."""
_BURST: Final = 10.0
"""Seconds of the rate limit that a rule may use at once."""
_SECOND: Final = 1_000_000

State = Literal["waiting", "active", "ending", "failed"]


class Hands(Protocol):
    """Requests of a rule to the engine. Each method waits for the engine, and raises `EdgeError`."""

    def perform(self, requests: Sequence[UpdateRequest]) -> None:
        """Run updates in one transaction."""

    def schedule(self, request: UpdateRequest, delay: int, name: str) -> None:
        """Schedule an update in `delay` microseconds. It replaces a pending one with the same id."""

    def cancel(self, name: str) -> bool:
        """Cancel a delayed update. Returns False if none with this id is pending."""

    def outcome(self, name: str) -> TimerRecord | None:
        """Return the record of a delayed update; None if it is not known any more."""


@dataclass(slots=True)
class _Situation:
    state: State
    solution: Solution
    """At its begin, or the first one while it waits."""
    deadline: int = 0
    """End of the silence, by the steady clock."""


@dataclass(slots=True)
class Tally:
    """Activity of a rule since the start of the gateway."""

    begun: int = 0
    ended: int = 0
    failed: int = 0
    last: int | None = None
    """Time of the last begin, in microseconds since 1970."""
    failure: str = ""
    """Reason of the last failure; empty if an update succeeded since."""


@dataclass(slots=True)
class Listener:
    """Receives the begin and the end of situations."""

    began: Callable[[Solution], None] = lambda _: None
    ended: Callable[[Solution], None] = lambda _: None


class RuleRunner:
    """Runs one rule. Not thread-safe."""

    def __init__(
        self,
        rule: Rule,
        hands: Hands,
        *,
        wall: Callable[[], int],
        steady: Callable[[], int],
        most: int,
        rate: float,
        listener: Listener | None = None,
    ) -> None:
        """`wall`, `steady`: clocks in microseconds. `most`: situations at the same time. `rate`: updates a second."""
        self.rule = rule
        self.tally = Tally()
        self.stopped = ""
        """Why the rule does not run; empty if it does."""
        self._hands = hands
        self._wall = wall
        self._steady = steady
        self._most = most
        self._rate = rate
        self._listener = listener or Listener()
        self._rows: dict[str, Bag[Row]] = {}
        """Rows of the query by the digest of their key."""
        self._situations: dict[str, _Situation] = {}
        self._again: dict[str, None] = {}
        """Digests of situations whose last step failed for a reason that passes."""
        self._look_at = 0
        """No silence ends before this time of the steady clock; 0: none is counted."""
        self._allowed = rate * _BURST
        self._allowed_at = steady()
        self._variables: Sequence[str] = rule.variables
        self._began = False
        """Whether the first result of the query has come."""

    def restore(self, active: Mapping[str, str], pending: Iterable[str]) -> None:
        """Take over the situations of the previous process.

        `active`: digest and solution of those in the graph. `pending`: ids of delayed updates.
        """
        for digest, text in active.items():
            self._situations[digest] = _Situation("active", from_text(text))
        for name in pending:
            step, _, digest = name.removeprefix(prefix(self.rule.name)).partition("/")
            if step == "end" and digest in self._situations:
                self._situations[digest].state = "ending"
            elif step == "begin" and digest not in self._situations:
                self._situations[digest] = _Situation("waiting", {})

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of waiting and active situations. Those that are ending are active."""
        states = [each.state for each in self._situations.values()]
        return {"waiting": states.count("waiting"), "active": states.count("active") + states.count("ending")}

    # Events

    def replace(self, variables: Sequence[str], rows: Iterable[Row]) -> None:
        """Take the complete result of the query."""
        before: Bag[Row] = Bag()
        for each in self._rows.values():
            before.merge(each)
        change = Bag.of(rows).since(before)
        self.apply(variables, change.added, change.removed)
        self._began = True
        # Those of the previous process whose solution is not there any more.
        for digest in [digest for digest in self._situations if digest not in self._rows]:
            self._advance(digest)

    def apply(self, variables: Sequence[str], added: Iterable[Row], removed: Iterable[Row]) -> None:
        """Take a change of the result."""
        self._variables = variables
        touched: dict[str, bool] = {}
        for row in removed:
            digest = self._digest(row)
            rows = self._rows.get(digest)
            if rows is not None:
                touched[digest] = False
                if not rows.add(row, -1) and not rows:
                    del self._rows[digest]
        for row in added:
            digest = self._digest(row)
            touched[digest] = True
            self._rows.setdefault(digest, Bag()).add(row)
        if len(self._rows) > self._most:
            self.stopped = (
                f"The query finds more than {self._most:,} situations (automation.max_situations); make it more "
                "selective"
            )
            return
        for digest, is_new in touched.items():
            if self.rule.silent and is_new and self._began:
                self._renew(digest)
            self._advance(digest)

    def appeared(self, digest: str, text: str) -> None:
        """A situation is in the graph now, with this solution: a delayed update has begun it, or the rule itself."""
        situation = self._situations.get(digest)
        if situation is not None and situation.state == "waiting" and not self.rule.silent:
            situation.solution = from_text(text)
            self._note_begin(digest, situation)
            self._advance(digest)

    def disappeared(self, digest: str) -> None:
        """A situation is not in the graph any more: a delayed update has ended it, or the rule itself."""
        situation = self._situations.get(digest)
        if situation is not None and situation.state == "ending":
            self._note_end(digest, situation)
            self._advance(digest)

    def tick(self) -> None:
        """Do what is due: silences that end, and steps that are tried again."""
        again, self._again = self._again, {}
        for digest in again:
            self._advance(digest)
        now = self._steady()
        if self._look_at and now >= self._look_at:
            waiting = [(digest, each) for digest, each in self._situations.items() if each.state == "waiting"]
            self._look_at = 0
            for digest, situation in waiting:
                if situation.deadline <= now:
                    self._advance(digest)
                else:
                    self._note_deadline(situation.deadline)

    def wait(self) -> float | None:
        """Return the seconds until `tick` has something to do; None: nothing waits."""
        if self._again:
            return 1.0
        return max(0, self._look_at - self._steady()) / _SECOND if self._look_at else None

    # Steps

    def _advance(self, digest: str) -> None:
        """Take the next step of a situation, if its solution is there or gone."""
        holds, situation = digest in self._rows, self._situations.get(digest)
        try:
            if situation is None:
                if holds:
                    self._begin(digest)
            elif situation.state == "waiting":
                self._advance_waiting(digest, situation, holds=holds)
            elif situation.state == "failed":
                if not holds:
                    del self._situations[digest]
            elif situation.state == "active" and not holds:
                self._end(digest, situation)
            elif situation.state == "ending" and holds:
                self._continue(digest, situation)
        except _PASSING as error:
            self._again[digest] = None
            self.tally.failure = error.description

    def _begin(self, digest: str) -> None:
        solution = self.rule.solution(self._variables, next(iter(self._rows[digest])))
        situation = _Situation("waiting", solution)
        if self.rule.silent:
            situation.deadline = self._steady() + self.rule.silent
            self._note_deadline(situation.deadline)
            self._situations[digest] = situation
        elif self.rule.lasts:
            self._take_one()
            try:
                self._hands.schedule(self._combined(digest, solution), self.rule.lasts, self._id("begin", digest))
            except _PASSING:
                raise
            except EdgeError as error:
                self._fail(error)
                situation.state = "failed"
            self._situations[digest] = situation
        else:
            self._act_begin(digest, situation)

    def _act_begin(self, digest: str, situation: _Situation) -> None:
        self._take_one()
        try:
            self._hands.perform(self._beginning(digest, situation.solution))
        except _PASSING:
            raise
        except EdgeError as error:
            self._fail(error)
            situation.state = "failed"
            self._situations[digest] = situation
        else:
            self._note_begin(digest, situation)

    def _advance_waiting(self, digest: str, situation: _Situation, *, holds: bool) -> None:
        if not situation.solution and holds:  # of the previous process
            situation.solution = self.rule.solution(self._variables, next(iter(self._rows[digest])))
        if self.rule.silent:
            if not holds:
                del self._situations[digest]
            elif self._steady() >= situation.deadline:
                self._act_begin(digest, situation)
            return
        if holds:
            return
        name = self._id("begin", digest)
        if not self._hands.cancel(name):
            record = self._hands.outcome(name)
            if record is not None and record.state in ("done", "unchanged"):
                # It began just before its solution was gone.
                self._note_begin(digest, situation)
                self._end(digest, situation)
                return
            if record is not None and record.state == "failed":
                self._fail(EdgeError(record.error_description or "The update failed"))
        del self._situations[digest]

    def _renew(self, digest: str) -> None:
        """A new value: the silence is over, or begins again."""
        situation = self._situations.get(digest)
        if situation is None:
            return
        if situation.state == "waiting":
            situation.deadline = self._steady() + self.rule.silent
            self._note_deadline(situation.deadline)
        elif situation.state == "active":
            self._end(digest, situation)
        elif situation.state == "failed":
            del self._situations[digest]

    def _end(self, digest: str, situation: _Situation) -> None:
        self._take_one()
        if self.rule.end_lasts:
            try:
                self._hands.schedule(
                    self._combined(digest, situation.solution, end=True), self.rule.end_lasts, self._id("end", digest)
                )
            except _PASSING:
                raise
            except EdgeError as error:
                self._fail(error)
            else:
                situation.state = "ending"
                return
        try:
            self._hands.perform(self._ending(digest, situation.solution))
        except _PASSING:
            raise
        except EdgeError as error:
            self._fail(error)
            # Its own update cannot be carried out, but the situation is over.
            self._hands.perform([UpdateRequest(END, bindings={"_situation": self.rule.iri(digest)})])
        self._note_end(digest, situation)

    def _continue(self, digest: str, situation: _Situation) -> None:
        """The solution is back before the situation ended."""
        name = self._id("end", digest)
        if self._hands.cancel(name):
            situation.state = "active"
            return
        record = self._hands.outcome(name)
        if record is not None and record.state in ("done", "unchanged"):
            self._note_end(digest, situation)
            self._begin(digest)
        else:
            situation.state = "active"

    # Requests

    def _beginning(self, digest: str, solution: Solution) -> list[UpdateRequest]:
        about = solution.get("observation")
        bindings: dict[str, Term] = {
            "_situation": self.rule.iri(digest),
            "_rule": ox.Literal(self.rule.name),
            "_label": ox.Literal(self.rule.label),
            "_solution": ox.Literal(to_text(solution)),
            **({"_about": about} if isinstance(about, ox.NamedNode) else {}),
        }
        requests = [UpdateRequest(BEGIN, bindings=bindings)]
        if self.rule.update:
            requests.append(UpdateRequest(self.rule.update, bindings=dict(solution)))
        return requests

    def _ending(self, digest: str, solution: Solution) -> list[UpdateRequest]:
        requests = [UpdateRequest(END, bindings={"_situation": self.rule.iri(digest)})]
        if self.rule.end_update:
            requests.append(UpdateRequest(self.rule.end_update, bindings=dict(solution)))
        return requests

    def _combined(self, digest: str, solution: Solution, *, end: bool = False) -> UpdateRequest:
        """Return all updates of a step as one text, because a delayed update is one."""
        requests = self._ending(digest, solution) if end else self._beginning(digest, solution)
        text = " ;\n".join(request.sparql for request in requests)
        return UpdateRequest(text, bindings={name: term for each in requests for name, term in each.bindings.items()})

    def _id(self, step: str, digest: str) -> str:
        return f"{prefix(self.rule.name)}{step}/{digest}"

    def _digest(self, row: Row) -> str:
        return self.rule.digest(self.rule.solution(self._variables, row))

    def _note_deadline(self, deadline: int) -> None:
        self._look_at = min(self._look_at or deadline, deadline)

    def _note_begin(self, digest: str, situation: _Situation) -> None:
        situation.state = "active"
        self._situations[digest] = situation
        self.tally.begun += 1
        self.tally.last = self._wall()
        self.tally.failure = ""
        self._listener.began(situation.solution)

    def _note_end(self, digest: str, situation: _Situation) -> None:
        self._situations.pop(digest, None)
        self.tally.ended += 1
        self._listener.ended(situation.solution)

    def _fail(self, error: EdgeError) -> None:
        self.tally.failed += 1
        self.tally.failure = error.description
        _log.error("automation.failed", extra={"rule": self.rule.name, "reason": error.description})

    def _take_one(self) -> None:
        """Take one update from the rate limit. Raises `TooManyRequests`."""
        now = self._steady()
        self._allowed = min(self._rate * _BURST, self._allowed + (now - self._allowed_at) / _SECOND * self._rate)
        self._allowed_at = now
        if self._allowed < 1:
            raise TooManyRequests(
                f"The rule waits: it carries out at most {self._rate:g} updates a second (automation.max_rate)"
            )
        self._allowed -= 1


def prefix(name: str) -> str:
    """Return the begin of the ids of a rule's delayed updates."""
    return f"rule/{name}/"
