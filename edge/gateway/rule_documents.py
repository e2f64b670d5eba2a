"""The operator's rules as documents that clients read, try and write over the HTTP interface."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

import pyoxigraph as ox

from edge.automation.automation import Automation
from edge.automation.errors import RuleError
from edge.automation.rule import Rule
from edge.automation.rule_files import MOST_BYTES, is_rule_file
from edge.config import Settings
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.gateway.documents import Documents
from edge.gateway.recent import Recent
from edge.protocol.access import ANYBODY
from edge.protocol.errors import EdgeError, InvalidRequest, NotFound, RequestTimeout, TooLarge
from edge.protocol.series import SeriesRequest

if TYPE_CHECKING:
    from edge.automation.dry_run import DryRunResult, PastValue

_MOST_OBSERVATIONS: Final = 1_000
"""Observations whose values a dry run plays."""
_MOST_OCCURRENCES: Final = 1_000
"""Situations in the answer of a dry run."""
_HOUR: Final = 3_600_000_000
"""Microseconds."""
_SAMPLE: Final = ox.NamedNode("urn:sepa-edge:sample")


class RuleDocuments:
    """The files NAME.toml of the directory of rules. Any thread may call it. A written rule applies at once."""

    def __init__(self, automation: Automation, engine: Scheduler, recent: Recent | None, settings: Settings) -> None:
        """`recent`: None if the gateway keeps no recent values."""
        self._automation = automation
        self._engine = engine
        self._recent = recent
        self._settings = settings
        self._documents = Documents(settings.rules_dir, settings.data_dir, ".toml", "rule", "/api/rules")
        self._writing = threading.Lock()

    def listed(self) -> Sequence[Mapping[str, object]]:
        """Return names, keys, `fault` and state of each rule."""
        documents, rules, states = self._documents, self._automation.known, self._automation.states()
        faults = {each["file"]: each["reason"] for each in self._automation.faults()}
        listed: list[Mapping[str, object]] = []
        for path in documents.files(is_rule_file):
            rule, state = rules.get(path.stem), states.get(path.stem)
            listed.append(
                {
                    "file": path.name,
                    "name": documents.name(path),
                    "label": path.stem if rule is None else rule.label,
                    "enabled": rule is not None and rule.enabled,
                    "keys": {} if rule is None else rule.keys,
                    "has_previous": documents.has_previous(path),
                    "fault": faults.get(str(path)),
                    "waiting": 0 if state is None else state.waiting,
                    "active": 0 if state is None else state.active,
                    "begun": 0 if state is None else state.tally.begun,
                    "failed": 0 if state is None else state.tally.failed,
                    "failure": "" if state is None else state.tally.failure,
                    "last_begin": None if state is None or state.tally.last is None else _as_text(state.tally.last),
                }
            )
        return listed

    def read(self, name: str, *, previous: bool = False) -> str:
        """Return the text of a rule, or of its previous version. Raises `NotFound`, `StorageFailed`."""
        return self._documents.read(name, previous=previous)

    def write(self, name: str, text: str) -> None:
        """Check and write a rule, which applies when this returns. Raises `InvalidRequest` with all faults,
        `StorageFailed`.
        """
        self._documents.path(name)
        if len(text.encode()) > MOST_BYTES:
            raise TooLarge(f"A rule has at most {MOST_BYTES:,} bytes")
        try:
            self._check(text, name)
        except RuleError as error:
            raise InvalidRequest(str(error)) from None
        with self._writing:
            self._documents.write(name, text)
            self._automation.look()

    def delete(self, name: str) -> None:
        """Delete a rule and its situations; its version is kept as the previous one. Raises `NotFound`,
        `StorageFailed`.
        """
        with self._writing:
            self._documents.delete(name)
            self._automation.look()

    def test(self, name: str, text: str, hours: float) -> Mapping[str, object]:
        """Return what a rule would have done in the last hours: `faults` of the text, or its situations.

        Raises `EdgeError` if there are too many values, or the dry run takes too long.
        """
        from edge.automation.dry_run import dry_run_rule  # not every gateway has rules

        self._documents.path(name)
        try:
            rule = self._check(text, name)
        except RuleError as error:
            return {"faults": [{"line": each.line, "text": str(each)} for each in error.faults]}
        end = time.time_ns() // 1000
        begin = end - int(hours * _HOUR)
        seconds = self._settings.engine.query_timeout
        values = self._values(rule, begin, end, seconds)
        settings = self._settings
        result: DryRunResult = self._engine.try_out(
            lambda graph: dry_run_rule(graph, rule, values, begin, end, settings.engine, settings.automation), seconds
        )
        newest = replace(result, occurrences=result.occurrences[-_MOST_OCCURRENCES:])
        return {"faults": [], **asdict(newest), "count": len(result.occurrences)}

    def _check(self, text: str, name: str) -> Rule:
        """Return the rule of a text whose query and updates the engine accepts. Raises `RuleError`."""
        from edge.automation.rule_file import fault, read_rule  # not every gateway has rules

        rule = read_rule(text, name)
        sample = dict.fromkeys(rule.variables, _SAMPLE)
        engine, seconds = self._engine, self._settings.engine.query_timeout
        checks: list[tuple[str, Callable[[], object]]] = [
            ("query", lambda: engine.explain(QueryRequest(rule.query)).result(seconds)),
            *(
                (key, partial(engine.check, UpdateRequest(update, bindings=sample)))
                for key, update in (("update", rule.update), ("end_update", rule.end_update))
                if update
            ),
        ]
        faults = []
        for key, check in checks:
            try:
                check()
            except EdgeError as error:
                faults.append(fault(text, key, error.description))
            except TimeoutError:
                raise RequestTimeout(f"The check took longer than {seconds:g} s; try again later") from None
        if faults:
            raise RuleError(faults)
        return rule

    def _values(self, rule: Rule, begin: int, end: int, seconds: float) -> list[PastValue]:
        """Return the recent values of the observations that a rule watches, in the order of time."""
        from edge.automation.dry_run import PastValue

        recent = self._recent
        if recent is None:
            raise NotFound("The gateway keeps no recent values: the setting recent.enabled is false")
        observations = self._observations(rule, recent, seconds)
        if len(observations) > _MOST_OBSERVATIONS:
            raise InvalidRequest(
                f"The rule watches {len(observations):,} observations, and a dry run plays the values of at most "
                f"{_MOST_OBSERVATIONS:,}; try it with one observation or place"
            )
        try:
            found = recent.series(SeriesRequest(observations, begin, end, None), ANYBODY, seconds)
        except NotFound:
            return []
        values = [
            PastValue(row.time, series.observation, series.graph, row.value)
            for series in found
            for row in series.rows
            if row.value is not None and begin <= row.time < end
        ]
        values.sort(key=lambda each: each.time)
        return values

    def _observations(self, rule: Rule, recent: Recent, seconds: float) -> list[str]:
        if not rule.observations:
            return list({each.observation for each in recent.available(ANYBODY, seconds)})
        try:
            result = self._engine.query(QueryRequest(rule.observations)).result(seconds)
        except TimeoutError:
            raise RequestTimeout(
                f"The search for observations took longer than {seconds:g} s; try again later"
            ) from None
        rows = result.rows if isinstance(result, Solutions) else ()
        return [term.value for (term,) in rows if isinstance(term, ox.NamedNode)]


def _as_text(time: int) -> str:
    return datetime.fromtimestamp(time / 1_000_000, UTC).isoformat(timespec="milliseconds")
