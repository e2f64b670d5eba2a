"""Bridge from MQTT to a SPARQL endpoint: `python -m edge.bench.peers.sepa_bridge BROKER_PORT QOS UPDATE_URL`."""

from __future__ import annotations

import http.client
import json
import sys
from typing import Final
from urllib.parse import urlsplit

from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.readings import TOPIC
from edge.bench.peers.receivers import MqttReceiver

_UPDATE: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
DELETE {{ <{result}> qudt:numericValue ?old }}
INSERT {{ <{sensor}> sosa:hasResult <{result}> . <{result}> qudt:numericValue {temperature} }}
WHERE {{ OPTIONAL {{ <{result}> qudt:numericValue ?old }} }}"""


def update_of(payload: bytes) -> bytes:
    """Return the update that replaces the value of the sensor."""
    reading = json.loads(payload)
    sensor = f"http://example.org/{reading['sensor']}"
    return _UPDATE.format(sensor=sensor, result=f"{sensor}/result", temperature=reading["temperature"]).encode()


def main() -> None:
    """Send an update for each reading, one after the other, until the broker closes the connection."""
    broker, qos, url = int(sys.argv[1]), int(sys.argv[2]), urlsplit(sys.argv[3])
    readings = MqttReceiver(broker, f"{TOPIC}/#", qos)
    endpoint = http.client.HTTPConnection(url.hostname or "", url.port)
    readings.socket.settimeout(None)
    while True:
        readings.read()
        for _, payload in readings.messages:
            endpoint.request("POST", url.path, update_of(payload), {"Content-Type": "application/sparql-update"})
            answer = endpoint.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise PeerError(f"the endpoint refuses an update ({answer.status}): {text.decode(errors='replace')}")
        readings.messages.clear()


if __name__ == "__main__":
    main()
