"""Clients that overload a gateway, each in its own process: `python -m edge.bench.attacks NAME HTTP WS SIZE`.

An attack prints the line "begun" as soon as it loads the gateway. It continues until its standard input is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from websockets.asyncio.client import ClientConnection, connect

from edge.bench.experiment import ExperimentError
from edge.bench.gateway import SparqlConnection

NODES: Final = 670
"""Nodes with a number. The engine needs about a second to compare all pairs of them."""
CHAIN: Final = 3_000
"""Nodes of a linked list. A property path of arbitrary length through them has millions of solutions."""

_PAIRS: Final = "{ ?a <urn:n> ?x . ?b <urn:n> ?y FILTER(?x + ?y < 0) }"
_CONNECTIONS: Final = 10
_BITS: Final = 14
"""Filters of a query, each with one of two operators. They yield 16,384 queries with different fingerprints."""


def seed() -> str:
    """Return an update that inserts the data of the attacks."""
    nodes = [f"<urn:node:{number}> <urn:n> {number}" for number in range(NODES)]
    chain = [f"<urn:link:{number}> <urn:next> <urn:link:{number + 1}>" for number in range(CHAIN)]
    return "INSERT DATA { " + " . ".join(nodes + chain) + " }"


@dataclass(frozen=True, slots=True)
class AttackTarget:
    """The attacked gateway."""

    http: str
    ws: str
    small: bool
    begun: asyncio.Event
    """The attack sets it as soon as it loads the gateway."""

    def many(self, count: int) -> int:
        """Return `count`, or a tenth of it in a short run."""
        return count // 10 if self.small else count


async def updates(target: AttackTarget) -> None:
    """Keep 40 updates waiting that take about a second each."""
    async with _socket(target) as socket:
        text = f"INSERT {{ <urn:x> <urn:found> ?a }} WHERE {_PAIRS}"
        # `iter(int, 1)` is endless: `int()` is never 1.
        await _keep_waiting(socket, target, (_update(text) for _ in iter(int, 1)), 40)


async def general(target: AttackTarget) -> None:
    """Keep 20 updates waiting whose WHERE clauses Oxigraph evaluates, because they contain property paths."""
    async with _socket(target) as socket:
        text = "INSERT { <urn:x> <urn:found> ?a } WHERE { ?a <urn:next>+ ?b . ?b <urn:next>+ ?c FILTER(?a = ?c) }"
        await _keep_waiting(socket, target, (_update(text) for _ in iter(int, 1)), 20)


async def timers(target: AttackTarget) -> None:
    """Schedule 36,000 delayed updates for the same time."""
    count = target.many(36_000)
    # Leave time for scheduling all of them before the first is due: 6 s, and 0.5 ms each.
    due = time.time() + 6 + count / 2_000
    at = int(due * 1_000_000)
    async with _socket(target) as socket:

        async def receive() -> None:
            for _ in range(count):
                await socket.recv()

        receiving = asyncio.create_task(receive())
        for number in range(count):
            text = f"INSERT DATA {{ <urn:timer:{number}> <urn:fired> {number} }}"
            await socket.send(json.dumps({"update": {"sparql": text, "at": at, "id": f"{number}"}}))
        await receiving
        await asyncio.sleep(max(0.0, due - time.time()))
        target.begun.set()
        await asyncio.Future()


async def insert(target: AttackTarget) -> None:
    """Send INSERT DATA of 6 MB over each of two connections, without a pause."""
    size = target.many(80_000)
    triples = (f"<urn:big:NUMBER:{one}> <urn:value> 'a value of a few words {one}'" for one in range(size))
    # Made once: the attacker's own work would take processor time that belongs to the gateway.
    text = "INSERT DATA { " + " . ".join(triples) + " }"

    def texts() -> Iterator[str]:
        for number in _count():
            yield text.replace("NUMBER", str(number))

    await asyncio.gather(*(_post(target, texts(), "update") for _ in range(2)))


async def values(target: AttackTarget) -> None:
    """Send queries with VALUES of 100,000 rows over each of two connections, without a pause."""
    rows = " ".join(f"<urn:node:{number}>" for number in range(target.many(100_000)))

    def texts() -> Iterator[str]:
        # The first row makes each text unique, so that caches of the engine do not help.
        for number in _count():
            yield f"SELECT ?a ?x {{ VALUES ?a {{ <urn:other:{number}> {rows} }} ?a <urn:n> ?x }}"

    await asyncio.gather(*(_post(target, texts(), "query") for _ in range(2)))


async def subscriptions(target: AttackTarget) -> None:
    """Keep 30 subscriptions waiting whose first results take about a second each."""
    async with _socket(target) as socket:
        texts = (f"SELECT ?a {{ ?a <urn:n> ?x . ?b <urn:n> ?y FILTER(?x + ?y < -{n}) }}" for n in _count())
        await _keep_waiting(socket, target, (_subscribe(text) for text in texts), 30)


async def shapes(target: AttackTarget) -> None:
    """Subscribe to 10,000 queries with different fingerprints over ten connections: no two share a compiled plan."""
    count = target.many(10_000) // _CONNECTIONS

    async def some(first: int) -> None:
        async with _socket(target) as socket:
            texts = (_shape(number) for number in range(first, first + count))
            await _keep_waiting(socket, target, (_subscribe(text) for text in texts), 20)
            await asyncio.Future()

    await asyncio.gather(*(some(number * count) for number in range(_CONNECTIONS)))


async def distinct(target: AttackTarget) -> None:
    """Hold 50 subscriptions with DISTINCT and LIMIT. Every update affects all of them."""
    async with _socket(target) as socket:
        for number in range(50):
            query = f"SELECT DISTINCT ?s {{ ?s ?p ?o . ?s <urn:n> ?x FILTER(?x > {number}) }} ORDER BY ?x LIMIT 10"
            await socket.send(_subscribe(query))
            await socket.recv()
        target.begun.set()
        while True:
            await socket.recv()


ATTACKS: Final[dict[str, Callable[[AttackTarget], Awaitable[None]]]] = {
    attack.__name__: attack for attack in (updates, general, timers, insert, subscriptions, shapes, values, distinct)
}


def _shape(number: int) -> str:
    """Return a query whose fingerprint is unique for each number below 16,384.

    Constants do not count in a fingerprint, but operators do: each bit of the number selects the operator of a filter.
    """
    filters = " ".join(f"FILTER(?x {'>' if number >> bit & 1 else '<'} {bit - 1})" for bit in range(_BITS))
    return f"SELECT ?a {{ ?a <urn:n> ?x . ?a <urn:shape:{number}> ?y {filters} }}"


def _count() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


def _update(text: str) -> str:
    return json.dumps({"update": {"sparql": text}})


def _subscribe(text: str) -> str:
    return json.dumps({"subscribe": {"sparql": text}})


@asynccontextmanager
async def _socket(target: AttackTarget) -> AsyncIterator[ClientConnection]:
    # Without pings: the client must not disconnect from a gateway that answers late under its attack.
    async with connect(target.ws, proxy=None, max_size=None, ping_interval=None) as socket:
        yield socket


async def _keep_waiting(socket: ClientConnection, target: AttackTarget, messages: Iterator[str], waiting: int) -> None:
    """Send messages so that `waiting` of them are always unanswered. Ignore the content of the answers."""
    for number, message in enumerate(messages):
        await socket.send(message)
        if number >= waiting:
            target.begun.set()
            await socket.recv()
    target.begun.set()


async def _post(target: AttackTarget, texts: Iterator[str], primitive: str) -> None:
    while True:
        async with SparqlConnection(target.http) as publisher:
            with contextlib.suppress(ExperimentError, asyncio.IncompleteReadError, OSError):
                for text in texts:
                    target.begun.set()
                    await (publisher.update(text) if primitive == "update" else publisher.query(text))
        await asyncio.sleep(0.05)  # the gateway refused the request or closed the connection: try again


async def _main(name: str, http: str, ws: str, size: str) -> None:
    target = AttackTarget(http, ws, size == "small", asyncio.Event())
    attack = asyncio.ensure_future(ATTACKS[name](target))
    begun = asyncio.create_task(target.begun.wait())
    await asyncio.wait([attack, begun], return_when=asyncio.FIRST_COMPLETED)
    if begun.done():
        print("begun", flush=True)
    # `read` blocks until the benchmark closes the pipe; a benchmark that dies closes it, too.
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait([attack, ended], return_when=asyncio.FIRST_COMPLETED)
    if attack.done():
        attack.result()  # raises the exception of a failed attack
        await ended


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(*sys.argv[1:]))
