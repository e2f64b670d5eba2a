"""Registry of the experiments by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from edge.bench.experiment import ExperimentOptions, ExperimentReport

Experiment = Callable[[ExperimentOptions], ExperimentReport]

EXPERIMENTS: Final = {
    "lamp": "310 updates of one lamp each, against 1,004 subscriptions",
    "road": "310 updates of all lamps of a road, against 1,004 subscriptions",
    "figure7": "11 subscriptions to roads, re-evaluated on every hit: sequential against parallel",
    "subscribers": "1 to 1,000 subscribers of one query: what each further one costs",
    "scale": "1,000 to 100,000 different subscriptions: what an update costs, what a subscription weighs",
    "lutt": "LAMP and ROAD with the look-up triples table and without",
    "operators": "one reading of 10,000 sensors under AVG, OPTIONAL and NOT EXISTS, against the plain join",
    "latency": "a gateway process: update to notification, against a bare WebSocket echo",
    "chat": "the chat of the SEPA paper: a gateway against a bare Oxigraph, both over HTTP; messages over WebSocket",
    "timers": "a gateway process with 100,000 delayed updates: how it starts, how late it runs them",
    "footprint": "a gateway process at rest: memory, processor, time to start; with the city in it",
    "outbox": "a gateway process with readings: what storing and shipping them adds",
    "wear": "a gateway process with readings: bytes written for 1,000 of them, by durability, commits and history",
    "soak": "a gateway process under a mixed load for --minutes, once: whether anything grows",
    "serial": "a gateway process that reads 100 KB of line noise a second, and one good frame among it",
    "fairness": "a gateway process: small updates of one client, alone and while another attacks (--attack), once",
    "readings": "a gateway process behind Mosquitto: readings a second, publish to notification",
    "application": "the web application in Chromium: bytes and time until values show, cost of many changes",
    "windows": "windows over a stream: an element in an hour against one in a minute, and with 10,000 queries",
    "streams": "a gateway process with 10,000 window queries, 1,000 observers and 5,000 elements a second, once",
    "peers": "eKuiper, Node-RED, SEPA (--peer) and a gateway process behind Mosquitto: rate, loss, CPU, latency",
    "work": "counts of work for fixed small loads, compared with the recorded ones (--record)",
}
"""Help text of each experiment: the measurement."""

ATTACKS: Final = {
    "updates": "40 updates of about a second each wait",
    "general": "20 updates wait whose WHERE is evaluated as a whole",
    "timers": "36,000 delayed updates become due at one moment",
    "insert": "INSERT DATA of 6 MB, over two connections",
    "subscriptions": "30 subscriptions wait whose first result takes about a second each",
    "shapes": "10,000 subscriptions of different shapes",
    "values": "queries with VALUES of 100,000 rows, over two connections",
    "distinct": "50 subscriptions with DISTINCT and LIMIT that every update concerns",
}
"""Help text of each attack of the experiment `fairness`. See `edge.bench.attacks`."""

BOTH_MODES: Final = ("lamp", "road", "figure7")
"""Experiments whose results differ between sequential and parallel processing."""


def experiment(name: str) -> Experiment:
    """Return the function that runs an experiment. Imports the module of this experiment only."""
    # Two experiments in one module: they differ in their updates alone.
    if name in ("lamp", "road"):
        lighting = importlib.import_module("edge.bench.lighting")
        return cast("Experiment", partial(lighting.run, name))
    return cast("Experiment", importlib.import_module(f"edge.bench.{name}").run)
