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
    UpdateFailed,
)
from edge.protocol.results import Row, Term
from edge.protocol.timers import TimerRecord

_log = logging.getLogger(__name__)

_PASSING: Final = (NotReady, RequestTimeout, StorageFailed, TooManyRequests, UpdateConflict)
"""Errors after which the same update may succeed later."""
_BURST: Final = 10.0
"""Seconds of the rate limit that a rule may use at once."""
_SCHEDULED: Final = 0.1
"""Part of an update that a delayed one takes from the rate limit when it is scheduled."""
_SECOND: Final = 1_000_000
_IN_GRAPH: Final = ("active", "ending", "held")
"""States of situations that are in the graph."""
PREFIX: Final = "sepa://rule/"
"""Begin of the ids of delayed updates."""

State = Literal["waiting", "active", "ending", "held", "over"]
"""`held`: active, although its solution is gone, because somebody has cancelled its end. `over`: it could not begin, or
somebody has ended it; it begins again when its solution has been gone.
"""


class RuleActions(Protocol):
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
    look_at: int = 0
    """Time of the steady clock at which the silence ends, or at which to look what became of a delayed update."""


@dataclass(slots=True)
class RuleActivity:
    """Activity of a rule since the start of the gateway."""

    begun: int = 0
    ended: int = 0
    failed: int = 0
    last: int | None = None
    """Time of the last begin, in microseconds since 1970."""
    failure: str = ""
    """Reason of the last failure; empty if an update succeeded since."""


@dataclass(slots=True)
class SituationListener:
    """Receives the begin and the end of situations."""

    began: Callable[[Solution], None] = lambda _: None
    ended: Callable[[Solution], None] = lambda _: None


