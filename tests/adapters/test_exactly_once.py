"""Every reading once and in order, whatever ends when: connections, brokers and gateways, with Mosquitto and processes.

`EDGE_WAITING_READINGS=100000` lets so many readings wait for the gateway.
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

import pytest
from adapter_parts import Publisher

from edge.engine.journal import Journal
from tests.support.processes import Mosquitto, wait_for

WAITING = int(os.environ.get("EDGE_WAITING_READINGS", "3000"))
TOPIC = "room/kitchen/temperature"

GATEWAY = """
    import os, sys, threading
    from pathlib import Path
    sys.path.insert(0, {tests!r})
    from adapter_parts import Gateway, value_of
    from edge.adapters.observations import Observations
    from edge.engine import open_engine
    from edge.engine.settings import EngineSettings

    engine = open_engine(Path({data!r}), EngineSettings(snapshot_min_bytes=1 << 40))
    observations = Observations(engine)
    observations.start()
    gateway = Gateway(engine, observations, {url!r}, version={version!r}, max_inflight=65535, reconnect_max=0.2)
    gateway.connected()
    print("subscribed", flush=True)
    while True:
        sys.stdin.readline()
        print(gateway.adapter.written, value_of(engine, "http://example.org/kitchen-temperature"), flush=True)
"""


class GatewayOfOurs:
    """A gateway in a process of its own, over a connection that the test can cut."""

    def __init__(self, data, url, version):
        program = textwrap.dedent(GATEWAY).format(
            tests=str(Path(__file__).parent), data=str(data), url=url, version=version
        )
        self._process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout.readline() == b"subscribed\n"

    def state(self):
        """How many messages it has carried out, and the last value."""
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        written, value = self._process.stdout.readline().decode().split()
        return int(written), -1 if value == "None" else int(value)

    def kill(self):
        self._process.kill()
        self._process.communicate()


class Cable:
    """Forwards connections to a port, and breaks them without a word."""

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


def applied(data):
    """The values in the order in which they came into the graph."""
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


@pytest.mark.timeout(600)
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
    # The broker saves its state every 300 changes: killed, it falls back to an older one, and repeats messages.
    saved = "autosave_on_changes true\nautosave_interval 300\n"
    broker = Mosquitto(tmp_path / "broker", f"max_inflight_messages {inflight}\n{saved}")
    broker.start()
    cable = Cable(broker.port)
    gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
    try:
        gateway.kill()
        with Publisher(broker.port) as publisher:
            for number in range(total - 1):
                publisher.client.publish(TOPIC, str(number), 1)
            publisher.publish(TOPIC, total - 1)
        broker.stop()
        broker.start()
        gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
        value = -1
        for _ in range(6):
            wanted = min(total - 1, value + chance.randrange(total // 8))
            wait_for(lambda: gateway.state()[1] >= wanted, 180)  # noqa: B023
            fault = chance.choice(faults.split())
            if fault == "cut":
                cable.cut()
            elif fault == "broker":
                broker.stop(kill=True)
                broker.start()
            else:
                gateway.kill()
                gateway = GatewayOfOurs(tmp_path / "data", cable.url, version)
            _, value = gateway.state()
        with Publisher(broker.port) as publisher:
            publisher.publish(TOPIC, total)
        wait_for(lambda: gateway.state()[1] == total, 180)
        # What comes again comes before what is new: so it came before that last value.
    finally:
        gateway.kill()
        cable.close()
        broker.stop()
    assert applied(tmp_path / "data") == list(range(total + 1))
