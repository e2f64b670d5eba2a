"""The MQTT gate: the SPARQL 1.1 Subscribe Language over topics of the broker that readings come from."""

from edge.gates.mqtt.acl import Visitors
from edge.gates.mqtt.connection import Wire
from edge.gates.mqtt.gate import MqttGate
from edge.gates.mqtt.unhandled_topics import Strays

__all__ = ["MqttGate", "Strays", "Visitors", "Wire"]