class RuleRunner:
    """Runs one rule. Not thread-safe."""

    def __init__(
        self,
        rule: Rule,
        actions: RuleActions,
        *,
        wall: Callable[[], int],
        steady: Callable[[], int],
        most: int,
        rate: float,
        listener: SituationListener | None = None,
    ) -> None:
        """`wall`, `steady`: clocks in microseconds. `most`: situations at the same time. `rate`: updates a second.

        After each update of `actions`, the situations that it has written or deleted must have been passed to
        `appeared` and `disappeared`.
        """
        self.rule = rule
        self.tally = RuleActivity()
        self.stopped = ""
        """Why the rule does not run; empty if it does."""
        self._actions = actions
        self._wall = wall
        self._steady = steady
        self._most = most
        self._rate = rate
        self._listener = listener or SituationListener()
        self._rows: dict[str, Bag[Row]] = {}
        """Rows of the query by the digest of their key."""
        self._situations: dict[str, _Situation] = {}
        self._again: dict[str, bool] = {}
        """Digests of situations whose last step failed for a reason that passes, and whether they had a new value."""
        self._again_at = 0
        """Time of the steady clock at which they are tried again."""
        self._look_at = 0
        """No situation is to be looked at before this time of the steady clock; 0: none."""
        self._allowed = rate * _BURST
        self._allowed_at = steady()
        self._variables: Sequence[str] = rule.variables
        self._began = False
        """Whether the first result of the query has come."""

    def restore(self, active: Mapping[str, str], pending: Iterable[str]) -> None:
        """Take over the situations of the previous process, or of the previous version of the rule.

        `active`: digest and solution of those in the graph. `pending`: ids of the rule's delayed updates, read before
        them. Those of another version are cancelled.
        """
        for digest, text in active.items():
            self._situations[digest] = _Situation("active", from_text(text))
        for name in pending:
            version, step, digest = (*name.removeprefix(prefix(self.rule.name)).split("/"), "", "")[:3]
            situation = self._situations.get(digest)
            if version != self.rule.version:
                self._actions.cancel(name)
            elif step == "end" and situation is not None:
                situation.state = "ending"
                self._look_later(situation, 0)
            elif step == "begin" and situation is None:
                situation = self._situations[digest] = _Situation("waiting", {})
                self._look_later(situation, 0)

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of waiting and active situations. Those that are ending are active."""
        states = [each.state for each in list(self._situations.values())]  # another thread may change them
        return {"waiting": states.count("waiting"), "active": sum(state in _IN_GRAPH for state in states)}

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
        # First these: a changed value leaves and comes back under the same digest, and then counts as new.
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
            self._advance(digest, renewed=bool(self.rule.silent) and is_new and self._began)

    def appeared(self, digest: str, text: str) -> None:
        """A situation is in the graph now, with this solution."""
        situation = self._situations.get(digest)
        if situation is None or situation.state in ("waiting", "over"):
            if situation is not None and situation.state == "waiting" and self.rule.lasts:
                self._actions.cancel(self._id("begin", digest))  # only if a client has written the situation
            self._note_begin(digest, _Situation("active", from_text(text)))

    def disappeared(self, digest: str) -> None:
        """A situation is not in the graph any more."""
        situation = self._situations.get(digest)
        if situation is not None and situation.state in _IN_GRAPH:
            if situation.state == "ending":
                self._actions.cancel(self._id("end", digest))  # only if a client has deleted the situation
            self._note_end(digest, situation)
            if digest in self._rows and situation.state != "ending":
                self._situations[digest] = _Situation("over", situation.solution)

    def settle(self, digest: str) -> None:
        """Take the step that follows from a situation that has appeared or disappeared by a delayed update."""
        self._advance(digest)

    def tick(self) -> None:
        """Do what is due: silences that end, delayed updates that have failed, and steps that are tried again."""
        now = self._steady()
        if self._again and now >= self._again_at:
            again, self._again = self._again, {}
            for digest in list(again):
                # The next ones would fail at the rate limit, too.
                if self._available(now) < 1:
                    break
                self._advance(digest, renewed=again.pop(digest))
            self._again |= again
            self._again_at = now + _SECOND
        if self._look_at and now >= self._look_at:
            self._look_at = 0
            for digest, situation in list(self._situations.items()):
                if not situation.look_at:
                    continue
                if situation.look_at > now:
                    self._look_at = min(self._look_at or situation.look_at, situation.look_at)
                else:
                    situation.look_at = 0
                    try:
                        self._look(digest, situation)
                    except _PASSING as error:
                        self.tally.failure = error.description
                        self._look_later(situation, _SECOND)

    def wait(self) -> float | None:
        """Return the seconds until `tick` has something to do; None: nothing waits."""
        times = [each for each in (self._again_at if self._again else 0, self._look_at) if each]
        return max(0, min(times) - self._steady()) / _SECOND if times else None

    # Steps

    def _advance(self, digest: str, *, renewed: bool = False) -> None:
        """Take the next step of a situation. `renewed`: it has a new value, so a silence is over or begins again."""
        try:
            if renewed:
                self._renew(digest)
            self._step(digest, self._situations.get(digest), holds=digest in self._rows)
        except _PASSING as error:
            if not self._again:
                self._again_at = self._steady() + _SECOND
            self._again[digest] = renewed or self._again.get(digest, False)
            self.tally.failure = error.description

    def _step(self, digest: str, situation: _Situation | None, *, holds: bool) -> None:
        if situation is None:
            if holds:
                self._begin(digest)
        elif situation.state == "waiting":
            if not holds:
                self._stop_waiting(digest, situation)
            elif not situation.solution:  # of the previous process
                situation.solution = self._solution(digest)
        elif situation.state == "over":
            if not holds:
                del self._situations[digest]
        elif situation.state == "active":
            if not holds:
                self._end(digest, situation)
        elif holds:
            if situation.state == "ending":
                self._continue(digest, situation)
            else:
                situation.state = "active"

    def _begin(self, digest: str) -> None:
        situation = _Situation("waiting", self._solution(digest))
        if self.rule.silent:
            self._look_later(situation, self.rule.silent)
        elif self.rule.lasts:
            self._take(_SCHEDULED)
            if not self._attempt(lambda: self._schedule("begin", digest, situation.solution)):
                situation.state = "over"
            # Usually the situation appears in the graph before that. Only the record of the update shows a failure.
            self._look_later(situation, self.rule.lasts + _SECOND)
        else:
            self._act_begin(digest, situation)
            return
        self._situations[digest] = situation

    def _act_begin(self, digest: str, situation: _Situation) -> None:
        self._take()
        if not self._attempt(lambda: self._actions.perform(self._beginning(digest, situation.solution))):
            self._situations[digest] = _Situation("over", situation.solution)

    def _stop_waiting(self, digest: str, situation: _Situation) -> None:
        """The solution of a waiting situation is gone."""
        if not self.rule.silent and not self._actions.cancel(self._id("begin", digest)):
            record = self._actions.outcome(self._id("begin", digest))
            if record is not None and record.state == "failed":
                self._fail(record.error_description or "The update failed")
        if self._situations.get(digest) is situation:  # else it has begun in the meantime
            del self._situations[digest]

    def _look(self, digest: str, situation: _Situation) -> None:
        """End a silence, or look what became of a delayed update that must have run."""
        if self.rule.silent:
            if situation.state == "waiting" and digest in self._rows:
                self._act_begin(digest, situation)
            return
        step = "begin" if situation.state == "waiting" else "end"
        record = self._actions.outcome(self._id(step, digest))
        # The request for the outcome has let changes of the graph in, which may have moved the situation on.
        if self._situations.get(digest) is not situation or situation.state not in ("waiting", "ending"):
            return
        if record is not None and record.state == "pending":
            self._look_later(situation, max(0, record.at - self._wall()) + _SECOND)
            return
        failed = record is not None and record.state == "failed"
        if failed and record is not None:
            self._fail(record.error_description or "The update failed")
        if step == "begin":
            situation.state = "over"
            self._advance(digest)
        elif failed:
            self._attempt(lambda: self._actions.perform([_end(self.rule, digest)]))
        else:
            situation.state = "held"

    def _renew(self, digest: str) -> None:
        """A new value: the silence is over, or begins again."""
        situation = self._situations.get(digest)
        if situation is None:
            return
        if situation.state == "waiting":
            self._look_later(situation, self.rule.silent)
        elif situation.state == "active":
            self._end(digest, situation)
        situation = self._situations.get(digest)
        if situation is not None and situation.state == "over":
            del self._situations[digest]

    def _end(self, digest: str, situation: _Situation) -> None:
        if self.rule.end_lasts:
            self._take(_SCHEDULED)
            if self._attempt(lambda: self._schedule("end", digest, situation.solution)):
                situation.state = "ending"
                self._look_later(situation, self.rule.end_lasts + _SECOND)
                return
        else:
            self._take()
            if self._attempt(lambda: self._actions.perform(self._ending(digest, situation.solution))):
                return
        # Its own update cannot be carried out, but the situation is over.
        self._actions.perform([_end(self.rule, digest)])

    def _continue(self, digest: str, situation: _Situation) -> None:
        """The solution is back before the situation ended."""
        if self._actions.cancel(self._id("end", digest)) or self._situations.get(digest) is situation:
            situation.state = "active"
            situation.look_at = 0

    # Requests

    def _schedule(self, step: Literal["begin", "end"], digest: str, solution: Solution) -> None:
        """Schedule all updates of a step as one text, because a delayed update is one."""
        requests = self._beginning(digest, solution) if step == "begin" else self._ending(digest, solution)
        text = " ;\n".join(request.sparql for request in requests)
        bindings = {name: term for each in requests for name, term in each.bindings.items()}
        delay = self.rule.lasts if step == "begin" else self.rule.end_lasts
        self._actions.schedule(UpdateRequest(text, bindings=bindings), delay, self._id(step, digest))

    def _beginning(self, digest: str, solution: Solution) -> list[UpdateRequest]:
        about = solution.get("observation")
        bindings: dict[str, Term] = {
            "_situation": self.rule.iri(digest),
            "_rule": ox.Literal(self.rule.name),
            "_label": ox.Literal(self.rule.label),
            "_solution": ox.Literal(to_text(solution)),
            **({"_about": about} if isinstance(about, ox.NamedNode) else {}),
        }
        # The begin of a situation that is in the graph already replaces it.
        requests = [_end(self.rule, digest), UpdateRequest(BEGIN, bindings=bindings)]
        return requests + _own(self.rule.update, self.rule.needed, solution)

    def _ending(self, digest: str, solution: Solution) -> list[UpdateRequest]:
        return [_end(self.rule, digest), *_own(self.rule.end_update, self.rule.end_needed, solution)]

    def _id(self, step: str, digest: str) -> str:
        return f"{prefix(self.rule.name)}{self.rule.version}/{step}/{digest}"

    def _digest(self, row: Row) -> str:
        return self.rule.digest(self.rule.solution(self._variables, row))

    def _solution(self, digest: str) -> Solution:
        return self.rule.solution(self._variables, next(iter(self._rows[digest])))

    def _look_later(self, situation: _Situation, microseconds: int) -> None:
        situation.look_at = self._steady() + max(1, microseconds)
        self._look_at = min(self._look_at or situation.look_at, situation.look_at)

    def _note_begin(self, digest: str, situation: _Situation) -> None:
        self._situations[digest] = situation
        self.tally.begun += 1
        self.tally.last = self._wall()
        self.tally.failure = ""
        self._listener.began(situation.solution)

    def _note_end(self, digest: str, situation: _Situation) -> None:
        self._situations.pop(digest, None)
        self.tally.ended += 1
        self._listener.ended(situation.solution)

    def _attempt(self, step: Callable[[], None]) -> bool:
        """Take a step. Returns False if it failed for good. Raises errors that pass."""
        try:
            step()
        except _PASSING:
            raise
        except EdgeError as error:
            self._fail(error.description)
            return False
        return True

    def _fail(self, reason: str) -> None:
        self.tally.failed += 1
        self.tally.failure = reason
        _log.error("automation.failed", extra={"rule": self.rule.name, "reason": reason})

    def _available(self, now: int) -> float:
        """Return how many updates the rate limit allows now."""
        self._allowed = min(self._rate * _BURST, self._allowed + (now - self._allowed_at) / _SECOND * self._rate)
        self._allowed_at = now
        return self._allowed

    def _take(self, cost: float = 1.0) -> None:
        """Take a part of the rate limit. Raises `TooManyRequests`."""
        if self._available(self._steady()) < cost:
            raise TooManyRequests(
                f"The rule waits: it carries out at most {self._rate:g} updates a second (automation.max_rate)"
            )
        self._allowed -= cost


def prefix(name: str = "") -> str:
    """Return the begin of the ids of a rule's delayed updates, or of those of all rules."""
    return f"{PREFIX}{name}/" if name else PREFIX


def _end(rule: Rule, digest: str) -> UpdateRequest:
    return UpdateRequest(END, bindings={"_situation": rule.iri(digest)})


def _own(update: str, needed: frozenset[str], solution: Solution) -> list[UpdateRequest]:
    """Return the update of a rule. Raises `UpdateFailed` if a variable that it needs has no value."""
    if not update:
        return []
    # Unbound, it would stand for everything: a rule for one lamp would switch all of them.
    if missing := sorted(needed - solution.keys()):
        raise UpdateFailed(f"The update uses ?{missing[0]}, which has no value in this situation")
    return [UpdateRequest(update, bindings=dict(solution))]
