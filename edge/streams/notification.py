"""Reports as W3C Linked Data Notifications: an activity of ActivityStreams 2.0 in JSON-LD.

The context is in the document, because receivers need not fetch others. Its terms are no prefixes, so no IRI of a
report can be taken for an abbreviation (JSON-LD 1.1, section 4.4). Rows have the vocabulary of result sets of the
SPARQL test suite of the W3C.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyoxigraph as ox

from edge.protocol.results import term_to_json
from edge.streams.observer import StoredReport, iso_time
from edge.streams.report import REMOVED, RESULTS

JSON_LD: Final = "application/ld+json"

_AS: Final = "https://www.w3.org/ns/activitystreams#"
_RS: Final = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#"
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_REPORT: Final = "urn:edge:report:"
_CONTEXT: Final[Mapping[str, object]] = {
    "Announce": f"{_AS}Announce",
    "Update": f"{_AS}Update",
    "target": {"@id": f"{_AS}target", "@type": "@id"},
    "published": {"@id": f"{_AS}published", "@type": "http://www.w3.org/2001/XMLSchema#dateTime"},
    "object": f"{_AS}object",
    "query": f"{_REPORT}query",
    "number": f"{_REPORT}number",
    "merged": f"{_REPORT}merged",
    "removed": REMOVED,
    **{name: f"{_RS}{name}" for name in ("ResultSet", "resultVariable", "solution", "binding", "variable", "value")},
    "boolean": f"{_RS}boolean",
    **{name: f"{_RDF}{name}" for name in ("Statement", "subject", "predicate")},
    "statementObject": f"{_RDF}object",
}


def notification(key: str, query: str, target: str, report: StoredReport) -> bytes:
    """Return a report as a document in JSON-LD, the same in each attempt. `key`: its `Idempotency-Key`.

    The activity is an `Update` for a correction, and else an `Announce`. Its objects are a result set, or the subjects
    of the triples. What a correction removes is a result set, or statements. Triple terms are left out, because
    JSON-LD 1.1 has none.
    """
    activity: dict[str, object] = {
        "@context": _CONTEXT,
        "@id": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, key)}",
        "@type": "Update" if report.correction else "Announce",
        "target": target,
        "query": query,
        "number": report.number,
        "merged": report.merged,
    }
    time = iso_time(report.time)
    if time.endswith("Z"):
        activity["published"] = time
    activity |= _results(report.body) if report.content_type == RESULTS else _graphs(report.body)
    return json.dumps(activity, ensure_ascii=False, separators=(",", ":")).encode()


def _results(body: bytes) -> dict[str, object]:
    """Return the objects of a report in SPARQL 1.1 Query Results JSON."""
    result = json.loads(body)
    if "boolean" in result:
        return {"object": {"@type": "ResultSet", "boolean": result["boolean"]}}
    variables: Sequence[str] = result["head"]["vars"]
    objects = {"object": _result_set(variables, result["results"]["bindings"])}
    if "removed" in result:
        objects["removed"] = _result_set(variables, result["removed"]["bindings"])
    return dict(objects)


def _result_set(variables: Sequence[str], rows: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, object]:
    solutions = [
        {
            "binding": [
                {"variable": name, "value": _value(term)} for name, term in row.items() if term["type"] != "triple"
            ]
        }
        for row in rows
    ]
    return {"@type": "ResultSet", "resultVariable": list(variables), "solution": solutions}


def _value(term: Mapping[str, Any]) -> dict[str, str]:
    """Return a term of the JSON results as a value of JSON-LD."""
    kind, value = term["type"], term["value"]
    if kind == "uri":
        return {"@id": value}
    if kind == "bnode":
        return {"@id": f"_:{value}"}
    literal = {"@value": value}
    if "xml:lang" in term:
        literal["@language"] = term["xml:lang"]
        return literal | ({"@direction": term["its:dir"]} if "its:dir" in term else {})
    return literal | {"@type": term["datatype"]} if "datatype" in term else literal


def _graphs(body: bytes) -> dict[str, object]:
    """Return the objects of a report in N-Triples, or of a correction in N-Quads."""
    triples: dict[bool, list[ox.Triple]] = {False: [], True: []}
    for quad in ox.parse(body, ox.RdfFormat.N_QUADS, lenient=True):
        if not isinstance(quad.object, ox.Triple):
            triples[isinstance(quad.graph_name, ox.NamedNode)].append(quad.triple)
    graphs = {"object": _nodes(triples[False])}
    if triples[True]:
        # Reified, because a triple in the document would be asserted.
        graphs["removed"] = [_statement(each) for each in triples[True]]
    return dict(graphs)


def _statement(triple: ox.Triple) -> dict[str, object]:
    subject, predicate, object_ = (_value(json.loads(term_to_json(term))) for term in triple)
    return {"@type": "Statement", "subject": subject, "predicate": predicate, "statementObject": object_}


def _nodes(triples: list[ox.Triple]) -> list[Any]:
    """Return triples as node objects of expanded JSON-LD, in which no term of the context occurs."""
    nodes: list[Any] = json.loads(ox.serialize(triples, format=ox.RdfFormat.JSON_LD) or b"[]")
    return nodes
