"""The MQTT gate: the SPARQL 1.1 Subscribe Language over topics of the broker that readings come from."""

from edge.gates.mqtt.gate import MqttGate
from edge.gates.mqtt.strays import Strays
from edge.gates.mqtt.visitors import Visitors
from edge.gates.mqtt.wire import Wire

__all__ = ["MqttGate", "Strays", "Visitors", "Wire"]
