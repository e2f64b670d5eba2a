"""Cost of each further subscriber of the same query (SPS Architecture, section X.F)."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.primitives import s_lamp, s_road, u_lamp, u_road
from edge.bench.subject import Subject, subject

_SUBSCRIBERS: Final = (1, 10, 100, 1_000)
_UPDATES: Final = 40
_ROAD: Final = 310
"""A road with 100 lamp posts. The paper assumes as many for its road 300."""


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure m subscribers of one lamp, then of one road. Every update changes the result of all of them."""
    counts = _SUBSCRIBERS[:3] if options.small else _SUBSCRIBERS
    costs: dict[str, list[float]] = defaultdict(list)
    evaluations: list[float] = []
    with subject(options.city.quads(), options) as engine:
        for _ in steps(range(options.runs), "subscribers"):
            spus = []
            for name in ("lamp", "road"):
                spuids: list[str] = []
                for count in counts:
                    spuids += engine.subscribe(_query(name) for _ in range(count - len(spuids)))
                    costs[f"{name}_{count}"].append(_cost(engine, name, count))
                spus.append(engine.engine.spus.spus)
                engine.unsubscribe(spuids)
            evaluations.append(max(spus))
    most = counts[-1]
    figures = []
    for name in ("lamp", "road"):
        figures += [
            Figure(f"{name}_{count}_us", f"one update of the {name}, {count} subscribers, us", costs[f"{name}_{count}"])
            for count in counts
        ]
        pairs = zip(costs[f"{name}_{most}"], costs[f"{name}_1"], strict=True)
        further = [(many - one) / (most - 1) for many, one in pairs]
        figures.append(Figure(f"{name}_further_us", "each further subscriber, its text written, us", further))
    figures.append(
        Figure("evaluations", f"SPUs that evaluate an update for {most} subscribers; published {most}", spus)
    )
    indicators = {
        "subscriptions": [most] * options.runs,
        "updates": [_UPDATES] * options.runs,
        "notifications": [_UPDATES * most] * options.runs,
    }
    return ExperimentReport("subscribers", options.mode, indicators, figures)


def _query(name: str) -> str:
    return s_lamp(_ROAD, 1) if name == "lamp" else s_road(_ROAD)


def _cost(engine: Subject, name: str, subscribers: int) -> float:
    """Return the cost of one update (us)."""
    values = [100 - number for number in range(_UPDATES)]
    texts = [u_lamp(_ROAD, 1, value) if name == "lamp" else u_road(_ROAD, value) for value in values]
    done = engine.round(texts)
    engine.check(_UPDATES * subscribers)
    return done.spent / done.updates / 1000
