"""`edge forget`: remove the observations of a device from the graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from edge.cli.bindings_table import printable
from edge.cli.devices import devices, find
from edge.cli.exit_codes import EXIT_CODES, Failure
from edge.cli.http import post, send
from edge.cli.locate import data_dir_option, http_endpoint, timeout_option, url_option

_PREFIXES: Final = """PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX time: <http://www.w3.org/2006/time#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> PREFIX monitor: <http://mml.arces.unibo.it/monitor#>
"""
_FORGET: Final = (
    _PREFIXES
    + """DELETE { ?sensor a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest }
WHERE {
  VALUES ?o { %(observations)s }
  ?o sosa:madeBySensor ?sensor . ?sensor monitor:hasMappingDigest ?digest
  OPTIONAL { ?sensor a ?type FILTER(?type IN (sosa:Sensor, sosa:Platform)) }
  OPTIONAL { ?sensor rdfs:label ?label }
  FILTER NOT EXISTS { ?user ?p ?sensor FILTER(?user NOT IN (%(others)s)) }
} ;
DELETE { ?thing a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest }
WHERE {
  VALUES ?o { %(observations)s }
  VALUES ?link { sosa:observedProperty sosa:hasFeatureOfInterest }
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
"""One request, so that no other client sees a part of it. Results, times, sensors, properties and places are kept if
others refer to them.

A sensor that the gateway described has a digest. Its label is removed even if a client changed it, because the name
belongs to the device. A place or a property belongs to other devices, too: if a client changed its label, the digest
does not match, and the label is kept.
"""


@click.command(epilog=EXIT_CODES)
@click.argument("device")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@url_option
@data_dir_option
@timeout_option
def forget(device: str, dry_run: bool, url: str | None, data_dir: Path | None, timeout: float) -> None:
    """Remove the observations of DEVICE from the graph, and show what maps them.

    The types and labels that the gateway wrote for sensors, properties and places are removed, too, if nothing refers
    to these any more. A name that a client gave to the sensor is removed with it.

    DEVICE is the IRI of a sensor or of an observation, the last part of a sensor's IRI or its label, or one of these
    and the name of one value. Recent values and observations that were stored for the history stay. The observations
    come back with the next message that a mapping applies to.

    \b
    edge forget kitchen_sensor
    edge forget kitchen_sensor/humidity
    edge forget urn:sepa-edge:zigbee2mqtt:kitchen_sensor --dry-run
    """
    found = find(device, devices(http_endpoint(url, data_dir, "query"), timeout))
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
