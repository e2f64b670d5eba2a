"""Streams and continuous queries over HTTP: what the resources answer, and the errors of each path."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path

import jsonschema
import pytest

from tests.support.callback_server import callback_server
from tests.support.stream_client import FORM, StreamGateway, path_of
from tests.support.waiting import wait_for

IRI = "http://example.org/streams-of/rooms"
REQUESTS = Path(__file__).with_name("rsp_services_requests.json")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    gateway = StreamGateway(
        tmp_path_factory.mktemp("streams"), EDGE__STREAMS__MAX_ELEMENT="1024", EDGE__STREAMS__MAX_LATE="2048"
    )
    yield gateway
    gateway.close()


@pytest.fixture
def gateway(running):
    yield running
    running.end_all()


@pytest.fixture(scope="module")
def callbacks():
    with callback_server() as server:
        yield server


def select(name: str, stream: str = "urn:edge:stream:s") -> str:
    return f"REGISTER QUERY {name} AS SELECT ?o FROM STREAM <{stream}> [RANGE 100ms STEP 100ms] {{ ?s <urn:p> ?o }}"


def construct(name: str, stream: str) -> str:
    return (
        f"REGISTER STREAM {name} AS CONSTRUCT {{ ?s <urn:q> ?o }} "
        f"FROM STREAM <{stream}> [RANGE 100ms STEP 100ms] {{ ?s ?p ?o }}"
    )


def described(gateway, template, path):
    """Return the answer to GET, after a check that the OpenAPI document describes it with all its members."""
    document = gateway.ok("GET", "/api/openapi.json")
    # Nothing may be in an answer that the schema does not name.
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    found = document["paths"][template]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    answer = gateway.ok("GET", path)
    jsonschema.Draft202012Validator({**document, **found}).validate(answer)
    return answer


def test_elements_that_come_too_late_are_kept_over_a_restart(gateway):
    gateway.stream("s")
    gateway.query("q", select("q"))
    gateway.add("s", '<urn:a> <urn:p> "in time"')
    assert gateway.ok("GET", "/streams/s?elements=late") == []
    early = datetime(2020, 1, 1, tzinfo=UTC)
    # Before the query: no report lacks it.
    assert gateway.add("s", '<urn:a> <urn:p> "before"', timestamp=early.isoformat()).endswith("0 too late")
    wait_for(lambda: gateway.ok("GET", "/queries/q")["reports"] >= 5, "reports")
    late = datetime.now(UTC) - timedelta(milliseconds=300)
    assert gateway.add("s", '<urn:a> <urn:p> "late"', timestamp=late.isoformat()).endswith("1 too late")
    assert gateway.add("s", f'<urn:a> <urn:p> "{"x" * 500}"', timestamp=late.isoformat()).endswith("1 too late")
    gateway.restart()
    elements = described(gateway, "/streams/{id}", "/streams/s?elements=late")
    assert [(each["number"], each["graph"]) for each in elements] == [(3, '<urn:a> <urn:p> "late" .\n'), (4, None)]
    assert datetime.fromisoformat(elements[0]["time"]) == late < datetime.fromisoformat(elements[0]["arrived"])
    assert described(gateway, "/streams/{id}", "/streams/s")["too_late"] == 2
    gateway.end_all()
    gateway.stream("s")
    assert gateway.ok("GET", "/streams/s?elements=late") == []
    assert gateway.ok("GET", "/streams/s")["too_late"] == 0


# Links


@pytest.mark.parametrize("name", ["linked", "urn:x:linked,;q", "http://example.org/queries/a?b=%3E"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_links_of_a_query_are_its_canonical_url_and_its_inbox(gateway, name, method):
    gateway.stream("s")
    url = gateway.query(name, select(f"<{name}>" if ":" in name else name))
    answer = gateway.send(method, f"{path_of('queries', name)}/?x=1")
    assert str(answer.url.join(answer.links["self"]["url"])) == url
    assert "/inbox?query=" in answer.links["http://www.w3.org/ns/ldp#inbox"]["url"]
    # A hub would have to implement WebSub.
    assert "hub" not in answer.links


def test_an_unknown_query_has_no_links(gateway):
    answer = gateway.send("GET", "/queries/unknown%22%3E%0D%0Ax:y")
    assert (answer.status_code, "link" in answer.headers, "x" in answer.headers) == (404, False, False)


def test_the_answers_of_all_resources_are_as_described(gateway, callbacks):
    gateway.stream("s")
    gateway.query("made", construct("made", "urn:edge:stream:s"))
    gateway.query("q", select("q"))
    gateway.stream("fed")
    gateway.observe("made", "/streams/fed")
    gateway.observe("q", callbacks.url("/described"))
    gateway.ok("POST", "/queries/q", f"target={callbacks.url('/target')}", FORM)
    assert len(described(gateway, "/streams", "/streams")) == 4
    assert len(described(gateway, "/queries", "/queries")) == 2
    described(gateway, "/queries/{name}", "/queries/q")
    observers = described(gateway, "/queries/{name}/observers", "/queries/q/observers")
    assert sorted("target" in each for each in observers) == [False, True]
    described(gateway, "/queries/{name}/observers", "/queries/made/observers")
    path = "/queries/{name}/observers/{observer}"
    described(gateway, path, path.format(name="q", observer=observers[0]["id"]))


# Streams


@pytest.mark.parametrize(("name", "iri"), [("s", "urn:edge:stream:s"), (IRI, IRI), ("urn:x:1%20a", "urn:x:1%20a")])
def test_a_stream_is_registered_described_listed_and_ended(gateway, name, iri):
    path = path_of("streams", name)
    assert gateway.ok("PUT", path) == f"Stream {iri} registered"
    assert gateway.ok("PUT", path) == f"Stream {iri} registered"
    assert gateway.add(name, "<urn:a> <urn:p> 1") == "1 accepted, 0 late, 0 too late"
    described = gateway.ok("GET", path)
    assert (described["iri"], described["elements"], described["query"]) == (iri, 1, None)
    for listed in ("/streams", "/streams/"):
        assert described in gateway.ok("GET", listed)
        assert gateway.send("HEAD", listed).status_code == 200
    assert gateway.ok("DELETE", path) == f"Stream {iri} unregistered"
    assert gateway.fails("GET", path)[0] == 404


def test_the_lateness_of_a_stream_can_be_set_and_changed(gateway):
    gateway.ok("PUT", "/streams/s?lateness=PT10S")
    assert gateway.ok("GET", "/streams/s")["lateness"] == 10
    gateway.ok("PUT", "/streams/s?lateness=PT1M")
    gateway.ok("PUT", "/streams/s")
    assert gateway.ok("GET", "/streams/s")["lateness"] == 60


BODIES = {
    "turtle": ("text/turtle", "<urn:a> <urn:p> 'x', 'y' ."),
    "n-triples": ("application/n-triples", "<urn:a> <urn:p> 'x' .\n".replace("'", '"')),
    "n-quads": ("application/n-quads", "<urn:a> <urn:p> _:b ."),
    "trig": ("application/trig", "<urn:a> <urn:p> 'x' ."),
    "json-ld": ("application/ld+json", '{"@id": "urn:a", "urn:p": "x"}'),
    "rdf-xml": (
        "application/rdf+xml",
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:u:">'
        '<rdf:Description rdf:about="urn:a"><u:p>x</u:p></rdf:Description></rdf:RDF>',
    ),
    "rdf-json": ("application/rdf+json", '{"urn:a": {"urn:p": [{"type": "literal", "value": "x"}]}}'),
    "rdf-json-as-json": ("application/json", '{"urn:a": {"urn:p": [{"type": "bnode", "value": "_:b"}]}}'),
    "rdf-json-as-text": ("text/plain", '{"_:a": {"urn:p": [{"type": "literal", "value": "@x", "lang": "en"}]}}'),
    "rdf-json-with-at": ("text/plain", '{"urn:a": {"urn:p": [{"type": "literal", "value": "\\"@id\\""}]}}'),
    "json-ld-as-json": ("application/json", '{"urn:p": [{"@id": "urn:o"}]}'),
    "rdf-xml-as-text": (
        "text/plain; charset=ISO-8859-1",
        '<rdf:RDF\n    xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:u:">'
        '<rdf:Description rdf:about="urn:a"><u:p>x</u:p></rdf:Description></rdf:RDF>',
    ),
    "turtle-as-text": ("text/plain", "[ <urn:p> 1 ] ."),
    "turtle-without-type": ("", "_:b <urn:p> 1 ."),
}


@pytest.mark.parametrize("body", BODIES)
def test_elements_are_read_in_every_format(gateway, callbacks, body):
    kind, content = BODIES[body]
    gateway.stream("s")
    gateway.query("counted", select("counted").replace("{ ?s <urn:p> ?o }", "{ ?s ?p ?o }"))
    gateway.observe("counted", callbacks.url(f"/{body}"))
    assert gateway.ok("POST", "/streams/s", content, kind) == "1 accepted, 0 late, 0 too late"
    rows = callbacks.wait_for(f"/{body}", lambda report: report.rows).rows
    assert len(rows) == (2 if body == "turtle" else 1)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_plain_text_and_json_may_be_latin_1(gateway, callbacks, kind, encoding):
    # Clients in Java send strings as ISO-8859-1 by default, as JSON without the charset.
    text = "<urn:a> <urn:p> 'é' ." if kind == "text/plain" else BODIES["rdf-json"][1].replace('"x"', '"é"')
    charset = "; charset=ISO-8859-1" if (kind, encoding) == ("text/plain", "latin-1") else ""
    gateway.stream("s")
    gateway.ok("PUT", "/queries/latin", select("latin"), "text/plain; charset=ISO-8859-1")
    gateway.observe("latin", callbacks.url(f"/{kind}-{encoding}"))
    gateway.ok("POST", "/streams/s", text.encode(encoding), kind + charset)
    rows = callbacks.wait_for(f"/{kind}-{encoding}", lambda report: report.rows).rows
    assert rows == [{"o": "é"}]


LITERAL = BODIES["rdf-json"][1].replace('"x"', '"é"')


def test_json_is_read_with_the_declared_charset(gateway):
    gateway.stream("s")
    for charset in ("iso-8859-1", "utf-8", "UTF-8"):
        gateway.ok("POST", "/streams/s", LITERAL.encode(charset), f"application/json; charset={charset}")
    status, error = gateway.fails("POST", "/streams/s", LITERAL.encode("latin-1"), "application/json; charset=utf-8")
    assert (status, "not UTF-8" in error) == (400, True)


@pytest.mark.parametrize(
    "body", [LITERAL.encode()[: LITERAL.index("é") + 1], LITERAL.encode("utf-16")], ids=["cut", "utf-16"]
)
def test_json_that_is_cut_or_utf_16_is_not_taken_for_latin_1(gateway, body):
    gateway.stream("s")
    status, error = gateway.fails("POST", "/streams/s", body, "application/json")
    assert (status, "not UTF-8" in error) == (400, True)


def test_other_json_is_utf_8(gateway):
    """Only elements of streams are read leniently."""
    content = '{"@id": "urn:é", "urn:p": "é"}'.encode("latin-1")
    for path, kind in (("/streams/s", "application/ld+json"), ("/graph-store?default", "application/ld+json")):
        gateway.stream("s")
        assert gateway.fails("POST", path, content, kind)[0] == 400


# The published Java client


def test_the_requests_of_the_java_client_succeed(gateway, callbacks):
    """Replay the requests of all methods of rsp-services-api 0.4.6, on one connection as it used."""
    connection = HTTPConnection(gateway.http.base_url.host, gateway.http.base_url.port, timeout=20)
    observer, answers = "", {}
    for request in json.loads(REQUESTS.read_text()):
        body = request["body"].replace("CALLBACK", callbacks.url("/java")).encode("latin-1")
        if request["call"] == "deleteObserver":
            for value in ("21.5", "14.25"):
                callbacks.wait_for("/java", lambda report, value=value: value in str(report.rows))
        connection.putrequest(
            request["method"], request["path"].replace("OBSERVER", observer), skip_accept_encoding=True
        )
        for name, value in request["headers"].items():
            connection.putheader(name, value)
        if request["method"] in ("PUT", "POST"):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        assert (request["call"], answer.status) == (request["call"], 200), content
        answers.setdefault(request["call"], content)
        if request["call"] == "addObserver":
            observer = content.rpartition("/")[2]
    connection.close()
    # These methods return the body as it is; the others a JSON string.
    objects = {"getStreamInfo": dict, "getStreamsInfo": list, "getQueryInfo": dict, "getQueriesInfo": list}
    objects["getObserversInformations"] = list
    assert {call: type(content) for call, content in answers.items()} == {
        call: objects.get(call, str) for call in answers
    }
    assert answers["registerQuery"] == f"{gateway.http.base_url}/queries/temperatures"
    assert json.loads(answers["getObserverInformations"]) == answers["getObserversInformations"][0]
    assert gateway.ok("GET", "/queries") == []


@pytest.mark.parametrize(
    ("kind", "content", "status", "words"),
    [
        ("text/turtle", "<urn:a> <urn:p>", 400, "not Turtle"),
        ("application/rdf+xml", "<rdf:RDF", 400, "not RDF/XML"),
        ("application/ld+json", "{", 400, "not JSON-LD"),
        ("application/rdf+json", "{", 400, "JSON"),
        ("application/rdf+json", "[]", 400, "not RDF/JSON"),
        ("application/json", '{"urn:a": {"urn:p": [{"type": "other", "value": "x"}]}}', 400, "not RDF/JSON"),
        ("application/json", '{"urn:a": {"relative": [{"type": "uri", "value": "urn:x"}]}}', 400, "not RDF/JSON"),
        ("application/trig", "<urn:g> { <urn:a> <urn:p> 1 }", 400, "named graphs"),
        ("application/n-quads", "<urn:a> <urn:p> <urn:o> <urn:g> .", 400, "named graphs"),
        ("application/x-www-form-urlencoded", "a=b", 415, "Cannot take"),
        ("image/png", "x", 415, "Cannot take"),
        ("text/turtle", "<urn:a> <urn:p> <<( <urn:b> <urn:p> 1 )>> .", 400, "RDF 1.2"),
        ("text/turtle", "<< <urn:b> <urn:p> 1 >> <urn:p> 1 .", 400, "RDF 1.2"),
        ("application/n-triples", '<urn:a> <urn:p> "x"@en--ltr .', 400, "RDF 1.2"),
        (
            "application/json",
            '{"urn:a": {"urn:p": [{"type": "literal", "value": "x", "lang": "--"}]}}',
            400,
            "not RDF/JSON",
        ),
        ("text/turtle; charset=latin1", "<urn:a> <urn:p> 1 .", 415, "UTF-8"),
        ("text/turtle", f"<urn:a> <urn:p> '{'x' * 1100}' .", 413, "streams.max_element"),
    ],
)
def test_bodies_that_are_no_element_are_refused(gateway, kind, content, status, words):
    gateway.stream("s")
    found = gateway.fails("POST", "/streams/s", content, kind)
    assert found[0] == status
    assert words in found[1]
    assert gateway.ok("GET", "/streams/s")["elements"] == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "words"),
    [
        ("POST", "/streams/none", 404, "register it first"),
        ("GET", "/streams/none", 404, "register it first"),
        ("DELETE", "/streams/none", 404, "register it first"),
        ("PUT", "/streams/a%20b", 400, "names no stream"),
        ("PUT", "/streams/", 400, "names no stream"),
        ("DELETE", "/streams", 405, "use GET"),
        ("PUT", "/streams/s?lateness=long", 400, "lateness"),
        ("GET", "/streams/s?elements=all", 400, '"elements" can be "late"'),
        ("GET", "/streams/nobody?elements=late", 404, "PUT /streams"),
        ("PUT", "/streams/s?lateness=P2D", 400, "at most a day"),
        ("POST", "/streams/s?timestamp=noon", 400, "timestamp"),
        ("POST", "/streams/s?timestamp=2026-01-01T00:00:00", 400, "timestamp"),
        ("PATCH", "/streams/s", 405, "use DELETE, GET"),
    ],
)
def test_wrong_requests_to_streams_are_refused(gateway, method, path, status, words):
    gateway.stream("s")
    found = gateway.fails(method, path, "<urn:a> <urn:p> 1 ." if method == "POST" else None)
    assert found[0] == status
    assert words in found[1]


def test_the_time_of_an_element_is_not_far_in_the_future(gateway):
    gateway.stream("s")
    now = datetime.now(UTC)
    later = {"timestamp": (now + timedelta(hours=1)).isoformat()}
    status, description = gateway.fails("POST", "/streams/s", "<urn:a> <urn:p> 1 .", params=later)
    assert status == 400
    assert "streams.max_ahead" in description
    assert gateway.add("s", "<urn:a> <urn:p> 1", timestamp=now.isoformat()).startswith("1 accepted")
    assert gateway.add("s", "<urn:a> <urn:p> 1", timestamp=str(int(now.timestamp() * 1e6))).startswith("1 accepted")


# Queries


@pytest.mark.parametrize("name", ["q", "http://example.org/queries/observers", "http://example.org/a/observers/b"])
def test_a_query_is_registered_described_paused_and_ended(gateway, name):
    gateway.stream("s")
    text = select("q" if name == "q" else f"<{name}>")
    path = path_of("queries", name)
    assert gateway.ok("PUT", path, text, "text/plain") == f"{gateway.http.base_url}{path}"
    described = gateway.ok("GET", path)
    assert (described["name"], described["text"], described["state"]) == (name, text, "running")
    assert described["streams"] == ["urn:edge:stream:s"]
    for listed in ("/queries", "/queries/"):
        assert [each["name"] for each in gateway.ok("GET", listed)] == [name]
    assert gateway.ok("POST", path, "action=pause", FORM) == f"Query {name} paused"
    assert gateway.ok("GET", path)["state"] == "paused"
    assert gateway.ok("POST", path, "action=restart", FORM) == f"Query {name} restarted"
    assert gateway.ok("GET", path)["state"] == "running"
    assert gateway.ok("GET", f"{path}/observers") == gateway.ok("GET", f"{path}/observers/") == []
    assert gateway.ok("DELETE", path) == f"Query {name} unregistered"
    assert gateway.fails("GET", path)[0] == 404


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (select("other"), "is called"),
        (select("q", "urn:edge:stream:none"), "not registered"),
        ("SELECT * { ?s ?p ?o }", "REGISTER"),
        ("", "REGISTER"),
        (select("q").replace("?o }", "?o"), "line 1"),
        (select("q").replace("100ms]", "0ms]"), "1 millisecond"),
        (select("q") + " INSERT", "line 1"),
    ],
)
def test_texts_that_are_no_query_are_refused(gateway, text, words):
    gateway.stream("s")
    status, description = gateway.fails("PUT", "/queries/q", text)
    assert status == 400
    assert words in description
    assert gateway.ok("GET", "/queries") == []


@pytest.mark.parametrize(
    ("method", "path", "kind", "content", "status", "words"),
    [
        ("PUT", "/queries/q", "", select("q"), 400, "exists already"),
        ("PUT", "/queries/a%20b", "", select("q"), 400, "name of a query"),
        ("PUT", "/queries/", "", select("q"), 400, "name of a query"),
        ("POST", "/queries/none", FORM, "action=pause", 404, "no query"),
        ("POST", "/queries/q", FORM, "action=stop", 400, '"pause" or "restart"'),
        ("POST", "/queries/q", FORM, "other=1", 400, "callback URL"),
        ("POST", "/queries/q", "", "", 400, "callback URL"),
        ("POST", "/queries/q", "text/plain", "not a url", 400, "callback URL"),
        ("POST", "/queries/q", "text/plain", "ftp://example.org/", 400, "callback URL"),
        ("POST", "/queries/q", "text/plain", "http://user:pass@example.org/", 400, "callback URL"),
        ("POST", "/queries/q", "text/plain", "http://[::1/", 400, "callback URL"),
        ("POST", "/queries/q", "text/plain", "http://224.0.0.1/", 403, "streams.callback_hosts"),
        ("POST", "/queries/q", "text/plain", "/streams/none", 404, "no stream"),
        ("POST", "/queries/q", "text/plain", "/streams/s", 400, "CONSTRUCT"),
        ("POST", "/queries/none", "text/plain", "http://example.org/", 404, "no query"),
        ("GET", "/queries/none/observers", "", None, 404, "no query"),
        ("GET", "/queries/q/observers/1", "", None, 404, "no observer"),
        ("DELETE", "/queries/q/observers/1", "", None, 404, "no observer"),
        ("PUT", "/queries/q/observers", "", "x", 405, "use GET"),
        ("POST", "/queries/q/observers/1", "", "x", 405, "use DELETE, GET"),
        ("DELETE", "/queries/none", "", None, 404, "no query"),
        ("DELETE", "/streams/s", "", None, 400, "used by q"),
    ],
)
def test_wrong_requests_to_queries_are_refused(gateway, method, path, kind, content, status, words):
    gateway.stream("s")
    gateway.query("q", select("q"))
    found = gateway.fails(method, path, content, kind)
    assert found[0] == status
    assert words in found[1]
    assert gateway.ok("GET", "/queries/q/observers") == []


def test_the_stream_of_a_query_takes_no_other_elements_and_ends_with_it(gateway):
    gateway.stream("s")
    gateway.query("made", construct("made", "urn:edge:stream:s"))
    assert gateway.ok("GET", "/streams/made")["query"] == "made"
    gateway.query("reader", select("reader", "urn:edge:stream:made"))
    assert gateway.fails("POST", "/streams/made", "<urn:a> <urn:p> 1 .")[0] == 400
    assert gateway.fails("DELETE", "/streams/made")[0] == 400
    assert "used by reader" in gateway.fails("DELETE", "/queries/made")[1]
    gateway.ok("DELETE", "/queries/reader")
    gateway.ok("DELETE", "/queries/made")
    assert gateway.fails("GET", "/streams/made")[0] == 404
    gateway.stream("taken")
    assert "exists already" in gateway.fails("PUT", "/queries/taken", construct("taken", "urn:edge:stream:s"))[1]


# Static knowledge


def test_the_live_graph_is_the_static_knowledge(gateway):
    assert gateway.ok("POST", "/kb", data={"action": "update", "queryBody": "INSERT DATA { <urn:k> <urn:p> 1 }"}) == (
        "Update done: 1 added, 0 removed"
    )
    assert gateway.ok("POST", "/kb", "DELETE DATA { <urn:k> <urn:p> 1 }", "application/sparql-update")["removed"] == 1
    assert gateway.ok("POST", "/kb", data={"update": "INSERT DATA { <urn:k> <urn:p> 2 }"})["added"] == 1
    asked = "SELECT ?o { <urn:k> <urn:p> ?o }"
    answers = [
        gateway.ok("GET", "/kb", params={"query": asked}),
        gateway.ok("POST", "/kb", data={"query": asked}),
        gateway.ok("POST", "/kb", asked, "application/sparql-query"),
        gateway.ok("GET", "/query", params={"query": asked}),
    ]
    assert [answer["results"]["bindings"][0]["o"]["value"] for answer in answers] == ["2"] * 4


def graph(gateway, iri: str) -> set[str]:
    asked = f"SELECT ?o {{ GRAPH <{iri}> {{ ?s ?p ?o }} }}"
    return {row["o"]["value"] for row in gateway.ok("GET", "/kb", params={"query": asked})["results"]["bindings"]}


def rdf_xml(value: str) -> str:
    return (
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:u:"><rdf:Description>'
        f"<u:p>{value}</u:p></rdf:Description></rdf:RDF>"
    )


def test_a_named_graph_is_replaced_and_deleted(gateway):
    put = {"action": "put", "iri": "urn:g"}
    for value in ("one", "two &quot; } ; DROP ALL #"):
        assert gateway.ok("POST", "/kb", data={**put, "serialization": rdf_xml(value)}).startswith("Update done")
    assert graph(gateway, "urn:g") == {'two " } ; DROP ALL #'}
    assert gateway.ok("POST", "/kb", data={"action": "delete", "iri": "urn:g"}).startswith("Update done")
    assert graph(gateway, "urn:g") == set()


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"action": "drop"}, 400, '"update", "put" or "delete"'),
        ({"action": "update"}, 400, "queryBody"),
        ({"action": "update", "queryBody": "INSERT"}, 400, "line 1"),
        ({"action": "put", "iri": "urn:g"}, 400, "serialization"),
        ({"action": "put", "iri": "urn:g", "serialization": "<"}, 400, "not RDF/XML"),
        ({"action": "delete"}, 400, "iri"),
        ({"action": "delete", "iri": "urn:g> ; DROP ALL #"}, 400, "not an absolute IRI"),
        ({"action": ["update", "delete"]}, 400, "once"),
        ({}, 400, "missing"),
    ],
)
def test_wrong_requests_to_the_static_knowledge_are_refused(gateway, fields, status, words):
    found = gateway.fails("POST", "/kb", data=fields) if fields else gateway.fails("POST", "/kb", "a=b", FORM)
    assert found[0] == status
    assert words in found[1]


def test_browsers_of_listed_origins_may_put_and_delete(gateway):
    for path in ("/streams/s", "/queries/q"):
        headers = {"Origin": str(gateway.http.base_url), "Access-Control-Request-Method": "PUT"}
        allowed = gateway.http.options(path, headers=headers).headers["access-control-allow-methods"]
        assert {"PUT", "DELETE"} <= set(allowed.split(", "))


def test_errors_of_unknown_paths_name_the_resources(gateway):
    status, description = gateway.fails("GET", "/other")
    assert status == 404
    assert "/queries/NAME/observers/OBSERVER" in description
