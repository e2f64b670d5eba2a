"""Repeated messages of clients: the memory of the gateway stays flat, and other clients are served meanwhile.

Each case sends a bounded number of bytes; `EDGE_TEST_HELD_SECONDS=60` sends for that long instead.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import paho.mqtt.client as paho
import pytest
from aiocoap import CON, FETCH, POST, Code, Message
from support.machine_speed import slowness
from support.processes import GatewayProcess
from support.waiting import PATIENCE
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

MIB = 1024 * 1024
SECONDS = float(os.environ.get("EDGE_TEST_HELD_SECONDS", "0"))
BYTES = 8 * MIB
"""Bytes that one attacker sends if no time is given."""
ROOM = 24 * MIB
"""Permitted growth of the process: the limits of these gateways, the allocator's overhead, and the memory of one chunk.
"""
LIMITS = {
    "EDGE__LIMITS__MAX_CLIENT_BYTES": str(4 * MIB),
    "EDGE__LIMITS__MAX_TOTAL_BYTES": str(8 * MIB),
    "EDGE__MQTT__MAX_RETAINED_BYTES": str(4 * MIB),
    "EDGE__ENGINE__MAX_TIMER_BYTES": str(4 * MIB),
    "EDGE__COAP__ENABLED": "true",
    "EDGE__COAP__PORT": "0",
    "EDGE__LIMITS__RATE": "0",
}

OPEN = (
    b"GET /subscribe HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
ALL = "SELECT * WHERE { ?s ?p ?o }"


class Harness:
    """A gateway under attack."""

    def __init__(self, gateway: GatewayProcess, endpoints: dict[str, str]) -> None:
        self.gateway = gateway
        self.endpoints = endpoints

    @property
    def rss(self) -> int:
        status = Path(f"/proc/{self.gateway.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    @property
    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.gateway.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def tcp(self, service: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", urlsplit(self.endpoints[service]).port), 20)

    def serves(self) -> None:
        """Check that another client is answered."""
        with connect(self.endpoints["ws"], open_timeout=20) as other:
            other.send(json.dumps({"query": {"sparql": "ASK {}"}}))
            assert json.loads(other.recv(20))["result"]["boolean"] is True


@pytest.fixture
def harness(tmp_path) -> Iterator[Harness]:
    gateway = GatewayProcess(tmp_path, LIMITS)
    harness = Harness(gateway, gateway.start())
    harness.serves()
    yield harness
    gateway.stop()


@pytest.fixture(autouse=True)
def _report(request: pytest.FixtureRequest, harness: Harness) -> Iterator[None]:
    """Report the memory of the process before and after (`pytest -s`)."""
    before = harness.rss
    yield
    print(f"\n{request.node.name}: {before // 1024} KiB before, {harness.rss // 1024} KiB after")


def answer_of(client: ClientConnection) -> dict[str, Any]:
    """Return the next answer; skip notifications, which the gateway's observations of its host cause."""
    while True:
        message: dict[str, Any] = json.loads(client.recv(20))
        if not message.get("notification", {}).get("sequence"):
            return message


def keep_on(once: Callable[[], int], most: int = BYTES) -> None:
    """Repeat a function that sends and returns the number of bytes, until enough is sent or the time is over."""
    sent, end = 0, time.monotonic() + SECONDS
    while sent < most if not SECONDS else time.monotonic() < end:
        sent += once()


