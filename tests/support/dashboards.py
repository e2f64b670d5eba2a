"""Grafana dashboards of the examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "grafana"


def dashboard(name: str) -> dict[str, Any]:
    """Return a dashboard."""
    found: dict[str, Any] = json.loads((FOLDER / name).read_text())
    return found


def expressions(name: str) -> list[str]:
    """Return the PromQL expressions of a dashboard, and those of its variables."""
    board = dashboard(name)
    variables = [one["definition"] for one in board["templating"]["list"] if "definition" in one]
    return variables + [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def infinity_queries(name: str) -> list[dict[str, Any]]:
    """Return the queries of a dashboard and of its variables to the data source Infinity."""
    board = dashboard(name)
    variables = [one["query"]["infinityQuery"] for one in board["templating"]["list"] if one["type"] == "query"]
    return variables + [target for panel in board["panels"] for target in panel["targets"]]
