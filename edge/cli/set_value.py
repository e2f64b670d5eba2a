"""`edge set`: tell a device what one of its values should be."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from edge.cli.bindings_table import printable
from edge.cli.desired_messages import TRUTH, chosen
from edge.cli.devices import Device, devices, find
from edge.cli.exit_codes import EXIT_CODES, Failure, misused, refused
from edge.cli.http import post, send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option

_MOST: Final = 100
"""Observations in a request."""
_MODBUS: Final = "modbus/"
"""Prefix of the topics of Modbus devices; the name of the device follows."""
_DESIRED: Final = "edge:desired"
"""Topic in the list of refused values, for messages that set a value and cannot be built."""
_LOOK: Final = 0.1
"""Seconds between two looks whether the message was acknowledged."""

_SET: Final = """PREFIX edge: <urn:sepa-edge:>
DELETE {{ <{0}> edge:desired ?old }}
INSERT {{ <{0}> edge:desired {1} }}
WHERE {{ OPTIONAL {{ <{0}> edge:desired ?old }} }}"""
_WAITS: Final = "PREFIX edge: <urn:sepa-edge:> ASK {{ <{0}> edge:desired {1} }}"


@dataclass(frozen=True, slots=True)
class _Gateway:
    """Addresses of the gateway."""

    url: str | None
    data_dir: Path | None
    timeout: float

    def at(self, path: str) -> str:
        """Return the address of a resource."""
        return http_endpoint(self.url, self.data_dir, path)

    def settable(self, device: Device) -> dict[str, Mapping[str, Any]]:
        """Return how the values of a device can be set, by IRI of the observation."""
        found: dict[str, Mapping[str, Any]] = {}
        observations = sorted(device.observations)
        for first in range(0, len(observations), _MOST):
            names = urlencode([("observation", each) for each in observations[first : first + _MOST]])
            found |= send("GET", f"{self.at('api/settable')}?{names}", None, {}, self.timeout).json()
        return found

    def disconnected(self, observation: str, device: Device) -> str:
        """Return why the Modbus device of an observation is not connected; empty: it is, or it is another device."""
        states = self._listed("health", {}).get("modbus", {})
        names = {topic.split("/")[1] for topic in device.observations[observation] if topic.startswith(_MODBUS)}
        return "; ".join(
            f"{name} is {states[name]}" for name in sorted(names) if states.get(name, "connected") != "connected"
        )

    def refusals(self, observation: str, device: Device) -> dict[str, int]:
        """Return the reasons why messages for an observation, or commands for its Modbus device, failed, and how
        often.
        """
        topics = tuple(f"{each}/" for each in device.observations[observation] if each.startswith(_MODBUS))
        own = f"observation={observation}, "
        return {
            str(each["reason"]): int(each["count"])
            for each in self._listed("api/bad-values", [])
            if str(each["topic"]).startswith(topics)
            or (each["topic"] == _DESIRED and str(each["last_payload"]).startswith(own))
        }

    def _listed(self, path: str, nothing: Any) -> Any:  # noqa: ANN401  it is JSON
        """Return what a resource has, of the type of `nothing`, which is returned without the right to see it."""
        try:
            found = json.loads(send("GET", self.at(path), None, {"Accept": "application/json"}, self.timeout).body)
        except (Failure, ValueError):
            return nothing
        return found if isinstance(found, type(nothing)) else nothing

    def update(self, text: str) -> None:
        """Send an update."""
        post(self.at("update"), [("update", text)], accept="application/json", timeout=self.timeout)

    def ask(self, text: str) -> bool:
        """Return the answer to a question."""
        form = [("query", text)]
        answer = post(self.at("query"), form, accept="application/sparql-results+json", timeout=self.timeout)
        return answer.json().get("boolean") is True


# A negative number is not an unknown option.
@click.command("set", epilog=EXIT_CODES, context_settings={"ignore_unknown_options": True})
@click.argument("device")
@click.argument("value")
@click.option(
    "--wait",
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(0, 3600),
    help="Time for the broker or the Modbus device to acknowledge the message; 0: do not wait.",
)
@url_option
@data_dir_option
@timeout_option
def set_value(device: str, value: str, wait: float, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Tell DEVICE what one of its values should be: VALUE.

    DEVICE is the last part of a sensor's IRI or its label, as in `edge forget`. If several of its values can be set,
    add the name of one. For a switch, VALUE is on or off. The mapping of the value says how it is set. Values that can
    be set have a switch or a slider on the page of their device. The command waits for the acknowledgement of the
    broker, and not for the device. If the value is one of a Modbus device, it waits for that device.

    \b
    edge set lamp on
    edge set kitchen/lamp/brightness 40
    edge set freezer -18
    """
    gateway = _Gateway(url, data_dir, timeout)
    found = find(device, devices(gateway.at("query"), timeout))
    observation, how = _chosen(found, gateway.settable(found), value)
    literal = _literal(how, value)
    refusals = gateway.refusals(observation, found)
    gateway.update(_SET.format(observation, literal))
    name = f"{printable(observation)} to {printable(literal)}"
    if not wait:
        click.echo(f"will set {name}")
        return
    is_done = _ended(lambda: gateway.ask(_WAITS.format(observation, literal)), wait)
    new = [reason for reason, n in gateway.refusals(observation, found).items() if n > refusals.get(reason, 0)]
    if new:
        raise refused(f"{name} was refused: {printable('; '.join(new))}")
    if is_done:
        click.echo(f"set {name}")
    elif reason := gateway.disconnected(observation, found):
        raise refused(
            f"{name} was not written within {wait:g} s: {printable(reason)}. It is written as soon as the device"
            " answers"
        )
    else:
        raise refused(
            f"the message that sets {name} was not acknowledged within {wait:g} s. It is sent as soon as the broker, or"
            " the device, is connected; `edge health` and `edge doctor` say what is wrong"
        )


