"""Each reading is applied once and in order, whichever connection, broker or gateway fails. Real Mosquitto and
processes.

`EDGE_WAITING_READINGS=100000` sets the number of readings that wait for the gateway.
"""

import contextlib
import os
import random
import select
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from adapter_parts import Publisher

from edge.engine.journal.journal import Journal
from tests.support.processes import Mosquitto
from tests.support.waiting import wait_for

WAITING = int(os.environ.get("EDGE_WAITING_READINGS", "3000"))
WAVE = 20_000
PATIENCE = max(180, WAITING // 100)
"""Seconds until the test gives up."""
TOPIC = "room/kitchen/temperature"

GATEWAY = """
    import os, sys, threading
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from adapter_parts import Gateway, value_of
    from edge.adapters.observations import Observations
    from edge.engine.start import open_engine
    from edge.engine.settings import EngineSettings
    from tests.support.waiting import wait_for

    engine = open_engine(Path({data!r}), EngineSettings(snapshot_min_bytes=1 << 40))
    observations = Observations(engine)
    observations.start()
    settings = {{"version": {version!r}, "max_inflight": 65535, "max_batch": {max_batch}, "reconnect_max": 0.2}}
    gateway = Gateway(engine, observations, {url!r}, **settings)
    gateway.__enter__()
    wait_for(lambda: gateway.adapter.subscribed, seconds={patience}, what="the adapter is subscribed")
    print("subscribed", flush=True)
    while True:
        sys.stdin.readline()
        value = value_of(engine, "http://example.org/kitchen-temperature")
        adapter = gateway.adapter
        print(adapter.written, value or -1, adapter.duplicates, int(adapter.subscribed), flush=True)
"""


class State(NamedTuple):
    """Progress of a gateway."""

    written: int
    """Messages that the gateway has applied."""
    value: int
    """The last value, or -1 if there is none."""
    duplicates: int
    """Messages that the gateway recognized as duplicates."""
    subscribed: int
    """1 if the adapter is subscribed."""


class GatewayOfOurs:
    """A gateway in a separate process, over a connection that the test can cut."""

    def __init__(self, data, url, version, max_batch=100):
        program = textwrap.dedent(GATEWAY).format(
            tests=str(Path(__file__).parent),
            data=str(data),
            url=url,
            version=version,
            patience=PATIENCE,
            max_batch=max_batch,
        )
        self._process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert self._process.stdout.readline() == b"subscribed\n"
        except BaseException:
            self.kill()
            raise

    def state(self):
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return State(*map(int, self._process.stdout.readline().split()))

    def kill(self):
        self._process.kill()
        self._process.communicate()


class Cable:
    """A TCP forwarder that can break its connections without a close handshake."""

    def __init__(self, port):
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._server.getsockname()[1]}"
        self._pairs = []
        self._closed = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def cut(self):
        for sockets in self._pairs:
            for each in sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._closed = True
        self.cut()
        self._thread.join()
        self._server.close()

    def _serve(self):
        while not self._closed:
            ready, _, _ = select.select([self._server, *(each for pair in self._pairs for each in pair)], [], [], 0.05)
            if self._server in ready:
                near, _ = self._server.accept()
                try:
                    self._pairs.append((near, socket.create_connection(("127.0.0.1", self._target))))
                except OSError:
                    near.close()
            for pair in list(self._pairs):
                if any(each in ready and not self._forward(each, other) for each, other in (pair, pair[::-1])):
                    self._pairs.remove(pair)
                    for each in pair:
                        each.close()
        for pair in self._pairs:
            for each in pair:
                each.close()

    @staticmethod
    def _forward(near, far):
        try:
            data = near.recv(4096)
            far.sendall(data)
        except OSError:
            return False
        return bool(data)


def publish(port, values, others=0):
    """Publish readings and wait for the broker.

    They go in waves, because a client has at most 65,535 packet identifiers. `others`: send a message without a mapping
    after each such number of readings; 0 sends none.
    """
    with Publisher(port) as publisher:
        for first in range(0, len(values), WAVE):
            for number, value in enumerate(values[first : first + WAVE], 1):
                last = publisher.client.publish(TOPIC, str(value), 1)
                if others and number % others == 0:
                    last = publisher.client.publish("elsewhere", str(value), 1)
            last.wait_for_publish(PATIENCE)
            assert last.is_published(), "the broker does not acknowledge"


