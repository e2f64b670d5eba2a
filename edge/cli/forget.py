"""`edge forget`: remove the observations of a device from the graph."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import click

from edge.cli.bindings_table import printable
from edge.cli.exit_codes import EXIT_CODES, Failure, refused
from edge.cli.http import post, send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option

_PREFIXES: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX time: <http://www.w3.org/2006/time#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> PREFIX monitor: <http://mml.arces.unibo.it/monitor#>
"""
_OBSERVATIONS: Final = (
    _PREFIXES
    + """SELECT ?observation ?sensor ?topic {
  ?observation a sosa:Observation .
  OPTIONAL { ?observation sosa:madeBySensor ?sensor }
  OPTIONAL { ?observation monitor:hasMqttTopic ?topic }
}"""
)
_FORGET: Final = (
    _PREFIXES
    + """DELETE { ?thing a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest }
WHERE {
  VALUES ?o { %(observations)s }
  VALUES ?link { sosa:madeBySensor sosa:observedProperty sosa:hasFeatureOfInterest }
  ?o ?link ?thing . ?thing a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest
  FILTER(?digest = SUBSTR(SHA256(CONCAT(STR(?type), " ", STR(?label))), 1, 16))
  FILTER NOT EXISTS { ?user ?p ?thing FILTER(?user NOT IN (%(others)s)) }
} ;
DELETE { ?o ?p ?v . ?r ?rp ?rv . ?i ?ip ?iv }
WHERE {
  VALUES ?o { %(observations)s } ?o ?p ?v
  OPTIONAL {
    ?o sosa:hasResult ?r . ?r ?rp ?rv
    FILTER NOT EXISTS { ?other sosa:hasResult ?r FILTER(?other != ?o) }
    OPTIONAL {
      ?r time:hasTime ?i . ?i ?ip ?iv
      FILTER NOT EXISTS { ?another time:hasTime ?i FILTER(?another != ?r) }
    }
  }
}"""
)
"""One request, so that no other client sees a part of it. Results, times, and the types and labels of sensors,
properties and places that others refer to are kept, and so are those that a client wrote or changed: their digest is
another one.
"""
_FEW: Final = 10
"""Names in an error message."""


@dataclass(slots=True)
class _Device:
    """A sensor with its observations, or an observation without a sensor."""

    iri: str
    observations: dict[str, set[str]] = field(default_factory=dict)
    """With the topics of each."""


@click.command(epilog=EXIT_CODES)
@click.argument("device")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@url_option
@data_dir_option
@timeout_option
def forget(device: str, dry_run: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Remove the observations of DEVICE from the graph, and show what maps them.

    The types and labels that the gateway wrote for sensors, properties and places are removed, too, if nothing refers
    to these any more.

    DEVICE is the IRI of a sensor or of an observation, or the last part of a sensor's IRI. Recent values and
    observations that were stored for the history stay. The observations come back with the next message that a mapping
    applies to.

    \b
    edge forget kitchen_sensor
    edge forget urn:sepa-edge:zigbee2mqtt:kitchen_sensor --dry-run
    """
    found = _find(device, _devices(http_endpoint(url, data_dir, "query"), timeout))
    observations = sorted(found.observations)
    if not dry_run:
        named = [f"<{iri}>" for iri in observations]
        text = _FORGET % {"observations": " ".join(named), "others": ", ".join(named)}
        post(http_endpoint(url, data_dir, "update"), [("update", text)], accept="application/json", timeout=timeout)
    number = f"{len(observations)} observation{'s' if len(observations) > 1 else ''} of {printable(found.iri)}"
    click.echo(f"{number} would be removed:" if dry_run else f"removed {number}:")
    for iri in observations:
        click.echo(f"  {printable(iri)}")
    for topic in sorted(set().union(*found.observations.values())):
        click.echo(_what_maps(topic, http_endpoint(url, data_dir, "api/mapping-test"), timeout))


def _devices(endpoint: str, timeout: float) -> list[_Device]:
    """Return all devices in the graph."""
    form = [("query", _OBSERVATIONS)]
    answer = post(endpoint, form, accept="application/sparql-results+json", timeout=timeout).json()
    devices: dict[str, _Device] = {}
    try:
        for row in answer["results"]["bindings"]:
            observation: dict[str, Any] = row["observation"]
            if observation["type"] != "uri":  # SPARQL cannot address blank nodes
                continue
            iri = row["sensor"]["value"] if row.get("sensor", {}).get("type") == "uri" else observation["value"]
            known = devices.setdefault(iri, _Device(iri))
            topics = known.observations.setdefault(observation["value"], set())
            if "topic" in row:
                topics.add(row["topic"]["value"])
    except (KeyError, TypeError):
        raise refused("the answer is not that of a gateway; is --url right?") from None
    return list(devices.values())


def _find(name: str, devices: Sequence[_Device]) -> _Device:
    """Return the device with this IRI or name. Raises `Failure` with the remedy."""
    for known in devices:
        if known.iri == name:
            return known
        if name in known.observations:
            return _Device(name, {name: known.observations[name]})
    named = [known for known in devices if _local_name(known.iri) == name]
    if len(named) == 1:
        return named[0]
    if named:
        raise refused(f"several devices are called {printable(name)}; write one IRI of: {_listed(named)}")
    if not devices:
        raise refused("the graph has no observations, or this client may not read them")
    names = {_local_name(known.iri): known for known in devices}
    near = [names[each] for each in difflib.get_close_matches(name, names, n=_FEW, cutoff=0.5)]
    raise refused(f"no device is called {printable(name)}; similar or first ones: {_listed(near or devices)}")


def _listed(devices: Sequence[_Device]) -> str:
    return ", ".join(printable(known.iri) for known in devices[:_FEW])


def _local_name(iri: str) -> str:
    """Return the last part of an IRI. In a URN, a name may have slashes."""
    return unquote(re.split(":" if iri.startswith("urn:") else "[/#:]", iri.rstrip("/#:"))[-1])


def _what_maps(topic: str, endpoint: str, timeout: float) -> str:
    """Return a line about the mapping of a topic."""
    request = json.dumps({"topic": topic, "hex": ""}).encode()
    try:
        answer = send("POST", endpoint, request, {"Content-Type": "application/json"}, timeout).json()
        names = [each["mapping"] for each in answer.get("candidates", ())]
    except (Failure, KeyError, TypeError):
        return f"messages on {printable(topic)} create them again, if a mapping applies"
    if not names:
        return f"no mapping matches {printable(topic)}"
    return (
        f"messages on {printable(topic)} create them again (mapping {printable(names[0])}); `ignore = true` prevents it"
    )
