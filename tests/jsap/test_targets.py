"""Targets of updates and queries: hosts and graphs."""

import pytest
from profiles import problems, profile, query, update

from edge.jsap import Authentication, Graphs

SPARQL11 = {
    "protocol": "http",
    "port": 8000,
    "query": {"path": "/query", "method": "GET", "format": "XML"},
    "update": {"path": "/update", "method": "URL_ENCODED_POST", "format": "HTML"},
}
SPARQL11SE = {
    "protocol": "ws",
    "availableProtocols": {"ws": {"port": 9000, "path": "/subscribe"}, "wss": {"port": 9443, "path": "/secure"}},
}


def of(kind="query", entry=None, **members):
    listed = {"E": {"sparql": "ASK {}" if kind == "query" else "DROP ALL", **(entry or {})}}
    found = profile(**{"queries" if kind == "query" else "updates": listed, **members})
    return found.query("E") if kind == "query" else found.update("E")


def test_defaults_of_a_profile():
    assert (query("ASK {}").sparql11.url, query("ASK {}").sparql11.method) == ("http://localhost:8000/query", "POST")
    assert update("DROP ALL").sparql11.url == "http://localhost:8000/update"
    assert query("ASK {}").sparql11se.url == "ws://localhost:9000/subscribe"
    assert query("ASK {}").graphs == Graphs(None, None)


def test_listings_13_and_14():
    entry = of(host="broker", sparql11protocol=SPARQL11, sparql11seprotocol=SPARQL11SE)
    assert (entry.sparql11.url, entry.sparql11.method, entry.sparql11.format) == (
        "http://broker:8000/query",
        "GET",
        "XML",
    )
    assert (entry.sparql11se.protocol, entry.sparql11se.url) == ("ws", "ws://broker:9000/subscribe")
    entry = of("update", sparql11protocol={**SPARQL11, "host": "10.0.0.1"}, sparql11seprotocol=SPARQL11SE)
    assert (entry.sparql11.url, entry.sparql11.method) == ("http://10.0.0.1:8000/update", "URLENCODED_POST")


def test_without_a_port_it_is_that_of_the_protocol():
    entry = of(
        sparql11protocol={"protocol": "https"},
        sparql11seprotocol={"protocol": "wss", "availableProtocols": {"wss": {}}},
    )
    assert entry.sparql11.url == "https://localhost/query"
    assert entry.sparql11se.url == "wss://localhost/subscribe"


@pytest.mark.parametrize(
    ("entry", "sparql11", "sparql11se"),
    [
        ({"host": "e"}, "http://e:8000/query", "ws://e:9000/subscribe"),
        ({"sparql11protocol": {"host": "e"}}, "http://e:8000/query", "ws://s:9000/subscribe"),
        ({"sparql11protocol": {"port": 1, "query": {"path": "q"}}}, "http://p:1/q", "ws://s:9000/subscribe"),
        ({"sparql11seprotocol": {"protocol": "wss"}}, "http://p:8000/query", "wss://s:9443/secure"),
        (
            {"sparql11seprotocol": {"availableProtocols": {"ws": {"host": "::1"}}}},
            "http://p:8000/query",
            "ws://[::1]:9000/subscribe",
        ),
        ({"host": "e", "sparql11seprotocol": {"host": "f"}}, "http://e:8000/query", "ws://f:9000/subscribe"),
    ],
)
def test_an_entry_overrides_the_named_members(entry, sparql11, sparql11se):
    found = of(
        entry=entry,
        host="h",
        sparql11protocol={**SPARQL11, "host": "p"},
        sparql11seprotocol={**SPARQL11SE, "host": "s", "reconnect": False},
    )
    assert (found.sparql11.url, found.sparql11se.url) == (sparql11, sparql11se)
    assert found.sparql11se.reconnect is False


