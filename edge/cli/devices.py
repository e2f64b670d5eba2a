"""Devices of the graph, as commands name them: sensors with their observations."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import refused
from edge.cli.http import post

_OBSERVATIONS: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX monitor: <http://mml.arces.unibo.it/monitor#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?observation ?sensor ?label ?topic {
  ?observation a sosa:Observation .
  OPTIONAL { ?observation sosa:madeBySensor ?sensor OPTIONAL { ?sensor rdfs:label ?label } }
  OPTIONAL { ?observation monitor:hasMqttTopic ?topic }
}"""
_FEW: Final = 10
"""Names in an error message."""
_SIMILAR: Final = 0.8
"""Similarity (0 to 1) of two names, from which on one is probably meant for the other."""


@dataclass(slots=True)
class Device:
    """A sensor with its observations, or an observation without a sensor."""

    iri: str
    observations: dict[str, set[str]] = field(default_factory=dict)
    """With the topics of each."""
    labels: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        """Its names in commands: the last part of its IRI, and its labels."""
        return {local_name(self.iri), *self.labels}

    def only(self, observation: str) -> Device:
        """Return one of its observations as a device of its own."""
        return Device(observation, {observation: self.observations[observation]})

    def name_of(self, observation: str) -> str:
        """Return the name of an observation at this device."""
        start = f"{self.iri}/"
        return unquote(observation.removeprefix(start)) if observation.startswith(start) else local_name(observation)


def devices(endpoint: str, timeout: float) -> list[Device]:
    """Return all devices in the graph."""
    form = [("query", _OBSERVATIONS)]
    answer = post(endpoint, form, accept="application/sparql-results+json", timeout=timeout).json()
    found: dict[str, Device] = {}
    try:
        for row in answer["results"]["bindings"]:
            observation: dict[str, Any] = row["observation"]
            if observation["type"] != "uri":  # SPARQL cannot address blank nodes
                continue
            iri = row["sensor"]["value"] if row.get("sensor", {}).get("type") == "uri" else observation["value"]
            known = found.setdefault(iri, Device(iri))
            if "sensor" in row and "label" in row:
                known.labels.add(row["label"]["value"])
            topics = known.observations.setdefault(observation["value"], set())
            if "topic" in row:
                topics.add(row["topic"]["value"])
    except (KeyError, TypeError):
        raise refused("the answer is not that of a gateway; is --url right?") from None
    return list(found.values())


def find(name: str, known: Sequence[Device]) -> Device:
    """Return the device with this IRI or name, or with one of its observations: `DEVICE/VALUE`, or an IRI.

    Raises `Failure` with the remedy.
    """
    for device in known:
        if device.iri == name:
            return device
        if name in device.observations:
            return device.only(name)
    named = [device for device in known if name in device.names]
    named = named or [
        device.only(observation)
        for device in known
        for start in device.names
        if name.startswith(f"{start}/")
        for observation in device.observations
        if f"{start}/{device.name_of(observation)}" == name
    ]
    if len(named) == 1:
        return named[0]
    if named:
        raise refused(f"several devices are called {printable(name)}; write one IRI of: {listed(named)}")
    if not known:
        raise refused("the graph has no observations, or this client may not read them")
    names = {each: device for device in known for each in device.names}
    owner = max((each for each in names if name.startswith(f"{each}/")), key=len, default=None)
    similar = difflib.get_close_matches(name, names.keys() - {owner}, n=1, cutoff=_SIMILAR)
    if owner is not None and not similar and sum(owner in device.names for device in known) == 1:
        value = name.removeprefix(f"{owner}/")
        raise refused(
            f"{printable(names[owner].iri)} has no value {printable(value)}; its values: {_values(names[owner])}"
        )
    near = [names[each] for each in difflib.get_close_matches(name, names, n=_FEW, cutoff=0.5)]
    raise refused(f"no device is called {printable(name)}; similar or first ones: {listed(near or known)}")


def listed(devices: Sequence[Device]) -> str:
    """Return the IRIs of the first devices for an error message."""
    return ", ".join(printable(known.iri) for known in devices[:_FEW])


def _values(device: Device) -> str:
    names = sorted(map(device.name_of, device.observations))
    return ", ".join(map(printable, names[:_FEW])) + ", …" * (len(names) > _FEW)


def local_name(iri: str) -> str:
    """Return the last part of an IRI. In a URN, a name may have slashes."""
    return unquote(re.split(":" if iri.startswith("urn:") else "[/#:]", iri.rstrip("/#:"))[-1])
