"""An MQTT client that tries to connect to the embedded broker and reports the answer."""

from __future__ import annotations

import queue
import ssl
import threading
from types import TracebackType
from typing import Any

import paho.mqtt.client as paho

from edge.gateway import Gateway
from edge.security.clients import Rights
from tests.support.waiting import wait_for


def token(gateway: Gateway, name: str, rights: Rights | None = None, seconds: int = 3600) -> str:
    """Return a token of a client with these permissions."""
    gateway._security.clients.allow(name, rights or Rights())
    return gateway._security.token(name, seconds)


class Device:
    """A paho client that never reconnects. `with Device(port, token) as device`."""

    def __init__(
        self,
        port: int,
        password: str | None,
        *,
        user: str = "anything",
        name: str = "",
        will: str = "",
        clean: bool = True,
        ca: str | None = None,
    ) -> None:
        self.code: int | None = None
        """Reason code of CONNACK."""
        self.gone = threading.Event()
        self.came: queue.Queue[tuple[str, str, bool]] = queue.Queue()
        self._codes: queue.Queue[int] = queue.Queue()
        self.client = client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean, reconnect_on_failure=False
        )
        if password is not None:
            client.username_pw_set(user, password)
        if will:
            client.will_set(will, "the last", 1)
        if ca is not None:
            client.tls_set_context(ssl.create_default_context(cafile=ca))
        client.on_connect = self._connected
        client.on_disconnect = lambda *_: self.gone.set()
        client.on_subscribe = lambda *arguments: self._codes.put(arguments[3][0].value)
        client.on_message = self._message
        self._port = port

    def __enter__(self) -> Device:
        self.client.connect("localhost" if self.client._ssl_context else "127.0.0.1", self._port)
        self.client.loop_start()
        wait_for(lambda: self.code is not None or self.gone.is_set(), what="an answer to CONNECT")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.disconnect()
        self.client.loop_stop()
        self.client._reset_sockets()  # paho leaves closing to the garbage collector, in any order

    @property
    def inside(self) -> bool:
        """Return whether the broker accepted the client."""
        return self.code == 0

    def subscribe(self, topic_filter: str) -> bool:
        """Return whether the broker granted the subscription."""
        self.client.subscribe(topic_filter, 1)
        return self._codes.get(timeout=20) < 0x80

    def publish(self, topic: str, payload: str = "1", *, qos: int = 1, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos, retain).wait_for_publish(20)

    def hear(self) -> tuple[str, str]:
        """Return topic and payload of the next message."""
        return self.came.get(timeout=20)[:2]

    def heard_before(self, topic: str) -> list[str]:
        """Return the topics of all messages before this one."""
        topics = []
        while (found := self.hear()[0]) != topic:
            topics.append(found)
        return topics

    def _message(self, _: object, __: object, message: paho.MQTTMessage) -> None:
        if (payload := message.payload.decode()).startswith('{"status"'):
            return  # the status of the gateway can arrive at any time
        self.came.put((message.topic, payload, message.retain))

    def _connected(self, _: object, __: object, ___: object, reason: Any, ____: object) -> None:
        # paho translates reason codes of 3.1.1 to those of MQTT 5.
        self.code = {0: 0, 0x84: 1, 0x85: 2, 0x88: 3, 0x86: 4, 0x87: 5}[reason.value]
