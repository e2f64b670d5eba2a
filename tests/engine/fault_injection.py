"""Injection of faults into the evaluation of subscriptions: any method can raise at its n-th call."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from edge.engine.operators import aggregates, operators, stages
from edge.engine.queries import evaluator
from edge.engine.subscriptions import delta_evaluation, incremental_spu, plan_group

panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
"""An exception like a panic of Oxigraph in builds that do not abort."""


ERRORS: tuple[Callable[[], BaseException], ...] = (
    MemoryError,
    RecursionError,
    lambda: OverflowError("int too large to convert to float"),
    ZeroDivisionError,
    decimal.InvalidOperation,
    lambda: KeyError("absent"),
    lambda: AssertionError("broken invariant"),
    panic,
)


@dataclass(frozen=True)
class Point:
    """A method that can raise."""

    owner: Any
    name: str

    def __str__(self) -> str:
        return f"{getattr(self.owner, '__name__', self.owner)}.{self.name}"


OPERATORS = tuple(
    Point(each, "solutions")
    for each in vars(operators).values()
    if isinstance(each, type) and issubclass(each, operators.Operator) and each is not operators.Operator
)
STAGES = tuple(
    Point(each, "change")
    for each in (*vars(stages).values(), evaluator._Frames)
    if isinstance(each, type) and issubclass(each, stages.Stage) and each is not stages.Stage
)
ACCUMULATORS = tuple(
    Point(each, name)
    for each in vars(aggregates).values()
    if isinstance(each, type) and issubclass(each, aggregates.Accumulator)
    for name in ("add", "result", "_take", "_give")
    if name in vars(each) and not getattr(vars(each)[name], "__isabstractmethod__", False)
)
OTHERS = (
    Point(stages.Groups, "_new"),
    Point(stages.Groups, "_row"),
    Point(stages.ConstructTemplate, "_blank"),
    Point(stages.ConstructTemplate, "_add"),
    Point(delta_evaluation.DeltaEvaluation, "_solve"),
    Point(delta_evaluation.DeltaEvaluation, "_follow_member"),
    Point(delta_evaluation.DeltaEvaluation, "_evaluated"),
    Point(delta_evaluation.DeltaEvaluation, "_restrict"),
    Point(delta_evaluation.DeltaEvaluation, "_add"),
    Point(plan_group.GroupTrigger, "restriction"),
    Point(plan_group.GroupTrigger, "recall"),
    Point(plan_group.GroupTrigger, "remember"),
    Point(plan_group.PlanGroup, "whose"),
    Point(incremental_spu.IncrementalSpu, "move"),
    Point(incremental_spu.IncrementalSpu, "take"),
    Point(incremental_spu.IncrementalSpu, "delta"),
    Point(evaluator.World, "read"),
)
POINTS = (*OPERATORS, *STAGES, *ACCUMULATORS, *OTHERS)


class Injector:
    """Lets one method raise: at its n-th call while armed, and at all later calls if `lasting`."""

    def __init__(self) -> None:
        self.point: Point | None = None
        self.armed = False
        self.raised = 0
        self._left = 0

    def aim(self, point: Point, call: int, error: Callable[[], BaseException], *, after: bool, lasting: bool) -> None:
        """Choose the call. `call` counts from 0; `after`: the method raises after its work."""
        self.point, self._left, self._error = point, call, error
        self._after, self._lasting = after, lasting

    def _strikes(self) -> bool:
        if not self.armed:
            return False
        self._left -= 1
        if self._left == -1 or (self._lasting and self._left < 0):
            self.raised += 1
            return True
        return False

    def install(self, patch: pytest.MonkeyPatch, point: Point) -> None:
        """Wrap a method."""
        original = getattr(point.owner, point.name)

        def wrapped(*arguments: Any, **named: Any) -> Any:
            if self.point is not point:
                return original(*arguments, **named)
            strikes = self._strikes()
            if strikes and not self._after:
                raise self._error()
            result = original(*arguments, **named)
            if strikes:
                raise self._error()
            return result

        def wrapped_generator(*arguments: Any, **named: Any) -> Iterator[None]:
            if self.point is not point:
                yield from original(*arguments, **named)
                return
            strikes = self._strikes()
            if strikes and not self._after:
                raise self._error()
            for _ in original(*arguments, **named):
                yield
                if strikes:
                    raise self._error()
            if strikes:
                raise self._error()

        patch.setattr(point.owner, point.name, wrapped_generator if point.name == "solutions" else wrapped)


@pytest.fixture
def injector(monkeypatch: pytest.MonkeyPatch) -> Injector:
    """Return an injector for all points."""
    made = Injector()
    for point in POINTS:
        made.install(monkeypatch, point)
    return made