def flood(harness: Harness, first: bytes, frame: bytes, *, read: bool, patience: float = 0.5) -> bytes:
    """Send a frame repeatedly, on new connections when one is closed; return the last answer.

    `patience`: seconds to wait for a gateway that does not read or answer.
    """
    chunk, received = frame * (65536 // len(frame)), b""

    def once() -> int:
        nonlocal received
        sent, answers = 0, b""
        with harness.tcp("ws") as client:
            client.sendall(OPEN)
            client.recv(4096)
            client.settimeout(patience)
            with suppress(OSError):
                client.sendall(first)
                while sent < MIB:
                    client.sendall(chunk)
                    sent += len(chunk)
                    if read:
                        answers = (answers + client.recv(MIB))[-300:]
            with suppress(OSError):
                while part := client.recv(65536):
                    answers = (answers + part)[-300:]
        received = answers
        return sent + len(chunk)

    keep_on(once)
    return received


FRAMES = [
    ("empty fragments", b"\x01\x80abcd", b"\x00\x80abcd", b"too many fragments"),
    ("small fragments", b"\x01\x80abcd", b"\x00\x81abcdx", b"too many fragments"),
    ("unread pings", b"", b"\x89\xfdabcd" + b"x" * 125, b""),
    ("empty pings", b"", b"\x89\x80abcd", b""),
    ("empty pongs", b"", b"\x8a\x80abcd", b"too many small fragments, pings or pongs"),
]


@pytest.mark.parametrize(
    ("first", "frame", "received"), [case[1:] for case in FRAMES], ids=[case[0] for case in FRAMES]
)
def test_frames_that_carry_nothing_take_neither_memory_nor_time(harness, first, frame, received):
    before, busy, slow = harness.rss, harness.processor_seconds, slowness()
    patience = PATIENCE if received else 0.5  # without an answer, the gateway stops reading
    assert received in flood(harness, first, frame, read=False, patience=patience)
    assert harness.rss - before < ROOM
    if not SECONDS:  # a frame takes 2 us: the number of sent frames would take 0.4 to 2.7 s
        # The machine may have been slower during the flood than it is now.
        assert harness.processor_seconds - busy < 2.0 * max(slow, slowness())
    harness.serves()


def test_messages_that_are_never_completed_share_one_limit(harness):
    """Each connection may hold `ws.max_message`; before authentication, all share the total limit."""
    before = harness.rss
    clients = []
    for _ in range(40):
        client = harness.tcp("ws")
        client.sendall(OPEN)
        client.recv(4096)
        client.settimeout(0.5)
        with suppress(OSError):  # disconnected: 1013, try again later
            client.sendall(b"\x01\xff" + (MIB).to_bytes(8) + b"abcd" + b"x" * (MIB - 1000))
        clients.append(client)
    assert harness.rss - before < ROOM
    for client in clients:
        client.close()
    harness.serves()


def test_a_long_alias_is_refused_and_not_sent_back(harness):
    before = harness.rss
    with connect(harness.endpoints["ws"], max_size=None) as client:
        message = json.dumps({"subscribe": {"sparql": ALL, "alias": "a" * (MIB - 1000)}})

        def once() -> int:
            client.send(message)
            error = answer_of(client)
            assert (error["error"], "alias" in error) == ("invalid_request", False)
            assert "give it 1024 at most" in error["error_description"]
            return len(message)

        keep_on(once)
        assert harness.rss - before < ROOM
        client.send(json.dumps({"subscribe": {"sparql": ALL, "alias": "a" * 1024}}))
        assert json.loads(client.recv(20))["notification"]["alias"] == "a" * 1024


def test_a_message_in_many_fragments_is_still_taken(harness):
    """A client may split a message into up to a few thousand fragments."""
    with connect(harness.endpoints["ws"]) as client:
        text = json.dumps({"query": {"sparql": "ASK {}" + " " * 100_000}})
        client.send(text[start : start + 100] for start in range(0, len(text), 100))
        assert json.loads(client.recv(20))["result"]["boolean"] is True
        with suppress(ConnectionClosed):
            client.send("" for _ in range(100_000))
        with pytest.raises(ConnectionClosed, match="fragments"):
            client.recv(20)


def test_texts_of_subscriptions_are_bounded_and_released(harness):
    before = harness.rss
    sparql = ALL + " # " + "x" * 200_000
    with connect(harness.endpoints["ws"], max_size=None) as client:
        spuids: list[str] = []
        refused = ""

        def subscribe(alias: str) -> None:
            nonlocal refused
            client.send(json.dumps({"subscribe": {"sparql": sparql + alias, "alias": alias}}))
            answer = answer_of(client)
            if "notification" in answer:
                assert answer["notification"]["alias"] == alias
                spuids.append(answer["notification"]["spuid"])
            else:
                assert (answer["status_code"], answer["alias"]) == (429, alias)
                refused = answer["error_description"]

        def once() -> int:
            subscribe(f"a{time.monotonic_ns()}")
            return len(sparql)

        keep_on(once, 40 * MIB)
        assert "limits.max_client_bytes" in refused
        assert len(spuids) == 5, "each counts 4 times its 200 KB"
        assert harness.rss - before < ROOM
        client.send(json.dumps({"unsubscribe": {"spuid": spuids.pop()}}))
        assert "unsubscribed" in answer_of(client)
        subscribe("again")
        assert len(spuids) == 5
    harness.serves()


def test_bodies_over_http_share_one_limit_while_they_come(harness):
    before = harness.rss
    head = "POST /update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/sparql-update\r\n"
    request = f"{head}Content-Length: {3 * MIB}\r\n\r\n".encode() + b" " * (3 * MIB - 1000)
    clients, answers = [], []
    for _ in range(20):
        client = harness.tcp("http")
        client.settimeout(1)
        with suppress(OSError):
            client.sendall(request)
        clients.append(client)
        assert harness.rss - before < ROOM
    for client in clients:
        client.settimeout(0.2)
        answer = b""
        with suppress(OSError):
            while part := client.recv(65536):
                answer += part
        answers.append(answer)
        client.close()
    refused = [answer for answer in answers if answer]
    assert len(refused) >= 15
    assert all(answer.startswith(b"HTTP/1.1 429 ") and b"limits.max_total_bytes" in answer for answer in refused)
    harness.serves()


def test_many_header_fields_are_refused(harness):
    before = harness.rss
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X:a\r\n" * 12_000
    clients = []
    for _ in range(50):
        client = harness.tcp("http")
        client.sendall(request)
        clients.append(client)
    for client in clients:
        assert client.recv(65536).startswith(b"HTTP/1.1 431 ")
        client.close()
    assert harness.rss - before < ROOM


def test_answers_and_notifications_that_are_not_read_are_bounded(harness):
    """Each connection may hold `ws.max_waiting`; all share the total limit."""
    with connect(harness.endpoints["ws"]) as writer:
        writer.send(json.dumps({"update": {"sparql": f'INSERT DATA {{ <urn:a> <urn:b> "{"x" * 500_000}" }}'}}))
        assert "updated" in json.loads(writer.recv(20))
    before = harness.rss
    clients = []
    query = json.dumps({"query": {"sparql": ALL}}).encode()
    frame = b"\x81" + bytes([0x80 | len(query)]) + b"\0\0\0\0" + query
    for _ in range(20):
        client = harness.tcp("ws")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(OPEN)
        client.recv(4096)
        client.sendall(frame * 50)
        clients.append(client)
    end = time.monotonic() + max(3.0, SECONDS)
    most = 0
    while time.monotonic() < end:
        most = max(most, harness.rss)
        time.sleep(0.05)
    assert most - before < 2 * ROOM, "the queries' processes and the answers that are being made come on top"
    for client in clients:
        client.close()
    harness.serves()


def test_first_results_that_are_not_read_are_bounded(harness):
    """Each result is written when its client subscribes; the gateway holds the part that the kernel does not accept."""
    with connect(harness.endpoints["ws"]) as writer:
        values = " ".join(f"<urn:s{number}> <urn:long> '{number} {'x' * 5000}' ." for number in range(100))
        writer.send(json.dumps({"update": {"sparql": f"INSERT DATA {{ {values} }}"}}))
        assert "updated" in json.loads(writer.recv(20))
    before = most = harness.rss
    text = subscription(LONG).encode()
    clients: list[socket.socket] = []

    def once() -> int:
        nonlocal most
        client = harness.tcp("ws")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(OPEN)
        client.recv(4096)
        with suppress(OSError):  # disconnected: 1013, try again later
            client.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)
        clients.append(client)
        if len(clients) > 100:
            clients.pop(0).close()
        most = max(most, harness.rss)
        return 500_000

    keep_on(once, 60 * MIB)
    assert most - before < ROOM
    for client in clients:
        client.close()
    harness.serves()


