"""This gateway: a mapping, a subscription with FILTER over a WebSocket, every update committed to disk."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import edge
from edge.bench.experiment import ExperimentError
from edge.bench.gateway import BenchGateway
from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.readings import THRESHOLD, TOPIC
from edge.bench.peers.receivers import WebSocketReceiver
from edge.bench.peers.side import Running, Setting, Side

_MAPPING: Final = f"""
[[mapping]]
topic = "{TOPIC}/{{sensor}}"
path = "temperature"
observation = "http://example.org/{{sensor}}"
label = "{{sensor}}"
unit = "unit:DegreeCelsius"
"""
QUERY: Final = f"""PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
SELECT ?observation ?value {{
  ?observation sosa:hasResult ?quantity . ?quantity qudt:numericValue ?value FILTER(?value > {THRESHOLD})
}}"""


class GatewaySide(Side):
    """The gateway of this installation."""

    name = "gateway"
    results = "WebSocket"
    notes = (
        "gateway: commits every reading to disk before its result; the other sides store nothing. If a value falls "
        "below the threshold, its subscriber is notified of that, too.",
    )

    def __init__(self, module: str = "edge", **settings: str) -> None:
        """`module` and `settings`: see `BenchGateway`."""
        self._module = module
        self._settings = settings

    def missing(self) -> str:
        """Return an empty text."""
        return ""

    def install(self) -> None:
        """Do nothing."""

    @contextmanager
    def running(self, setting: Setting) -> Iterator[Running]:
        """Start `edge run` and subscribe."""
        (setting.directory / "mappings").mkdir()
        (setting.directory / "mappings" / "peers.toml").write_text(_MAPPING)
        settings = {
            "EDGE__MQTT__BROKER": f"mqtt://127.0.0.1:{setting.broker}",
            "EDGE__MQTT__QOS": str(setting.qos),
            "EDGE__HOST__ENABLED": "false",  # readings of the machine itself would count as work
            **self._settings,
        }
        try:
            with BenchGateway(setting.directory, self._module, **settings) as gateway:
                address = urlsplit(gateway.endpoints["ws"])
                receiver = WebSocketReceiver(address.port or 0, address.path)
                receiver.send(subscription())
                try:
                    yield Running(gateway.process.pid, receiver, edge.__version__)
                finally:
                    receiver.close()
        except ExperimentError as error:
            raise PeerError(str(error)) from None

    def temperatures(self, message: bytes) -> list[int]:
        """Return the values of added rows of a notification."""
        return added_temperatures(message)


def subscription() -> bytes:
    """Return the request to subscribe to `QUERY` (SPARQL 1.1 Subscribe Language)."""
    return json.dumps({"subscribe": {"sparql": QUERY}}).encode()


def added_temperatures(message: bytes) -> list[int]:
    """Return the values of added rows of a notification; nothing for other messages, and for removed rows."""
    notification = json.loads(message).get("notification")
    if notification is None:
        return []
    rows = notification["addedResults"].get("results", {}).get("bindings", [])
    return [int(float(row["value"]["value"])) for row in rows]
