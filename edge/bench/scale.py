"""Cost of an update and memory of a subscription with up to 100,000 subscriptions to single lamps."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import psutil
import pyoxigraph as ox

from edge.bench.city import DIMMING, lamp_uri
from edge.bench.experiment import ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.primitives import s_lamp, u_lamp, value_of_run
from edge.bench.subject import subject

_SIZES: Final = (1_000, 10_000, 100_000)
_SMALL_SIZES: Final = (10, 100, 1_000)
_LAMPS: Final = 100
"""Lamps of a road."""
_UPDATES: Final = 310


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure three engines with the same lamps and a growing number of subscriptions. Each update hits one of them."""
    sizes = _SMALL_SIZES if options.small else _SIZES
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    weight: list[float] = []
    with ExitStack() as stack:
        engines = {size: stack.enter_context(subject(_lamps(sizes[-1]), options)) for size in sizes}
        # Largest first: the memory of its subscriptions is measured while the other engines have none.
        for size, engine in reversed(engines.items()):
            few = sizes[-2] if size == sizes[-1] else size
            engine.subscribe(_texts(range(few)))
            if size > few:
                before = _memory()
                engine.subscribe(_texts(range(few, size)))
                weight = [(_memory() - before) / (size - few)]
        for number in steps(range(options.runs), "scale"):
            value = value_of_run(number)
            texts = [u_lamp(*_place(update % sizes[0]), value - update // sizes[0]) for update in range(_UPDATES)]
            for size, engine in engines.items():
                done = engine.round(texts)
                engine.check(len(texts))
                costs[size].append(done.spent / done.updates / 1000)
    figures = [
        Figure(f"update_{size}_us", f"one update with {size:,} subscriptions, us", costs[size]) for size in sizes
    ]
    ends = [a / b for a, b in zip(costs[sizes[-1]], costs[sizes[0]], strict=True)]
    figures.append(Figure("ratio", f"the cost with {sizes[-1]:,} to that with {sizes[0]:,}; published 100", ends))
    figures.append(Figure("bytes", f"memory of one further subscription beyond {sizes[-2]:,}, bytes", weight))
    indicators = {
        "subscriptions": [sizes[-1]] * options.runs,
        "updates": [_UPDATES] * options.runs,
        "notifications": [_UPDATES] * options.runs,
    }
    return ExperimentReport("scale", options.mode, indicators, figures)


def _place(lamp: int) -> tuple[int, int]:
    """Return road and number of a lamp. Lamps count from 0, roads and numbers from 1."""
    return lamp // _LAMPS + 1, lamp % _LAMPS + 1


def _texts(lamps: range) -> Iterator[str]:
    for lamp in steps(lamps, f"subscribing, up to {lamps.stop:,}"):
        yield s_lamp(*_place(lamp))


def _lamps(count: int) -> Iterator[ox.Quad]:
    """Yield lamps that have a dimming value only.

    With a full city of this size, the experiment would measure the size of the graph, not the subscriptions.
    """
    for lamp in range(count):
        yield ox.Quad(ox.NamedNode(lamp_uri(*_place(lamp))), DIMMING, ox.Literal("0"))


def _memory() -> int:
    """Return the resident memory of this process (bytes)."""
    # Garbage would count as memory of the subscriptions.
    gc.collect()
    return int(psutil.Process().memory_info().rss)
