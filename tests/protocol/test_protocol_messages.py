"""Messages, results and errors of the protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pyoxigraph as ox
import pytest

import edge.engine.start
from edge.protocol.errors import EdgeError, InvalidRequest, NotFound
from edge.protocol.messages import (
    SubscribeMessage,
    UnsubscribeMessage,
    notification_message,
    parse_message,
    unsubscribed_message,
)
from edge.protocol.results import results_to_json, term_to_json

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "protocol.md"


def test_a_subscribe_request_with_everything():
    request = parse_message(
        '{"subscribe":{"sparql":"ASK {}","alias":"a","default-graph-uri":["urn:g","urn:h"],"named-graph-uri":"urn:i",'
        '"timeout":60000,"httpsAgent":{"x":[1]}},"authorization":"Bearer t"}'
    )
    assert isinstance(request, SubscribeMessage)
    assert (request.sparql, request.alias, request.authorization) == ("ASK {}", "a", "Bearer t")
    assert (request.default_graph_uri, request.named_graph_uri) == (["urn:g", "urn:h"], ["urn:i"])
    assert request.timeout == 60000


def test_an_unsubscribe_request():
    request = parse_message(b'{"unsubscribe":{"spuid":"s","alias":"a","authorization":"t"}}')
    assert isinstance(request, UnsubscribeMessage)
    assert (request.spuid, request.alias, request.authorization) == ("s", "a", "t")


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ('{"subscribe":{"alias" : "me", "sparql":', "me"),
        ('{"alias":"one","x":{"alias":"two"', None),
        ('{"alias":"bro', None),
        (b'\xff{"alias":"me"', "me"),
        ('{"other":1,"alias":"me"}', "me"),
        ('{"update":{"sparql":"","alias":"me"},"query":{"sparql":""}}', "me"),
        ('{"update":{"alias":"me"},"query":{"alias":"me"},"timers":[]}', "me"),
        ('{"update":{"alias":"one"},"query":{"alias":"two"}}', None),
        ('{"update":{"alias":"me","sparql":"a","sparql":"b"}}', "me"),
        ('{"update":{"alias":"one","alias":"two","sparql":"b"}}', None),
    ],
)
def test_errors_contain_the_alias(text, alias):
    with pytest.raises(InvalidRequest) as error:
        parse_message(text)
    assert error.value.alias == alias


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ('{"update":{"sparql":"INSERT DATA {}","sparql":"DROP ALL"}}', "sparql"),
        ('{"subscribe":{"sparql":"ASK {}"},"authorization":"a","subscribe":{"sparql":"ASK {}"}}', "subscribe"),
        (b'{"unsubscribe":{"spuid":"s","alias":"a","\\u0061lias":"b"}}', "alias"),
    ],
)
def test_a_member_that_is_given_twice_is_refused(text, member):
    with pytest.raises(InvalidRequest, match=f'"{member}" is given twice'):
        parse_message(text)


@pytest.mark.parametrize("text", ["", "\ufeff{}", b"\xff\xfe\xff", "[" * 100_000, '{"a":1}{"a":1}', "nul"])
def test_invalid_json_is_refused(text):
    with pytest.raises(InvalidRequest, match=r"not JSON|nested too deeply"):
        parse_message(text)


@pytest.mark.parametrize("delay", ["5", "-5", "[]", "true"])
def test_a_delay_that_is_not_text_gets_an_error_with_examples(delay):
    with pytest.raises(InvalidRequest, match='"delay": must be a duration as a string, such as "PT30S"'):
        parse_message(f'{{"update":{{"sparql":"INSERT DATA {{}}","delay":{delay}}}}}')


def test_outgoing_messages_are_json_for_each_alias():
    nasty = 'a"\\\n\u2028é'
    delta = results_to_json(["x"], [(ox.Literal(nasty),)])
    message = json.loads(notification_message("s", nasty, 3, delta, results_to_json(["x"], [])))["notification"]
    assert (message["spuid"], message["alias"], message["sequence"]) == ("s", nasty, 3)
    assert message["addedResults"]["results"]["bindings"] == [{"x": {"type": "literal", "value": nasty}}]
    assert message["removedResults"] == {"head": {"vars": ["x"]}, "results": {"bindings": []}}
    assert "alias" not in json.loads(notification_message("s", None, 0, delta, delta))["notification"]
    assert json.loads(unsubscribed_message("s", nasty)) == {"unsubscribed": {"spuid": "s", "alias": nasty}}
    assert json.loads(unsubscribed_message("s", None)) == {"unsubscribed": {"spuid": "s"}}


@pytest.mark.parametrize(
    "term",
    [
        ox.NamedNode("http://ex.org/é?a=b&c"),
        ox.BlankNode("b1"),
        ox.Literal('quo"te\\ and \n\x01 control ☃ 😀'),
        ox.Literal(""),
        ox.Literal("hallo", language="de-at"),
        ox.Literal("hallo", language="de", direction=ox.BaseDirection("ltr")),
        ox.Literal("01", datatype=ox.NamedNode("http://www.w3.org/2001/XMLSchema#integer")),
        ox.Triple(ox.NamedNode("urn:a"), ox.NamedNode("urn:b"), ox.Literal("c")),
    ],
)
def test_terms_are_read_by_another_implementation(term):
    text = results_to_json(["x", "unbound"], [(term, None), (None, None)])
    read = ox.parse_query_results(text, ox.QueryResultsFormat.JSON)
    assert isinstance(read, ox.QuerySolutions)
    first, second = list(read)
    assert first["x"] == term
    assert first["unbound"] is second["x"] is None
    assert json.loads(term_to_json(term))["type"] in ("uri", "bnode", "literal", "triple")


def test_an_error_with_an_alias_is_a_copy_of_its_own():
    shared = NotFound("gone", spuid="s")
    received = shared.with_alias("me")
    assert type(received) is NotFound
    assert received.to_message() == {
        "error": "not_found",
        "error_description": "gone",
        "status_code": 404,
        "alias": "me",
        "spuid": "s",
    }
    assert shared.alias is None
    assert shared.with_alias(None) is shared


def _all_errors(base: type[EdgeError]) -> set[type[EdgeError]]:
    return {base}.union(*(_all_errors(error) for error in base.__subclasses__()))


def test_every_error_that_a_client_can_get_is_documented():
    assert edge.engine.start  # the engine's errors are part of the tree
    cells = [line.split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    documented = {(row[1].strip(" `"), int(row[2])) for row in cells if row[2].strip().isdigit()}
    at_start = {"data_refused", "invalid_configuration"}  # before any client can come
    of_clients = {
        (error.error, error.status_code)
        for error in _all_errors(EdgeError)
        if error.__module__.startswith(("edge.protocol", "edge.engine")) and error.error not in at_start
    }
    assert documented == of_clients - {("unauthorized", 401)}  # common to its kind
