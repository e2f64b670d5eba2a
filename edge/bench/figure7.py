"""Figure 7: coarse-grain subscriptions, sequential against parallel (SPS Architecture, section VI.C).

The engine re-evaluates the whole query of a subscription on every hit. Incremental evaluation would leave too little
work to distribute over threads.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, Mode, steps
from edge.bench.primitives import s_road, u_road, value_of_run
from edge.bench.subject import Round, subject

_SUBSCRIBED: Final = range(300, 311)
_UPDATED: Final = (1, 100, 200, 300)
_NOTIFICATIONS: Final = 1
"""All updates hit all subscriptions, but only the update of road 300 changes a result, that of one subscription."""

_MODES: Final[tuple[Mode, Mode]] = ("sequential", "parallel")


def run(options: ExperimentOptions) -> ExperimentReport:
    """Run the four updates through the scheduler of a sequential and of a parallel engine, alternately."""
    quads = list(options.city.quads())
    rounds: dict[Mode, list[Round]] = {mode: [] for mode in _MODES}
    with ExitStack() as stack:
        engines = {
            mode: stack.enter_context(subject(quads, replace(options, mode=mode), booster="re-evaluate"))
            for mode in _MODES
        }
        for engine in engines.values():
            engine.subscribe(s_road(road) for road in _SUBSCRIBED)
        for number in steps(range(options.runs), "figure7"):
            # Both engines live through the whole experiment and take turns, so both see the same load of the host.
            for mode, engine in engines.items():
                texts = [u_road(road, value_of_run(number)) for road in _UPDATED]
                rounds[mode].append(engine.evaluated_round(texts))
                engine.check(_NOTIFICATIONS)
    elapsed = {mode: [one.spent / 1e6 for one in rounds[mode]] for mode in _MODES}
    of_mode = rounds[options.mode]
    indicators: dict[str, list[float]] = {
        "subscriptions": [len(_SUBSCRIBED) for _ in of_mode],
        "updates": [one.updates for one in of_mode],
        "notifications": [one.notifications for one in of_mode],
        "ups": [1e9 * one.updates / one.spent for one in of_mode],
        "t_total_ms": elapsed[options.mode],
    }
    # Of neighbouring runs: the load of the host changes over an experiment.
    ratios = [p / s for s, p in zip(elapsed["sequential"], elapsed["parallel"], strict=True)]
    figures = [
        Figure("sequential_ms", "elapsed, one thread evaluates", elapsed["sequential"]),
        Figure("parallel_ms", "elapsed, subscriptions evaluated side by side", elapsed["parallel"]),
        Figure("parallel_to_sequential", "their ratio in one run; published 0.63 on 8 cores", ratios),
    ]
    return ExperimentReport("figure7", options.mode, indicators, figures)
