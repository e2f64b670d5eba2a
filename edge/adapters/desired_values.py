"""Desired values: a client writes the value that an observation should have, and its device gets the message.

`OBSERVATION edge:desired VALUE` is in the graph until the message is acknowledged. The mapping of the observation has
the message (`set`). A desired value is a command, not a state: a lamp that somebody has switched off by hand stays off
when the gateway starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyoxigraph as ox

from edge.engine.requests import UpdateRequest
from edge.mapping.actuators import Actuator, Command
from edge.mapping.errors import Fault
from edge.mapping.mapper import Mapper
from edge.mapping.model import ActuatorSpec
from edge.mapping.setter import Setter
from edge.mapping.solution import CommandError, Solution, SolutionTerm

NAME: Final = "edge:desired"
"""Name of the actuator that sends desired values, in lists."""

_QUERY: Final = """\
PREFIX edge: <urn:sepa-edge:>
PREFIX arces-monitor: <http://mml.arces.unibo.it/monitor#>
SELECT ?observation ?topic ?value {
  ?observation edge:desired ?value . OPTIONAL { ?observation arces-monitor:hasMqttTopic ?topic }
}"""
_SENT: Final = """\
PREFIX edge: <urn:sepa-edge:>
DELETE { ?observation edge:desired ?value } WHERE { ?observation edge:desired ?value FILTER(STR(?value) = ?text) }"""


class DesiredValues:
    """The desired values of the current mapper."""

    def __init__(self) -> None:
        self._mapper = Mapper()
        self._generation = 0

    def follow(self, mapper: Mapper) -> Actuator:
        """Return the actuator for a new mapper. It is the same as before if the mapper sets values as the last one:
        a changed actuator starts again, and would send a value again that the device has not yet acknowledged.
        """
        if not mapper.sets_like(self._mapper):
            self._generation += 1
        self._mapper = mapper
        spec = ActuatorSpec(name=f"{NAME} {self._generation}", query=_QUERY)
        message = _DesiredMessage(lambda: self._mapper)
        return Actuator(NAME, spec, _QUERY, message, None, {}, None, Fault("", file="desired values"))


def sent(command: Command) -> UpdateRequest:
    """Return the update that deletes a desired value whose message was acknowledged. A newer value stays."""
    return UpdateRequest(
        _SENT, bindings={"observation": ox.NamedNode(command.observation), "text": ox.Literal(command.value)}
    )


class _DesiredMessage:
    """The message of a desired value, and its topic."""

    hex = False

    def __init__(self, mapper: Callable[[], Mapper]) -> None:
        self._mapper = mapper
        self.topic = _DesiredTopic(self)

    def render(self, solution: Solution) -> Command:
        """Build the message. Raises `CommandError`."""
        setter, captures, value = self.setter(solution)
        topic, payload = setter.render(captures, value)
        observation = solution.text("observation", ())
        return Command(NAME, topic, payload, setter.qos, setter.retain, observation, value.text)

    def setter(self, solution: Solution) -> tuple[Setter, dict[str, str], SolutionTerm]:
        """Return the setter of a solution with its captures, and the desired value. Raises `CommandError`."""
        observation, topic, value = (solution.terms.get(name) for name in ("observation", "topic", "value"))
        if observation is None or value is None:
            raise CommandError("a blank node cannot be set")
        found = None if topic is None else self._mapper().setter(topic.text, observation.text)
        if found is None:
            raise CommandError(f"no mapping says how to set {observation.text} (`set`)")
        return found[0], dict(found[1]), value


class _DesiredTopic:
    text = NAME
    """In errors: the topic is another for each observation."""

    def __init__(self, message: _DesiredMessage) -> None:
        self._message = message

    def render(self, solution: Solution) -> str:
        """Return the topic. Raises `CommandError`."""
        return self._message.render(solution).topic

    @staticmethod
    def matches(_: str) -> bool:
        """Whether this is the topic of a message: the mapper knows those of its setters."""
        return False
