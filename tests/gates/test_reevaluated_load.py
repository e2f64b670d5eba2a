"""Two hundred re-evaluated subscriptions: no update waits for them, and all reach the right result."""

from __future__ import annotations

import json
import threading
from collections import Counter
from unittest import mock

from gate_client import rows

from edge.engine.queries.evaluator import Evaluator, World

COUNT = 200
UPDATES = 4


def query(number: int) -> str:
    return f"SELECT DISTINCT ?v {{ ?s <urn:p> ?v }} ORDER BY DESC(?v) LIMIT {number + 1}"


async def test_updates_wait_for_no_evaluation_and_every_subscriber_converges(gateway):
    subscriber = await gateway.client()
    results: dict[str, Counter] = {}
    for number in range(COUNT):
        first = await subscriber.subscribe(query(number), alias=str(number))
        assert first["sequence"] == 0
        results[str(number)] = Counter()
    door = threading.Event()
    read = World.read

    def wait_and_read(self: World, evaluator: Evaluator, now: int) -> object:
        assert door.wait(60)
        return read(self, evaluator, now)

    with mock.patch.object(World, "read", wait_and_read):
        try:
            for value in range(UPDATES):  # answered while no evaluation can end
                await gateway.update(f"INSERT DATA {{ <urn:s{value}> <urn:p> {value} }}")
            other = await gateway.client()
            assert rows((await other.subscribe("SELECT ?v { <urn:s1> <urn:p> ?v }"))["addedResults"]) == [("1",)]
        finally:
            door.set()
    right = {str(n): Counter((str(v),) for v in range(UPDATES)[-(n + 1) :]) for n in range(COUNT)}
    sequences = Counter(dict.fromkeys(results, 0))
    while results != right:
        received = await subscriber.notification()
        alias = received["alias"]
        sequences[alias] += received.get("merged", 1)
        assert received["sequence"] == sequences[alias]
        removed = Counter(rows(received["removedResults"]))
        assert removed <= results[alias], json.dumps(received)
        results[alias] = results[alias] - removed + Counter(rows(received["addedResults"]))
    assert sum(sequences.values()) < COUNT * UPDATES, "states were skipped"
