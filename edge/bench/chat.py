"""The chat of the SEPA paper (section 5.5): overhead of a gateway over an endpoint, and latency of messages.

The experiment sends requests over HTTP to a gateway process and to a bare Oxigraph process. The client library sends
messages over WebSocket.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import pyoxigraph as ox

from edge.bench.experiment import ExperimentError, ExperimentOptions, ExperimentReport, Figure, steps
from edge.bench.gateway import BenchGateway, SparqlConnection
from edge.client import Application, Client, Endpoints, Notification, Pipeline
from edge.jsap import Profile
from edge.protocol.results import Term

PROFILE: Final = Path(__file__).parents[2] / "examples" / "chat" / "chat.jsap"
_ME: Final = "http://schema.org/PersonURI1"
_PERSON: Final = f"INSERT DATA {{ <{_ME}> a <http://schema.org/Person> ; <http://schema.org/name> 'Anna' }}"
_EACH: Final = 10
"""Requests of each kind."""
_MESSAGES: Final = 100
_PATIENCE: Final = 60.0
"""Time limit for the removal of all messages (s)."""
_ORDER: Final = ("SEND", "SENT", "SET_RECEIVED", "RECEIVED", "REMOVE")

_MEANINGS: Final = {
    **{
        name.lower() + suffix: f"{name}, mean of {_EACH}, {where}, ms"
        for name in _ORDER
        for suffix, where in (("_ms", "gateway over HTTP"), ("_endpoint_ms", "bare Oxigraph over HTTP"))
    },
    "added_ms": "additional time of a request at the gateway, mean of all, ms (published: 1.5 % of 50 to 100)",
    "overhead_percent": "the same in % of the endpoint's time (published: 1.5)",
    "message_ms": f"one of {_MESSAGES} messages to oneself: three updates and four notifications, ms (published: 100)",
    "answer_p50_ms": "of these, from SEND to its answer, median, ms (published: 50 to 100)",
    "notified_p50_ms": "from SEND and SET_RECEIVED to their notifications, median, ms (published: 10 to 60)",
    "notified_p99_ms": "the same, 99th percentile, ms",
    "notified_max_ms": "the same, greatest, ms (published: 60)",
}


def run(options: ExperimentOptions) -> ExperimentReport:
    """Measure new processes in each run."""
    if not PROFILE.exists():
        raise ExperimentError(f"this experiment needs the profile of the example, which is not here: {PROFILE}")
    messages = _MESSAGES // 5 if options.small else _MESSAGES
    found: dict[str, list[float]] = defaultdict(list)
    settings = {
        # The host's own sensors would add updates.
        "EDGE__HOST__ENABLED": "false",
        "EDGE__MQTT__ENABLED": "false",
        "EDGE__ENGINE__DURABILITY": "commit" if options.commit else "interval",
    }
    for _ in steps(range(options.runs), "chat"):
        with (
            TemporaryDirectory(prefix="edge-bench-") as directory,
            _bare_endpoint() as endpoint,
            BenchGateway(Path(directory), **settings) as gateway,
        ):
            for name, value in asyncio.run(_measure(gateway.endpoints, endpoint, messages)).items():
                found[name].append(value)
    figures = [Figure(name, meaning, found[name]) for name, meaning in _MEANINGS.items()]
    counts = {"subscriptions": 2, "updates": 3 * messages, "notifications": 4 * messages}
    return ExperimentReport(
        "chat", options.mode, {name: [value] * options.runs for name, value in counts.items()}, figures
    )


async def _measure(endpoints: dict[str, str], endpoint: str, messages: int) -> dict[str, float]:
    ours, bare = [await _requests(url) for url in (endpoints["http"], endpoint)]
    found = {f"{name.lower()}_ms": value for name, value in ours.items()}
    found |= {f"{name.lower()}_endpoint_ms": value for name, value in bare.items()}
    found["added_ms"] = statistics.mean(ours.values()) - statistics.mean(bare.values())
    found["overhead_percent"] = 100 * found["added_ms"] / statistics.mean(bare.values())
    return {**found, **await _ToOneself(endpoints).send(messages)}


async def _requests(url: str) -> dict[str, float]:
    """Return the mean duration of each kind of request (ms), in the order of Figure 8. The first sequence warms up."""
    async with SparqlConnection(url) as publisher:
        await publisher.update(_PERSON)
        await _sequence(publisher)
        return await _sequence(publisher)


async def _sequence(publisher: SparqlConnection) -> dict[str, float]:
    profile = Profile.load(PROFILE)
    messages = [""] * _EACH
    spent: dict[str, float] = {}
    for name in _ORDER:
        entry = profile.queries[name] if name in profile.queries else profile.update(name)
        given = [{"sender": _ME, "receiver": _ME, "text": "hello", "message": message} for message in messages]
        texts = [entry.text({variable: each[variable] for variable in entry.forced}) for each in given]
        answer = b""
        began = time.perf_counter()
        for text in texts:
            if entry.kind == "query":
                answer = await publisher.query(text)
            else:
                await publisher.update(text)
        spent[name] = 1000 * (time.perf_counter() - began) / _EACH
        if answer:
            # The IRIs of the messages, which the following kinds of requests name.
            messages = [row["message"]["value"] for row in json.loads(answer)["results"]["bindings"]]
            if len(messages) != _EACH:
                raise ExperimentError(f"{name} finds {len(messages)} messages where {_EACH} are right")
    return spent


class _ToOneself:
    """The agents of one person that sends messages to itself."""

    def __init__(self, endpoints: dict[str, str]) -> None:
        self._endpoints = endpoints
        self._issued: dict[Term, float] = {}
        """Expected notifications: text or IRI of a message -> time at which its update was sent."""
        self._notified: list[float] = []
        self._gone = 0
        self._all_gone = asyncio.Event()

    async def send(self, count: int) -> dict[str, float]:
        """Send messages one after the other, wait until all are removed, and return the figures."""
        app = Application(self._profile(), stop_on_error=True)
        joined = asyncio.Barrier(3)  # both aggregators with their first results, and the sender

        @app.aggregator("SENT", "SET_RECEIVED", receiver=_ME)
        async def receiver(change: Notification, set_received: Pipeline) -> None:
            if not change.sequence:
                await joined.wait()
            for row in change.added:
                self._record_latency(row["text"])
                self._issued[row["message"]] = time.perf_counter()
                await set_received(message=row["message"])
            self._gone += len(change.removed)
            if self._gone == count:
                self._all_gone.set()

        @app.aggregator("RECEIVED", "REMOVE", sender=_ME)
        async def remover(change: Notification, remove: Pipeline) -> None:
            if not change.sequence:
                await joined.wait()
            for row in change.added:
                self._record_latency(row["message"])
                await remove(message=row["message"])

        spent, answered = 0.0, []

        async def sender() -> None:
            nonlocal spent
            await joined.wait()
            await app.producer("REMOVE").produce(message=_ME)  # no such message; the first request opens the connection
            send = app.producer("SEND")
            began = time.perf_counter()
            for number in range(count):
                text = ox.Literal(f"message {number}")
                self._issued[text] = issued = time.perf_counter()
                await send.produce(text=text, sender=_ME, receiver=_ME)
                answered.append(1000 * (time.perf_counter() - issued))
            async with asyncio.timeout(_PATIENCE):
                await self._all_gone.wait()
            spent = time.perf_counter() - began

        await app.serve(sender)
        await self._check(count)
        return {
            "message_ms": 1000 * spent / count,
            "answer_p50_ms": statistics.median(answered),
            "notified_p50_ms": statistics.median(self._notified),
            "notified_p99_ms": statistics.quantiles(self._notified, n=100, method="inclusive")[98],
            "notified_max_ms": max(self._notified),
        }

    def _record_latency(self, subject: Term) -> None:
        self._notified.append(1000 * (time.perf_counter() - self._issued.pop(subject)))

    def _profile(self) -> Profile:
        http, ws = (urlsplit(self._endpoints[name]).port for name in ("http", "ws"))
        here = {
            "include": str(PROFILE),
            "host": "127.0.0.1",
            "sparql11protocol": {"port": http},
            "sparql11seprotocol": {"availableProtocols": {"ws": {"port": ws}}},
        }
        return Profile.parse(json.dumps(here))

    async def _check(self, count: int) -> None:
        """Raise `ExperimentError` if a message was lost, notified twice or not removed."""
        url = self._endpoints["http"]
        async with Client(Endpoints(f"{url}/query", f"{url}/update", self._endpoints["ws"])) as client:
            left = len(await client.select("SELECT ?message { ?message a <http://schema.org/Message> }"))
        if self._issued or len(self._notified) != 2 * count or left:
            raise ExperimentError(
                f"{len(self._issued)} updates without a notification, {left} messages left: both should be 0"
            )


@contextmanager
def _bare_endpoint() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "edge.bench.endpoint"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