def test_retained_messages_are_bounded(harness):
    before, numbers = harness.rss, itertools.count()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", urlsplit(harness.endpoints["mqtt"]).port or 0)
    client.loop_start()

    def once() -> int:
        payload = "x" * 500_000
        client.publish(f"kept/{next(numbers)}", payload, qos=1, retain=True).wait_for_publish(20)
        return len(payload)

    keep_on(once, 60 * MIB)
    assert harness.rss - before < ROOM
    client.disconnect()
    client.loop_stop()
    harness.serves()


@contextmanager
def changes(harness: Harness) -> Iterator[Callable[[], int]]:
    """Change a hundred long values with a short update; return their bytes."""
    texts = itertools.cycle(("<urn:even>", "<urn:odd>"))
    with connect(harness.endpoints["ws"], max_size=None) as writer:

        def update(text: str) -> None:
            writer.send(json.dumps({"update": {"sparql": text}}))
            assert "updated" in json.loads(writer.recv(20))

        def change() -> int:
            old, new = "?s <urn:long> ?o", f"?s {next(texts)} ?n"
            update(f"DELETE {{ {old} }} INSERT {{ ?s <urn:long> ?n }} WHERE {{ {new} OPTIONAL {{ {old} }} }}")
            return 100_000

        for text in ("<urn:even>", "<urn:odd>"):
            values = " ".join(f"<urn:s{number}> {text} '{text} {number} {'x' * 1000}' ." for number in range(100))
            update(f"INSERT DATA {{ {values} }}")
        change()
        yield change


LONG = "SELECT ?o { ?s <urn:long> ?o }"


def subscription(sparql: str, **members: Any) -> str:
    return json.dumps({"subscribe": {"sparql": sparql, **members}})


def test_notifications_for_clients_that_may_resume_are_bounded(harness):
    """Each new client subscribes to all of them, and disconnects without closing."""
    with changes(harness) as change:
        before = harness.rss

        def once() -> int:
            with connect(harness.endpoints["ws"], max_size=None) as client:
                with suppress(ConnectionClosed):  # 1013, try again later
                    client.send(subscription(LONG, resume=True))
                    assert client.recv(20)
                client.socket.shutdown(socket.SHUT_RDWR)
            return change()

        keep_on(once, 20 * MIB)
        assert harness.rss - before < ROOM
    harness.serves()


