"""Well-behaved clients, one for each gate, that continue while others send random messages."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from itertools import count
from select import select
from typing import Any, Protocol
from urllib.parse import urlencode

import paho.mqtt.client as paho
from aiocoap import CON, GET, POST, Code, Message
from aiocoap.numbers.types import ACK
from websockets.sync.client import connect

from tests.fuzz.fuzz_target import Harness

_PATIENCE = 20.0
# A separate graph: an update of another client may run at any time.
QUERY = "SELECT ?n { GRAPH <urn:neighbour> { <urn:neighbour> <urn:%s> ?n } }"
UPDATE = (
    "DELETE WHERE {{ GRAPH <urn:neighbour> {{ <urn:neighbour> <urn:{0}> ?n }} }} ; "
    "INSERT DATA {{ GRAPH <urn:neighbour> {{ <urn:neighbour> <urn:{0}> {1} }} }}"
)

_numbers = count()


class ConcurrentClient(Protocol):
    """A client of one gate."""

    def check_notification(self) -> None:
        """Change a value and check the notification. Fails the test if one is missing."""


class _Follower:
    """A client that speaks the messages of the protocol. Other clients may cause notifications, too."""

    def __init__(self, gate: str) -> None:
        self._gate = gate
        self._sequence = 0

    def _begin(self) -> None:
        self._send({"subscribe": {"sparql": QUERY % self._gate}})
        assert self._receive()["notification"]["sequence"] == 0

    def check_notification(self) -> None:
        number = next(_numbers)
        self._send({"update": {"sparql": UPDATE.format(self._gate, number), "alias": "write"}})
        waiting = {"updated", str(number)}
        while waiting:
            message = self._receive()
            if "updated" in message:
                waiting.discard("updated")
                continue
            received = message["notification"]
            assert received["sequence"] == self._sequence + received.get("merged", 1)
            self._sequence = received["sequence"]
            waiting -= {row["n"]["value"] for row in received["addedResults"]["results"]["bindings"]}

    def _send(self, message: Any) -> None:
        raise NotImplementedError

    def _receive(self) -> dict[str, Any]:
        raise NotImplementedError


class _OverWebSocket(_Follower):
    def __init__(self, harness: Harness) -> None:
        super().__init__("ws")
        self.socket = connect(harness.endpoints["ws"], proxy=None)
        self._begin()

    def _send(self, message: Any) -> None:
        self.socket.send(json.dumps(message))

    def _receive(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.socket.recv(_PATIENCE))
        return found


class _OverMqtt(_Follower):
    def __init__(self, harness: Harness) -> None:
        super().__init__("mqtt")
        self._came: queue.Queue[dict[str, Any]] = queue.Queue()
        self._online = threading.Event()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id="neighbour")
        topics = [("sepa/gateway/response/neighbour", 1), ("sepa/gateway/status", 1)]
        self.client.on_connect = lambda client, *_: client.subscribe(topics)
        self.client.on_message = lambda _, __, message: self._take(message)
        self.client.connect(*harness.address("mqtt"))
        self.client.loop_start()
        assert self._online.wait(_PATIENCE)
        self.client.publish("sepa/gateway/status/neighbour", "online", 1)
        self._begin()

    def _take(self, message: paho.MQTTMessage) -> None:
        received = json.loads(message.payload)
        if message.topic != "sepa/gateway/status":
            self._came.put(received)
        elif received["status"] == "online":
            self._online.set()

    def _send(self, message: Any) -> None:
        self.client.publish("sepa/gateway/request/neighbour", json.dumps(message), 1)

    def _receive(self) -> dict[str, Any]:
        return self._came.get(timeout=_PATIENCE)


class _OverHttp:
    """A client with one connection. It checks the gateway after each example, so it needs less work than httpx."""

    def __init__(self, harness: Harness) -> None:
        self.http = HTTPConnection(*harness.address("http"), timeout=_PATIENCE)

    def check_notification(self) -> None:
        number = next(_numbers)
        form = urlencode({"update": UPDATE.format("http", number)}).encode()
        self._ask("POST", "/update", form, {"Content-Type": "application/x-www-form-urlencoded"})
        answer = self._ask("GET", f"/query?{urlencode({'query': QUERY % 'http'})}")
        rows = json.loads(answer)["results"]["bindings"]
        assert [row["n"]["value"] for row in rows] == [str(number)]

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        if self.http.sock is not None and select([self.http.sock], [], [], 0)[0]:
            self.http.close()  # the gateway has ended the idle connection
        self.http.request(method, path, body, headers or {})
        answer = self.http.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return text


class _OverCoap:
    """An observer with plain datagrams, so that the test covers the gate only."""

    def __init__(self, harness: Harness) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(_PATIENCE)
        self.socket.connect(harness.address("coap"))
        self._id = 0
        self._sequence = 0
        created = self._ask(POST, "/subscribe", (QUERY % "coap").encode())
        assert created.code == Code.CREATED
        self._path = "/" + "/".join(created.opt.location_path)
        assert json.loads(self._ask(GET, self._path, observe=0, token=b"obs").payload)["sequence"] == 0

    def check_notification(self) -> None:
        number = next(_numbers)
        waiting = {str(number)}
        answer = self._ask(POST, "/update", UPDATE.format("coap", number).encode(), waiting=waiting)
        assert answer.code == Code.CHANGED
        while waiting:  # the socket has a timeout
            self._take(self._receive(), waiting)

    def _ask(
        self, code: Any, path: str, payload: bytes = b"", *, token: bytes = b"me", waiting: Any = (), **options: Any
    ) -> Message:
        self._id += 1
        message = Message(code=code, payload=payload, _mtype=CON, _mid=self._id, _token=token)
        message.opt.uri_path = path.strip("/").split("/")
        for name, value in options.items():
            setattr(message.opt, name, value)
        self.socket.send(message.encode())
        while True:
            found = self._receive()
            if found.token == token and found.code != Code.EMPTY:
                return found
            self._take(found, waiting)

    def _receive(self) -> Message:
        message = Message.decode(self.socket.recv(65536))
        if message.mtype == CON:
            self.socket.send(Message(code=Code.EMPTY, _mtype=ACK, _mid=message.mid).encode())
        return message

    def _take(self, message: Message, waiting: Any) -> None:
        """Accept a notification of the observed resource."""
        if message.token != b"obs" or not message.payload:
            return
        received = json.loads(message.payload)
        if received["sequence"] == self._sequence:
            return  # sent again, because the acknowledgement was late
        assert received["sequence"] == self._sequence + received.get("merged", 1)
        self._sequence = received["sequence"]
        for row in received["addedResults"]["results"]["bindings"]:
            waiting.discard(row["n"]["value"])


@contextmanager
def open_client(harness: Harness, gate: str) -> Iterator[ConcurrentClient]:
    """Return a client of this gate: "ws", "mqtt", "http" or "coap"."""
    if gate == "ws":
        over_ws = _OverWebSocket(harness)
        with over_ws.socket:
            yield over_ws
    elif gate == "mqtt":
        over_mqtt = _OverMqtt(harness)
        try:
            yield over_mqtt
        finally:
            over_mqtt.client.publish("sepa/gateway/status/neighbour", "offline", 1).wait_for_publish(_PATIENCE)
            over_mqtt.client.disconnect()
            over_mqtt.client.loop_stop()
    elif gate == "http":
        over_http = _OverHttp(harness)
        with closing(over_http.http):
            yield over_http
    else:
        over_coap = _OverCoap(harness)
        with over_coap.socket:
            over_coap.check_notification()
            yield over_coap
