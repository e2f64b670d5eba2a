"""A gateway that is killed between the parts of a message continues after the last committed one. Real Mosquitto."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from adapter_parts import Publisher

from edge.engine.journal.journal import Journal
from tests.support.processes import Mosquitto

SIZE = 60
"""Readings of a message: six parts."""
MESSAGES = 3
LIVES = (1, 2, 1, 3, 4, 2)
"""Number of transactions after which each gateway process kills itself."""

GATEWAY = """
    import os, signal, sys, threading
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from adapter_parts import Gateway, value_of
    from edge.adapters.observations import Observations
    from edge.engine.start import open_engine
    from tests.support.waiting import wait_for

    class Mortal:
        \"\"\"An engine whose process is killed between a commit and the report of it.\"\"\"

        def __init__(self, engine, transactions):
            self.engine = engine
            self.left = transactions

        def write(self, requests, receipt, done):
            def kill(error):
                self.left -= 1
                if not self.left:
                    os.kill(os.getpid(), signal.SIGKILL)
                done(error)

            self.engine.write(requests, receipt, kill)

        def __getattr__(self, name):
            return getattr(self.engine, name)

    engine = open_engine(Path({data!r}))
    observations = Observations(Mortal(engine, {transactions}))
    observations.start()
    with Gateway(engine, observations, {url!r}, version={version!r}, max_batch=10, qos=2).connected():
        if {last} >= 0:
            wait_for(lambda: value_of(engine, "http://example.org/kitchen-temperature") == "{last}")
    engine.close()
"""


def run_gateway(data: Path, url: str, version: str, *, transactions: int = 0, last: int = -1) -> int:
    """Run a gateway until it is killed, or its last value is `last`. Return the exit code."""
    tests = str(Path(__file__).parent)
    program = textwrap.dedent(GATEWAY).format(
        tests=tests, data=str(data), url=url, version=version, transactions=transactions, last=last
    )
    return subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode


def applied(data: Path) -> list[int]:
    """Return the values in the order in which they entered the graph."""
    journal = Journal.open(data)
    try:
        return [
            int(quad.object.value)
            for changes in journal.restore()
            for quad in changes.added
            if quad.predicate.value.endswith("numericValue")
        ]
    finally:
        journal.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("version", "falls_back"), [("3.1.1", False), ("5", False), ("3.1.1", True), ("5", True)])
def test_each_reading_is_applied_once_and_in_order(tmp_path, version, falls_back):
    """`falls_back`: the broker is killed too, and repeats the messages without the DUP flag."""
    data, total = tmp_path / "data", MESSAGES * SIZE
    broker = Mosquitto(tmp_path / "broker", "max_inflight_messages 0\nautosave_interval 0\n")
    broker.start()
    try:
        assert run_gateway(data, broker.url, version) == 0
        with Publisher(broker.port) as publisher:
            for first in range(0, total, SIZE):
                publisher.publish("room/kitchen/log", list(range(first, first + SIZE)), 1 + first // SIZE % 2)
        broker.save()
        committed = 0
        for transactions in LIVES:
            assert run_gateway(data, broker.url, version, transactions=transactions, last=total) == -signal.SIGKILL
            committed += 10 * transactions
            assert applied(data) == list(range(committed))
            if falls_back:
                broker.stop(kill=True)
                broker.start()
        with Publisher(broker.port) as publisher:
            publisher.publish("room/kitchen/temperature", total)
        assert run_gateway(data, broker.url, version, last=total) == 0
    finally:
        broker.stop()
    assert applied(data) == list(range(total + 1))