def test_merged_notifications_for_clients_that_do_not_read_are_bounded(harness):
    with changes(harness) as change:
        before = harness.rss
        text = subscription(LONG).encode()
        clients: list[socket.socket] = []

        def once() -> int:
            client = harness.tcp("ws")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(OPEN)
            client.recv(4096)
            client.sendall(b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text)
            clients.append(client)
            if len(clients) > 40:
                clients.pop(0).close()
            return sum(change() for _ in range(5))

        keep_on(once, 20 * MIB)
        assert harness.rss - before < ROOM
        for client in clients:
            client.close()
    harness.serves()


@pytest.mark.timeout(500)  # half a minute on an idle machine: a thousand subscriptions, whose rows all change
def test_rows_that_subscriptions_keep_are_bounded(harness):
    with changes(harness) as change:
        before, numbers, refused = harness.rss, itertools.count(), 0
        clients: list[ClientConnection] = []

        def once() -> int:
            nonlocal refused
            if len(clients) == 20:
                clients.pop(0).close()
            clients.append(
                connect(harness.endpoints["ws"], max_size=None, close_timeout=0.1, ping_interval=None)
            )  # unread messages are lost; a ping meanwhile would end the library's thread with an error
            for _ in range(10):
                sparql = f'SELECT DISTINCT (CONCAT(?o, STR(?s), "{next(numbers)}") AS ?t) {{ ?s <urn:long> ?o }}'
                try:
                    clients[-1].send(subscription(sparql))
                    refused += answer_of(clients[-1]).get("status_code") == 429
                except ConnectionClosed:  # 1013, try again later
                    refused += 1
                    break
            return change()

        keep_on(once, 5 * MIB)
        while not refused:  # a loaded machine sends less in this time
            once()
        assert harness.rss - before < 2 * ROOM, "what is kept is text and indexes, and notifications come on top"
        for client in clients:
            client.close()
    harness.serves()


def coap(harness: Harness, client: socket.socket, code: Code, path: str, body: bytes, **options: Any) -> Message:
    """Return the answer to a request on a UDP socket."""
    number = next(MESSAGE_IDS) % 65536
    token = number.to_bytes(2)
    message = Message(code=code, uri_path=(path,), payload=body, _mtype=CON, _mid=number, _token=token, **options)
    for _ in range(5):  # datagrams can be lost
        client.send(message.encode())
        with suppress(TimeoutError):
            while True:
                answer = Message.decode(client.recv(65536))
                if answer.token == token:  # not an empty acknowledgement, which comes before a late answer
                    return answer
    pytest.fail("no answer over CoAP")


MESSAGE_IDS = itertools.count()


@contextmanager
def device(harness: Harness) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", urlsplit(harness.endpoints["coap"]).port or 0))
        client.settimeout(10)
        yield client


def test_coap_bodies_in_blocks_that_are_never_completed_are_bounded(harness):
    before, refused = harness.rss, 0

    def once() -> int:
        nonlocal refused
        with device(harness) as client:
            for number in range(100):
                answer = coap(harness, client, POST, "update", b" " * 1024, block1=(number, True, 6), content_format=0)
                if answer.code != Code.CONTINUE:
                    refused += 1
                    break
        return 100 * 1024

    keep_on(once, 16 * MIB)
    assert refused
    assert harness.rss - before < ROOM
    harness.serves()


def test_coap_results_in_blocks_that_are_never_fetched_are_bounded(harness):
    with changes(harness):
        before = harness.rss

        def once() -> int:
            with device(harness) as client:
                answer = coap(harness, client, FETCH, "query", LONG.encode(), content_format=0)
                assert answer.code in (Code.CONTENT, Code.TOO_MANY_REQUESTS)
            return 100 * 1024

        keep_on(once, 30 * MIB)
        assert harness.rss - before < ROOM
    harness.serves()


def test_texts_of_delayed_updates_are_bounded(harness):
    before, refused = harness.rss, ""
    with connect(harness.endpoints["ws"], max_size=None) as client:
        text = f"INSERT DATA {{ <urn:a> <urn:b> '{'x' * 100_000}' }}"

        def once() -> int:
            nonlocal refused
            client.send(json.dumps({"update": {"sparql": text, "delay": "P1D"}}))
            answer = json.loads(client.recv(20))
            if "scheduled" not in answer:
                assert answer["status_code"] == 429
                refused = answer["error_description"]
            return len(text)

        keep_on(once, 20 * MIB)
        assert "engine.max_timer_bytes" in refused
        assert harness.rss - before < ROOM
    harness.serves()
