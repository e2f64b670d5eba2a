"""Latency from an update to its notification over WebSocket, compared with a bare WebSocket echo at the same rate.

The client sends the updates over WebSocket, and then over HTTP. The latency includes the cost of either protocol.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from websockets.asyncio.client import ClientConnection, connect

from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway, SparqlConnection
from edge.bench.primitives import fine, subscriptions, u_lamp

_RATE: Final = 200
"""Updates a second."""
_SECONDS: Final = 5
"""Duration of one run: for each protocol to the gateway, and for the echo."""
_MOST: Final = 1_000
"""Upper bound of subscriptions on one connection, a quota of the gateway."""


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure a gateway process with the city and all subscriptions and an echo process, alternately."""
    with (
        TemporaryDirectory(prefix="edge-bench-") as directory,
        _echo_server() as echo,
        BenchGateway(Path(directory), **_settings(options)) as gateway,
    ):
        gateway.load(options.city.quads())
        return asyncio.run(_measure(options, gateway.endpoints, echo))


def _settings(options: ExperimentOptions) -> dict[str, str]:
    """Return the settings of the gateway as environment variables.

    The journal of a gateway is always a file. The durability "interval" comes closest to a journal in memory.
    """
    return {"EDGE__HOST__ENABLED": "false", "EDGE__ENGINE__DURABILITY": "commit" if options.commit else "interval"}


async def _measure(options: ExperimentOptions, endpoints: dict[str, str], echo: str) -> ExperimentReport:
    texts = list(subscriptions(options.city))
    lamps = list(fine(options.city))
    count = _RATE if options.small else _RATE * _SECONDS
    notified: list[list[float]] = []
    posted: list[list[float]] = []
    echoed: list[list[float]] = []
    async with (
        connect(endpoints["ws"], proxy=None, max_size=None) as socket,
        connect(endpoints["ws"], proxy=None, max_size=None) as coarse,
        connect(endpoints["ws"], proxy=None, max_size=None) as producer,
        connect(echo, proxy=None, compression=None) as bare,
        SparqlConnection(endpoints["http"]) as publisher,
    ):
        await _subscribe(socket, texts[: len(lamps)][:_MOST])
        await _subscribe(coarse, texts[len(lamps) :])

        async def send(text: str) -> None:
            await producer.send(json.dumps({"update": {"sparql": text}}))
            if "updated" not in await producer.recv():
                raise ExperimentError("the gateway refused an update")

        sent = 0
        for _ in steps(range(options.runs), "latency"):
            for way, measured in ((send, notified), (publisher.update, posted)):
                # Each subscription has one lamp, so the k-th notification answers the k-th update.
                updates = [
                    u_lamp(*lamps[number % len(lamps)], 100 - number // len(lamps) % 50)
                    for number in range(sent, sent + count)
                ]
                sent += count
                latencies, length = await _timed(socket, way, updates)
                measured.append(latencies)
            # The echo carries as many bytes as a notification.
            latencies, _ = await _timed(bare, bare.send, ["x" * length] * count)
            echoed.append(latencies)
    return _report(options, len(texts), count, notified, posted, echoed)


async def _subscribe(socket: ClientConnection, texts: Sequence[str]) -> None:
    for text in texts:
        await socket.send(json.dumps({"subscribe": {"sparql": text}}))
        if "notification" not in json.loads(await socket.recv()):
            raise ExperimentError("the gateway refused a subscription")


async def _timed(
    socket: ClientConnection, send: Callable[[str], Awaitable[None]], messages: Sequence[str]
) -> tuple[list[float], int]:
    """Send messages at the rate `_RATE` and receive as many.

    Returns the latency of each message (ms) and the length of the last received one.
    """
    sent: list[float] = []

    async def send_all() -> None:
        began = time.perf_counter()
        for number, message in enumerate(messages):
            # Absolute times keep the mean rate: a late message does not shift the messages after it.
            await asyncio.sleep(max(0.0, began + number / _RATE - time.perf_counter()))
            sent.append(time.perf_counter())
            await send(message)

    sending = asyncio.create_task(send_all())
    latencies = []
    length = 0
    for number in range(len(messages)):
        received = await socket.recv()
        latencies.append(1000 * (time.perf_counter() - sent[number]))
        length = len(received)
    await sending
    return latencies, length


def _report(
    options: ExperimentOptions,
    subscribed: int,
    count: int,
    notified: list[list[float]],
    posted: list[list[float]],
    echoed: list[list[float]],
) -> ExperimentReport:
    figures = []
    for name, share in (("p50", 0.50), ("p99", 0.99)):
        ours, over_http, bare = [[_quantile(run, share) for run in runs] for runs in (notified, posted, echoed)]
        figures += [
            Figure(f"notification_{name}_ms", f"update by WebSocket to notification, {name}, ms", ours),
            Figure(f"http_notification_{name}_ms", f"update by HTTP to notification, {name}, ms", over_http),
            Figure(f"echo_{name}_ms", f"bare WebSocket echo, {name}, ms", bare),
            Figure(f"ratio_{name}", "first to third, in one run", [a / b for a, b in zip(ours, bare, strict=True)]),
            Figure(
                f"http_ratio_{name}",
                "second to third, in one run",
                [a / b for a, b in zip(over_http, bare, strict=True)],
            ),
        ]
    indicators = {
        "subscriptions": [subscribed] * options.runs,
        "updates": [count] * options.runs,
        "notifications": [count] * options.runs,
    }
    return ExperimentReport("latency", options.mode, indicators, figures)


def _quantile(values: Sequence[float], share: float) -> float:
    return statistics.quantiles(values, n=100)[round(100 * share) - 1]


@contextmanager
def _echo_server() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "edge.bench.echo"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