def applied(data):
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


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize(
    ("version", "inflight", "faults"),
    [
        ("3.1.1", 0, "cut"),
        ("5", 0, "cut"),
        ("3.1.1", 0, "broker"),
        ("5", 20, "broker"),
        ("3.1.1", 1000, "cut gateway broker"),
        ("5", 0, "cut gateway broker"),
        ("3.1.1", 1, "cut gateway"),
    ],
)
def test_waiting_readings_are_applied_once_and_in_order(tmp_path, version, inflight, faults):
    total = min(WAITING, 500) if inflight == 1 else WAITING
    chance = random.Random(f"{version} {inflight} {faults}")
    # The broker saves its state at intervals. After a kill it restarts from an older state and repeats messages.
    saved = f"autosave_on_changes true\nautosave_interval {max(300, total // 20)}\n"
    broker = Mosquitto(tmp_path / "broker", f"max_inflight_messages {inflight}\nmax_queued_bytes 0\n{saved}")
    broker.start()
    cable = Cable(broker.port)
    gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
    try:
        gateway.kill()
        publish(broker.port, range(total))
        broker.stop()
        broker.start()
        gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
        value = -1
        for _ in range(6):
            wanted = min(total - 1, value + chance.randrange(total // 8))
            wait_for(lambda: gateway.state().value >= wanted, seconds=PATIENCE)  # noqa: B023
            fault = chance.choice(faults.split())
            if fault == "cut":
                cable.cut()
            elif fault == "broker":
                broker.stop(kill=True)
                broker.start()
            else:
                gateway.kill()
                gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
            value = gateway.state().value
        publish(broker.port, [total])
        wait_for(lambda: gateway.state().value == total, seconds=PATIENCE)
        # Repeated messages arrive before new ones, so all of them have arrived before the last value.
    finally:
        gateway.kill()
        cable.close()
        broker.stop()
    assert applied(tmp_path / "data") == list(range(total + 1))


@pytest.mark.timeout(3 * PATIENCE)
@pytest.mark.parametrize(
    ("version", "inflight", "faults"), [("3.1.1", 0, "cut"), ("5", 20, "gateway"), ("3.1.1", 1000, "cut gateway")]
)
def test_a_broker_that_falls_back_by_thousands_of_messages_has_none_applied_again(tmp_path, version, inflight, faults):
    """The saved state of the broker is older than the delivery of the waiting readings and than the later ones."""
    total = min(WAITING, 20_000)
    chance = random.Random(f"{version} {inflight} {faults}")
    broker = Mosquitto(tmp_path / "broker", f"max_inflight_messages {inflight}\nautosave_interval 0\n")
    broker.start()
    cable = Cable(broker.port)
    gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
    try:
        gateway.kill()
        publish(broker.port, range(total), others=7)
        broker.save()
        gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
        for last in (2 * total, 2 * total + 50, 2 * total + 100):
            wait_for(lambda: gateway.state().value >= total - 1, seconds=PATIENCE)  # noqa: B023
            publish(broker.port, range(total if last == 2 * total else last - 50, last), others=7)
            wait_for(lambda: gateway.state().value == last - 1, seconds=PATIENCE)  # noqa: B023
            broker.stop(kill=True)
            broker.start()
            for fault in faults.split():
                if fault == "cut":
                    known = gateway.state().duplicates + chance.randrange(total)
                    wait_for(lambda: gateway.state().duplicates >= known, seconds=PATIENCE)  # noqa: B023
                    cable.cut()
                else:
                    gateway.kill()
                    gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
        publish(broker.port, [last])
        wait_for(lambda: gateway.state().value == last, seconds=PATIENCE)
    finally:
        gateway.kill()
        cable.close()
        broker.stop()
    assert applied(tmp_path / "data") == list(range(last + 1))


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_new_message_that_equals_one_that_the_broker_lost_is_taken_for_it(tmp_path, version):
    """The first messages after the fall-back are compared until one differs, at most as many as the broker lost."""
    broker = Mosquitto(tmp_path / "broker", "autosave_interval 0\n")
    broker.start()
    gateway = GatewayOfOurs(tmp_path / "data", broker.url, version)

    def carried_out(values):
        """Return how many of these messages are applied. The last one differs from the lost messages."""
        before = gateway.state().written
        publish(broker.port, values)
        wait_for(lambda: gateway.state().value == values[-1], what="the last value")
        return gateway.state().written - before

    def fall_back():
        broker.stop(kill=True)
        wait_for(lambda: not gateway.state().subscribed, what="the gateway misses the broker")
        broker.start()
        wait_for(lambda: gateway.state().subscribed, what="the gateway is connected again")

    try:
        assert carried_out([1, 2]) == 2
        broker.save()
        assert carried_out([3, 4]) == 2
        fall_back()
        assert carried_out([3, 5]) == 1
        fall_back()
        assert carried_out([6, 5, 7]) == 3, "the lost messages were 3 and 5, and 6 differs"
    finally:
        gateway.kill()
        broker.stop()


def test_a_broker_that_falls_back_repeats_messages_without_a_mapping_too(tmp_path):
    """The gateway restarts. It recognizes messages without an own commit by the stored receipts."""
    broker = Mosquitto(tmp_path / "broker", "autosave_interval 0\n")
    broker.start()
    gateway = GatewayOfOurs(tmp_path / "data", broker.url, "3.1.1")
    try:
        broker.save()
        gateway.kill()
        publish(broker.port, [1], others=1)
        publish(broker.port, [2, 3])
        broker.save()
        gateway = GatewayOfOurs(tmp_path / "data", broker.url, "3.1.1", max_batch=1)
        wait_for(lambda: gateway.state().value == 3, what="the last reading")
        gateway.kill()
        broker.stop(kill=True)
        broker.start()
        gateway = GatewayOfOurs(tmp_path / "data", broker.url, "3.1.1")
        publish(broker.port, [4])
        wait_for(lambda: gateway.state().value == 4, what="the new reading")
    finally:
        gateway.kill()
        broker.stop()
    assert applied(tmp_path / "data") == [1, 2, 3, 4]