def test_a_gate_may_have_any_name_and_define_its_scheme():
    available = {"inside": {"scheme": "ws", "port": 1}, "outside": {"scheme": "wss", "port": 2}}
    members = {"protocol": "inside", "availableProtocols": available}
    own = {"sparql11seprotocol": {"protocol": "outside"}}
    assert of(sparql11seprotocol=members).sparql11se.url == "ws://localhost:1/subscribe"
    assert of(entry=own, sparql11seprotocol=members).sparql11se.url == "wss://localhost:2/subscribe"


def test_graphs_of_the_profile_and_of_an_entry():
    graphs = {
        "default-graph-uri": "ex:d",
        "named-graph-uri": ["ex:n", "http://x/m"],
        "using-graph-uri": ["ex:u"],
        "using-named-graph-uri": [],
    }
    assert of(graphs=graphs).graphs == Graphs(("http://example.org/d",), ("http://example.org/n", "http://x/m"))
    assert of("update", graphs=graphs).graphs == Graphs(("http://example.org/u",), ())
    own = {"graphs": {"default-graph-uri": "ex:own"}}
    assert of(entry=own, graphs=graphs).graphs == Graphs(("http://example.org/own",), None)


OLD = {"register": "https://h/register", "tokenRequest": "https://h/token"}
NEW = {
    "enable": True,
    "provider": "keycloak",
    "registration": {"endpoint": "https://h/register", "initialAccessToken": "t", "username": "u"},
    "authentication": {"endpoint": "https://h/token", "client_id": "i", "client_secret": "s"},
}


@pytest.mark.parametrize(
    ("members", "wanted"),
    [
        ({"oauth": OLD}, Authentication("https://h/register", "https://h/token")),
        ({"oauth": {**OLD, "enable": False}}, None),
        ({"oauth": NEW}, Authentication("https://h/register", "https://h/token", "i", "s", "t", "u")),
        (
            {"sparql11seprotocol": {**SPARQL11SE, "security": OLD}},
            Authentication("https://h/register", "https://h/token"),
        ),
        ({}, None),
    ],
)
def test_old_and_new_form_of_authentication(members, wanted):
    entry = of(**members)
    assert (entry.sparql11.authentication, entry.sparql11se.authentication) == (wanted, wanted)
    assert "'s'" not in repr(entry), "a log line holds no secret"


def test_another_host_gets_no_secrets_of_this_one():
    entry = of(entry={"sparql11protocol": {"host": "other"}}, oauth=NEW, sparql11protocol={"host": "own"})
    assert entry.sparql11.authentication is None
    assert entry.sparql11se.authentication is not None
    entry = of(entry={"host": "other", "authentication": OLD}, oauth=NEW)
    assert entry.sparql11.authentication == Authentication("https://h/register", "https://h/token")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"sparql11seprotocol": {}}', 'the member "protocol" is missing'),
        ('{"sparql11seprotocol": {"protocol": "ws"}}', 'the member "availableProtocols" is missing'),
        (
            '{"sparql11seprotocol": {"protocol": "w", "availableProtocols": {"ws": {}}}}',
            '"w" is not one of the availableProtocols (did you mean "ws"?)',
        ),
        (
            '{"sparql11seprotocol": {"protocol": "mqtt", "availableProtocols": {"mqtt": {}}}}',
            '"mqtt" does not name a gate; the gates are: ws, wss',
        ),
        ('{"sparql11protocol": {"port": true}}', "a port is a whole number from 1 to 65535"),
        (f'{{"sparql11protocol": {{"port": "{"1" * 5000}"}}}}', "a port is a whole number from 1 to 65535"),
        ('{"sparql11protocol": {"port": "0"}}', "a port is a whole number from 1 to 65535"),
        ('{"sparql11protocol": []}', "must be an object"),
        ('{"host": "h/p"}', '"h/p" is not a host name or address'),
    ],
)
def test_invalid_targets_are_reported(text, reason):
    assert any(problem.reason.startswith(reason) for problem in problems(text))
