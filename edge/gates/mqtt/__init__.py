"""The MQTT gate: the SPARQL 1.1 Subscribe Language over topics of the broker that readings come from."""

from edge.gates.mqtt.acl import TokenAuth
from edge.gates.mqtt.connection import BrokerConnection
from edge.gates.mqtt.gate import MqttGate
from edge.gates.mqtt.unhandled_topics import UnhandledTopics

__all__ = ["BrokerConnection", "MqttGate", "TokenAuth", "UnhandledTopics"]