set = set_value  # noqa: A001  the name of the command


def _chosen(device: Device, settable: Mapping[str, Mapping[str, Any]], value: str) -> tuple[str, Mapping[str, Any]]:
    """Return the observation that is meant, and how it is set. Raises `Failure`."""
    if not settable:
        raise refused(
            f"no value of {printable(device.iri)} can be set: its mapping has no `set` (a register: `write`), its"
            " actuators are turned off (actuation.desired_values), or it has not reported the value yet"
        )
    switches = [name for name, how in settable.items() if how.get("kind") == "switch"]
    if len(settable) == 1:
        (name,) = settable
    elif value.lower() in ("on", "off", "true", "false") and len(switches) == 1:
        (name,) = switches
    else:
        names = ", ".join(printable(f"{device.name_of(name)} ({_kind(how)})") for name, how in sorted(settable.items()))
        raise misused(f"several values of {printable(device.iri)} can be set: {names}; write DEVICE/VALUE-NAME")
    return name, settable[name]


def _literal(how: Mapping[str, Any], value: str) -> str:
    """Return a value as SPARQL. Raises `Failure`."""
    kind, problem = how.get("kind"), misused(f"{printable(value)} is not possible; it can be {_kind(how)}")
    if kind == "switch":
        if (truth := TRUTH.get(value.lower())) is None:
            raise problem
        return truth
    if kind == "choice":
        if (choice := chosen(how.get("choices", ()), value)) is None:
            raise problem
        value = choice
    if kind != "number":
        return json.dumps(value, ensure_ascii=False)
    return _number(how, value, problem)


def _number(how: Mapping[str, Any], value: str, problem: Failure) -> str:
    from edge.mapping.bounded_numbers import bounded_number
    from edge.number_text import NOT_A_DOUBLE, number_text

    number = bounded_number(value)
    low, high = how.get("min"), how.get("max")
    if (
        number is None
        or (low is not None and number < Decimal(str(low)))
        or (high is not None and number > Decimal(str(high)))
    ):
        raise problem
    if (text := number_text(number)) is None:
        raise misused(f"{printable(value)} is not possible: {NOT_A_DOUBLE}")
    return text


def _kind(how: Mapping[str, Any]) -> str:
    """Return the possible values in words."""
    kind = how.get("kind")
    if kind == "switch":
        return "on or off"
    if kind == "choice":
        return "one of " + ", ".join(map(str, how.get("choices", ())))
    if kind != "number":
        return "a text"
    limits = [f"{word} {how[key]:g}" for word, key in (("from", "min"), ("to", "max")) if how.get(key) is not None]
    return " ".join(["a number", *limits])


def _ended(waits: Callable[[], bool], seconds: float) -> bool:
    """Return whether something ends within some seconds."""
    deadline = time.monotonic() + seconds
    while waits():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_LOOK)
    return True
