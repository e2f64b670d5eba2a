"""A gateway as a process with devices of a house, for the pages of the application."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion

from tests.support.browser import Browser
from tests.support.processes import GatewayProcess, free_port

SIZES = [(1280, 900), (390, 844)]
"""Width and height of a screen and of a phone in CSS pixels."""
LIVE = "document.getElementById('state')?.dataset.state === 'live'"
UNREACHABLE = ("Failed to load resource: net::", "WebSocket connection to ", "status of 503")
"""Problems that the browser reports while the gateway does not answer, or starts."""
KITCHEN = "urn:sepa-edge:zigbee2mqtt:kitchen_sensor"
HOURS = 24


class House:
    """The gateway and its devices. Messages are sent to its embedded broker."""

    def __init__(self, directory: Path, **settings: str) -> None:
        ports = {f"EDGE__{name}__PORT": str(free_port()) for name in ("HTTP", "WS", "MQTT")}
        self.process = GatewayProcess(directory, {**ports, "EDGE__HOST__ENABLED": "false", **settings})
        self.endpoints = self.process.start()

    @property
    def url(self) -> str:
        return self.endpoints["http"]

    def publish(self, messages: list[tuple[str, Any]]) -> None:
        """Publish messages and wait until the broker has them."""
        publish_to(self.endpoints["mqtt"], messages)

    def furnish(self) -> None:
        """Let some devices report values: new ones, and one whose values of the last day arrive late."""
        past = [
            {"n": "temperature", "u": "Cel", "v": 18 + hour % 7, "t": -3600 * (HOURS - hour)} for hour in range(HOURS)
        ]
        self.publish(
            [
                ("senml/attic", past),
                ("zigbee2mqtt/kitchen_sensor", {"temperature": 21.5, "humidity": 44, "battery": 7, "linkquality": 120}),
                ("zigbee2mqtt/kitchen_sensor/availability", {"state": "online"}),
                ("zigbee2mqtt/front_door", {"contact": False, "battery": 90, "linkquality": 80}),
                ("zigbee2mqtt/front_door/availability", {"state": "offline"}),
                ("tele/plug1/LWT", "Online"),
                ("stat/plug1/POWER", "ON"),
                ("garage/custom", {"x": 1}),
            ]
        )

    def update(self, sparql: str, path: str = "/update") -> None:
        httpx.post(f"{self.url}{path}", data={"update": sparql}).raise_for_status()

    def ask(self, pattern: str) -> bool:
        answer = httpx.get(f"{self.url}/query", params={"query": f"ASK {{ {pattern} }}"})
        return bool(answer.raise_for_status().json()["boolean"])

    def get(self, path: str, **parameters: str) -> Any:
        """Return the JSON document of a path."""
        return httpx.get(f"{self.url}{path}", params=parameters).raise_for_status().json()

    def read(self, path: str) -> str:
        """Return the text of a document."""
        return httpx.get(f"{self.url}{path}").raise_for_status().text

    def put(self, path: str, text: str, media_type: str = "text/plain") -> None:
        """Write a document."""
        httpx.put(f"{self.url}{path}", content=text, headers={"Content-Type": media_type}).raise_for_status()

    def delete(self, path: str) -> None:
        """Delete a document."""
        httpx.delete(f"{self.url}{path}").raise_for_status()

    def schedule(self, name: str, sparql: str, delay: str) -> None:
        """Schedule a delayed update."""
        parameters = {"update": sparql, "delay": delay, "id": name}
        httpx.post(f"{self.url}/update", data=parameters).raise_for_status()

    @contextmanager
    def commands(self, topic: str) -> Iterator[list[Any]]:
        """Receive the JSON messages of a topic, as a device does."""
        received: list[Any] = []
        broker, subscribed = urlsplit(self.endpoints["mqtt"]), threading.Event()
        client = Client(CallbackAPIVersion.VERSION2)
        client.on_message = lambda client, _, message: received.append(json.loads(message.payload))
        client.on_connect = lambda client, *_: client.subscribe(topic, 1)
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect(broker.hostname or "", broker.port or 0)
        client.loop_start()
        assert subscribed.wait(20)
        yield received
        client.disconnect()
        client.loop_stop()

    def shows(self, observation: str, text: str) -> bool:
        """Whether an observation has this value now."""
        value = "<http://www.w3.org/ns/sosa/hasResult>/<http://qudt.org/1.1/schema/qudt#numericValue>"
        return self.ask(f"<{observation}> {value} ?v FILTER(STR(?v) = '{text}')")


def publish_to(url: str, messages: list[tuple[str, Any]]) -> None:
    """Publish messages, texts and bytes as they are and others as JSON, and wait until the broker has them."""
    broker = urlsplit(url)
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect(broker.hostname or "", broker.port or 0)
    client.loop_start()
    sent: list[MQTTMessageInfo] = [
        client.publish(topic, value if isinstance(value, str | bytes) else json.dumps(value), qos=1)
        for topic, value in messages
    ]
    for each in sent:
        each.wait_for_publish(20)
    client.disconnect()
    client.loop_stop()


def device_address(device: str, value: str = "") -> str:
    """The address of a device's page."""
    return f"#/device/{quote(device, safe='')}" + (f"?value={quote(value, safe='')}" if value else "")


HOLD: Final = (
    "{ const real = globalThis.fetch; globalThis.fetch = (...call) => call[1]?.method !== 'PUT' ? real(...call)"
    " : new Promise(resolve => { globalThis.goOn = () => resolve(real(...call)); }); }"
)
"""JavaScript that lets each PUT wait for a call of `goOn`."""


def module(path: str) -> str:
    """JavaScript expression for the address of a module that the page uses, so that both have one instance of it."""
    return f"document.querySelector('script[src$=\"/app.js\"]').src.replace('app.js', '{path}')"


def names(selector: str) -> str:
    """A JavaScript expression of the texts of all elements that a selector finds."""
    return f"[...document.querySelectorAll({selector!r})].map(each => each.textContent).join('|')"


async def press(page: Browser, selector: str, text: str) -> None:
    """Click on the element with this text."""
    await page.evaluate(f"[...document.querySelectorAll({selector!r})].find(e => e.textContent === {text!r}).click()")


def meanwhile(path: str, text: str) -> str:
    """JavaScript that lets another client write a document while the user answers a question."""
    return (
        f"globalThis.confirm = () => {{ const put = new XMLHttpRequest(); put.open('PUT', {json.dumps(path)}, false);"
        f" put.setRequestHeader('Content-Type', 'text/plain'); put.send({json.dumps(text)}); return true; }};"
    )
