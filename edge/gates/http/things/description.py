"""Thing Descriptions (W3C Recommendation "Web of Things (WoT) Thing Description 1.1", 5 December 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from edge.gates.http.things.graph import SOSA, Property, Thing
from edge.observed_values import Settable, data_schema

MEDIA_TYPE: Final = "application/td+json"
LIST_TYPE: Final = "application/ld+json"
"""Media type of a list of descriptions (WoT Discovery, section 7.3.2.1.5)."""
THINGS: Final = "/things"
PROPERTIES: Final = "/properties"
SEARCH: Final = "/search/sparql"
SEARCH_FORMATS: Final = "application/ld+json, application/json;q=0.9"
"""Formats of answers to a search for clients that accept any: JSON for SELECT and ASK, otherwise JSON-LD."""
WELL_KNOWN: Final = "/.well-known/wot"

_CONTEXT: Final = ("https://www.w3.org/2019/wot/td/v1", "https://www.w3.org/2022/wot/td/v1.1")
"""The context of version 1.0 comes first, so that consumers of 1.0 accept the description (section 5.3.1.1)."""
_DISCOVERY: Final = "https://www.w3.org/2022/wot/discovery"
_JSON: Final = "application/json"
_OBSERVE: Final = ("observeproperty", "unobserveproperty")
"""Operations of the form for Server-Sent Events: closing the connection is the second one."""
_TYPES: Final = ("http://", "https://", "urn:")
"""Beginnings of types that are kept. Another one, such as `tm:ThingModel`, could be a term of the description."""


@dataclass(frozen=True, slots=True)
class Describer:
    """Describes things for one client."""

    base: str
    """URL of the gateway as the client wrote it, with a slash at the end."""
    secured: bool
    """Whether requests need a token."""

    def thing(self, thing: Thing, settable: Mapping[str, Settable], *, observable: bool) -> dict[str, object]:
        """Return the description of a device. `settable`: how values can be set, by IRI of the observation.
        `observable`: whether the client may subscribe.
        """
        types = [_compact(each) for each in thing.types if each.startswith(_TYPES)]
        return {
            "@context": [*_CONTEXT, {"sosa": SOSA}],
            "id": thing.iri,
            **({"@type": types} if types else {}),
            "title": thing.title,
            **_described(thing.description),
            **self._common(),
            "properties": {
                each.name: _property(each, settable.get(each.iri), observable=observable) for each in thing.properties
            },
            "links": [{"href": WELL_KNOWN[1:], "rel": "collection", "type": MEDIA_TYPE}],
        }

    def directory(self) -> dict[str, object]:
        """Return the description of the gateway: a directory of its devices (WoT Discovery, section 7.3)."""
        return {
            "@context": [*_CONTEXT, _DISCOVERY],
            "@type": "ThingDirectory",
            # Clients look up their credentials by the id.
            "id": f"{self.base}{WELL_KNOWN[1:]}",
            "title": "sepa-edge",
            "description": "A gateway with a SPARQL endpoint, and a directory of the devices in its graph.",
            **self._common(),
            "properties": {"things": _THING_LIST},
            "actions": {"retrieveThing": _RETRIEVE, "searchSPARQL": _QUERY},
            "links": [
                {"href": "sparql", "rel": "alternate", "type": "application/sparql-results+json"},
                {"href": "api/openapi.json", "rel": "service-desc", "type": _JSON},
            ],
        }

    def _common(self) -> dict[str, object]:
        """Return the members of each description: base URL and security."""
        if not self.secured:
            return {"base": self.base, "securityDefinitions": {"nosec_sc": {"scheme": "nosec"}}, "security": "nosec_sc"}
        bearer = {"scheme": "bearer", "in": "header", "format": "jwt", "authorization": f"{self.base}oauth/token"}
        return {"base": self.base, "securityDefinitions": {"bearer_sc": bearer}, "security": "bearer_sc"}


def property_path(iri: str) -> str:
    """Return the path of a property, by the IRI of its observation."""
    return f"{PROPERTIES}/{quote(iri, safe='')}"


def _property(found: Property, settable: Settable | None, *, observable: bool) -> dict[str, object]:
    href = property_path(found.iri)[1:]
    forms: list[dict[str, object]] = [
        {"href": href, "contentType": _JSON, "op": "readproperty", "htv:methodName": "GET"}
    ]
    if settable is not None:
        forms.append({"href": href, "contentType": _JSON, "op": "writeproperty", "htv:methodName": "PUT"})
    if observable:
        forms.append({"href": href, "contentType": _JSON, "op": _OBSERVE, "subprotocol": "sse"})
    links = {"sosa:observedProperty": found.observed, "sosa:hasFeatureOfInterest": found.place}
    return {
        "title": found.title,
        **_described(found.description),
        **data_schema(found.value, settable),
        **({"unit": found.unit} if found.unit is not None else {}),
        **{name: {"@id": iri} for name, iri in links.items() if iri is not None},
        **({"observable": True} if observable else {}),
        "forms": forms,
    }


def _described(description: str | None) -> dict[str, object]:
    return {} if description is None else {"description": description}


def _compact(iri: str) -> str:
    return f"sosa:{iri.removeprefix(SOSA)}" if iri.startswith(SOSA) else iri


_THING_LIST: Final[Mapping[str, object]] = {
    "title": "Things",
    "description": "The descriptions of all devices that the client may read, in the order of their IRIs.",
    "type": "array",
    "items": {"type": "object"},
    "readOnly": True,
    "uriVariables": {
        "offset": {"title": "Number of descriptions to skip", "type": "integer", "minimum": 0, "default": 0},
        "limit": {"title": "Most descriptions in the response", "type": "integer", "minimum": 1},
    },
    "forms": [
        {
            "href": f"{THINGS[1:]}{{?offset,limit}}",
            "contentType": LIST_TYPE,
            "op": "readproperty",
            "htv:methodName": "GET",
        }
    ],
}
_RETRIEVE: Final[Mapping[str, object]] = {
    "title": "Return the description of a device",
    "uriVariables": {"id": {"title": "IRI of the device", "type": "string", "format": "iri"}},
    "output": {"type": "object"},
    "safe": True,
    "idempotent": True,
    "forms": [
        {
            "href": f"{THINGS[1:]}/{{id}}",
            "contentType": MEDIA_TYPE,
            "op": "invokeaction",
            "htv:methodName": "GET",
        }
    ],
}
_QUERY: Final[Mapping[str, object]] = {
    "title": "Evaluate a SPARQL query on the graph",
    "uriVariables": {"query": {"title": "A SPARQL 1.1 query", "type": "string"}},
    "output": {"type": "object"},
    "safe": True,
    "idempotent": True,
    "forms": [
        {
            "href": f"{SEARCH[1:]}{{?query}}",
            "contentType": _JSON,
            "op": "invokeaction",
            "htv:methodName": "GET",
        }
    ],
}
