"""Resource of the engine: its processing mode, which can be changed, and the cost of updates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from starlette.requests import Request

from edge.engine.performance import Statistics
from edge.engine.settings import Processing
from edge.engine.subscriptions.spu_report import COSTS, Cost, SpuReport
from edge.gates.engine_interface import OperatedEngine
from edge.gates.http.body import content_type, read_text
from edge.gates.settings import HttpGateSettings
from edge.protocol.errors import InvalidRequest, UnsupportedMediaType
from edge.protocol.json_faults import json_fault

_JSON = "application/json"
_MOST: Final = 1000
"""Queries in one response."""
_PROCESSING: dict[object, Processing] = {"sequential": "sequential", "parallel": "parallel"}


def shown(engine: OperatedEngine) -> dict[str, object]:
    """Return the resource as JSON. Times in milliseconds over all updates since the start."""
    figures = engine.figures
    return {
        "processing": engine.processing,
        "booster": engine.booster,
        "spu_workers": engine.spu_workers,
        "subscriptions": engine.subscriptions,
        "spus": engine.spus,
        "pending_updates": engine.pending_updates,
        "updates": figures.total.count,
        "hits": figures.hits,
        "notifications": figures.notifications,
        "limits": [asdict(load) for load in engine.loads],
        "phases": {
            "t_update": _milliseconds(figures.update),
            "t_lutt": _milliseconds(figures.lutt),
            "t_booster": _milliseconds(figures.booster),
            "t_notify": _milliseconds(figures.notify),
            "t_total": _milliseconds(figures.total),
        },
    }


def subscriptions(engine: OperatedEngine, cost: Cost, most: int) -> dict[str, object]:
    """Return the most expensive subscribed queries as JSON. It takes up to 50 ms on a Raspberry Pi."""
    found = engine.spu_reports(cost, most)
    return {
        "subscriptions": engine.subscriptions,
        "spus": engine.spus,
        "examined": found.examined,
        "queries": [_query(each) for each in found.reports],
    }


def read_cost(parameters: Mapping[str, str]) -> tuple[Cost, int]:
    """Return the order and the number of the queries that a GET requests. Raises `InvalidRequest`."""
    cost, most = parameters.get("order", COSTS[0]), parameters.get("limit", "50")
    if cost not in COSTS:
        raise InvalidRequest(f'"order" is {json.dumps(cost)}; it can be {", ".join(COSTS)}')
    if not (most.isascii() and most.isdigit() and len(most) < 5 and 1 <= int(most) <= _MOST):
        raise InvalidRequest(f'"limit" is {json.dumps(most)}; it can be 1 to {_MOST}')
    return cost, int(most)


def _query(report: SpuReport) -> dict[str, object]:
    usage = report.usage
    return {
        "sparql": report.sparql,
        "kept": report.kept,
        "reason": report.reason,
        "subscriptions": report.subscriptions,
        "clients": report.clients,
        "rows": report.rows,
        "bytes": report.held,
        "notifications": report.notifications,
        "evaluations": None
        if usage is None
        else {"count": usage.evaluations, "seconds": usage.seconds, "merged": usage.merged, "delay": usage.delay},
    }


async def read_processing(request: Request, settings: HttpGateSettings) -> Processing:
    """Return the mode that a PUT requests. Raises `InvalidRequest`, `UnsupportedMediaType`, `TooLarge`,
    `RequestTimeout`.
    """
    if content_type(request).media_type != _JSON:
        raise UnsupportedMediaType(f'Send {_JSON}, for example {{"processing": "parallel"}}')
    try:
        wanted = json.loads(await read_text(request, settings))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(json_fault("The body", error)) from None
    if not isinstance(wanted, dict) or set(wanted) != {"processing"}:
        raise InvalidRequest('Send {"processing": "sequential"} or {"processing": "parallel"}')
    value = wanted["processing"]
    if not isinstance(value, str) or value not in _PROCESSING:
        raise InvalidRequest(f'"processing" is {json.dumps(value)}; it can be "sequential" or "parallel"')
    return _PROCESSING[value]


def _milliseconds(phase: Statistics) -> dict[str, float]:
    return {
        "mean_ms": phase.mean / 1e6,
        "sigma_ms": phase.sigma / 1e6,
        "min_ms": phase.least / 1e6,
        "max_ms": phase.greatest / 1e6,
    }
