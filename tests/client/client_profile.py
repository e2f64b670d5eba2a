"""A profile for a gateway of the tests."""

import json

from edge.jsap import Profile

LAMPS = {
    "namespaces": {"": "urn:"},
    "updates": {
        "SET": {
            "sparql": "DELETE { ?lamp :is ?old } INSERT { ?lamp :is ?state } WHERE { OPTIONAL { ?lamp :is ?old } }",
            "forcedBindings": {"lamp": {"type": "uri"}, "state": {"type": "literal"}},
        },
        "SEE": {
            "sparql": "DELETE { ?at :seen ?old } INSERT { ?at :seen ?n } WHERE { OPTIONAL { ?at :seen ?old } }",
            "forcedBindings": {"at": {"type": "uri", "value": "urn:door"}, "n": {"type": "literal"}},
        },
    },
    "queries": {
        "LAMPS": {"sparql": "SELECT ?lamp ?state WHERE { ?lamp :is ?state }"},
        "LAMP": {"sparql": "SELECT ?state { ?lamp :is ?state }", "forcedBindings": {"lamp": {"type": "uri"}}},
        "SEEN": {"sparql": "SELECT ?place ?n { ?place :seen ?n }"},
    },
}


def profile_text(http_port, ws_port, host="127.0.0.1"):
    return json.dumps(
        {
            "host": host,
            "sparql11protocol": {
                "protocol": "http",
                "port": http_port,
                "query": {"path": "/query", "method": "URLENCODED_POST"},
                "update": {"path": "/update", "method": "URLENCODED_POST"},
            },
            "sparql11seprotocol": {
                "protocol": "ws",
                "availableProtocols": {"ws": {"port": ws_port, "path": "/subscribe"}},
            },
            **LAMPS,
        }
    )


def profile_of(gateway, host="127.0.0.1"):
    return Profile.parse(profile_text(gateway.http_port, gateway.ws_port, host))
