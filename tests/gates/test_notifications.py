"""W3C Linked Data Notifications at /inbox: the requirements of a receiver, and hostile requests."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urljoin

import pyoxigraph as ox
import pytest
from gate_client import rows
from graph_store_client import FORMATS, parsed, store_running

G, LDP = "urn:floor-plan", "http://www.w3.org/ns/ldp#"
INBOX = "/inbox?graph=urn%3Afloor-plan"
INBOX_GRAPH = "urn:edge:inbox:graph:urn%3Afloor-plan"
JSON_LD = "application/ld+json"
NOTE = '{"@context": {"as": "https://www.w3.org/ns/activitystreams#"}, "@id": "", "@type": "as:Announce"}'
OTHER = "/inbox?graph=urn%3Aother"
NOWHERE = "00000000-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def running():
    with store_running() as store:
        yield store


@pytest.fixture
def store(running):
    yield running
    running.clear()


def post(store, body=NOTE, kind=JSON_LD, inbox=INBOX, **headers):
    return store.http.post(inbox, content=body, headers={"Content-Type": kind, **headers})


def listed(store, inbox=INBOX) -> list[str]:
    answer = store.http.get(inbox)
    assert answer.status_code == 200, answer.text
    return answer.json()["contains"]


# The requirements of a receiver, in the order of the tests of the W3C


def test_options_lists_the_methods_and_formats(store):
    answer = store.http.options(INBOX)
    assert answer.status_code == 204
    assert {"GET", "HEAD", "OPTIONS", "POST"} <= set(answer.headers["allow"].split(", "))
    accepted = answer.headers["accept-post"].split(", ")
    assert accepted[0] == JSON_LD
    assert "text/turtle" in accepted
    for each in accepted:
        assert post(store, "", each).status_code != 415


@pytest.mark.parametrize(
    "kind",
    [
        JSON_LD,
        'application/ld+json; profile="https://www.w3.org/ns/activitystreams"',
        'Application/LD+JSON;profile="https://www.w3.org/ns/anno.jsonld";charset=utf-8',
    ],
    ids=["plain", "profile", "parameters"],
)
def test_json_ld_creates_a_notification(store, kind):
    answer = post(store, NOTE, kind)
    assert answer.status_code == 201
    url = answer.headers["location"]
    assert listed(store) == [url]
    got = store.http.get(url, headers={"Accept": JSON_LD})
    assert (got.status_code, got.headers["content-type"]) == (200, JSON_LD)
    announce = ox.NamedNode("https://www.w3.org/ns/activitystreams#Announce")
    a = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
    assert parsed(got) == {ox.Triple(ox.NamedNode(url), a, announce)}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/turtle", "<> <urn:p> <#x>, <other> ."),
        (
            "application/rdf+xml",
            '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:">'
            '<rdf:Description rdf:about=""><u:p rdf:resource="#x"/><u:p rdf:resource="other"/></rdf:Description>'
            "</rdf:RDF>",
        ),
        (JSON_LD, '{"@id": "", "urn:p": [{"@id": "#x"}, {"@id": "other"}]}'),
    ],
    ids=["turtle", "rdfxml", "jsonld"],
)
def test_relative_iris_refer_to_the_notification(store, kind, body):
    url = post(store, body, kind).headers["location"]
    triples = parsed(store.http.get(url))
    found = {(each.subject.value, each.object.value) for each in triples}
    assert found == {(url, f"{url}#x"), (url, urljoin(url, "other"))}


def test_the_inbox_lists_its_notifications_in_all_formats(store):
    urls = {post(store).headers["location"] for _ in range(3)}
    plain = store.http.get(INBOX, headers={"Accept": ""})
    assert plain.headers["content-type"] == JSON_LD
    assert plain.json()["@id"] == str(store.http.base_url).rstrip("/") + INBOX
    assert plain.headers["accept-post"].startswith(JSON_LD)
    for media_type in FORMATS:
        answer = store.http.get(INBOX, headers={"Accept": media_type})
        assert answer.headers["content-type"].partition(";")[0] == media_type
        contains = {each for each in parsed(answer) if each.predicate.value == f"{LDP}contains"}
        assert {each.object.value for each in contains} == urls
        assert {each.subject.value for each in contains} == {plain.json()["@id"]}
    for wanted in (
        'application/ld+json; profile="http://www.w3.org/ns/json-ld#compacted"',
        "*/*",
        "text/html, */*;q=.1",
    ):
        assert store.http.get(INBOX, headers={"Accept": wanted}).headers["content-type"] == JSON_LD
    assert store.http.get(INBOX, headers={"Accept": "text/html"}).status_code == 406
    head = store.http.head(INBOX)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", plain.headers["etag"])


def test_clients_discover_the_inbox_of_a_graph(store):
    store.put(G, "<urn:s> <urn:p> 1 .")
    for method in ("GET", "HEAD"):
        answer = store.send(method, G)
        assert answer.links[f"{LDP}inbox"]["url"] == INBOX
    url = urljoin(str(answer.url), answer.links[f"{LDP}inbox"]["url"])
    assert post(store, inbox=url).status_code == 201
    assert len(listed(store)) == 1
    assert "link" not in store.send("GET", "").headers


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("text/html", "<p>", 415),
        ("application/pdf", "x", 415),
        ("application/x-www-form-urlencoded", "a=b", 415),
        (JSON_LD, "{", 400),
        (JSON_LD, "", 400),
        (JSON_LD, "{}", 400),
        (JSON_LD, '{"a": "b"}', 400),
        (JSON_LD, '{"@id": "urn:g", "@graph": {"@id": "urn:s", "urn:p": 1}}', 400),
        ("text/turtle", "<urn:s> <urn:p>", 400),
        ("application/rdf+xml", "<rdf:RDF", 400),
    ],
    ids=["html", "pdf", "form", "broken", "empty", "nothing", "untyped", "named", "turtle", "xml"],
)
def test_other_bodies_are_refused(store, kind, body, status):
    answer = post(store, body, kind)
    assert answer.status_code == answer.json()["status_code"] == status
    assert ("accept-post" in answer.headers) == (status == 415)
    assert listed(store) == []


def test_a_body_may_be_as_large_as_elsewhere(store):
    text = '<urn:s> <urn:p> "' + "x" * 10 * 1024 * 1024 + '" .'
    assert post(store, text, "text/turtle").status_code == 413


# Remote contexts and depth


@pytest.mark.parametrize(
    "body",
    [
        '{"@context": "http://127.0.0.1:9/context", "@id": "", "urn:p": 1}',
        '{"@context": [{}, "https://www.w3.org/ns/activitystreams"], "@id": "", "urn:p": 1}',
        '{"@context": {"@import": "http://127.0.0.1:9/context"}, "@id": "", "urn:p": 1}',
        '{"@context": {"p": {"@id": "urn:p", "@context": "context"}}, "@id": "", "p": {"urn:q": 1}}',
        '{"@id": "", "urn:p": {"@context": "http://127.0.0.1:9/context", "urn:q": 1}}',
    ],
    ids=["url", "list", "import", "scoped", "inner"],
)
def test_remote_contexts_are_refused(store, body):
    answer = post(store, body)
    assert answer.status_code == 400
    assert '"@context"' in answer.json()["error_description"]


NESTED = {
    "objects": (JSON_LD, '{"urn:p":' * 50_000 + "1" + "}" * 50_000),
    "lists": (JSON_LD, '{"urn:p":{"@list":[' * 5_000 + "1" + "]}}" * 5_000),
    "reversed": (JSON_LD, '{"@reverse":{"urn:p":' * 20_000 + "{}" + "}}" * 20_000),
    "open": (JSON_LD, "[" * 1_000_000),
    "guessed": ("application/json", '[{"@id":"","urn:p":' * 50_000),
    "xml": (
        "application/rdf+xml",
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="urn:">'
        + "<A><p>" * 350_000
        + "</p></A>" * 350_000
        + "</rdf:RDF>",
    ),
}


@pytest.mark.parametrize("name", list(NESTED))
@pytest.mark.parametrize("resource", ["inbox", "graph-store"])
def test_deep_documents_are_refused(store, resource, name):
    kind, body = NESTED[name]
    assert post(store, body, kind, f"/{resource}?graph={G}").status_code == 400
    assert listed(store) == []


def test_a_compressed_body_is_refused(store):
    answer = post(store, b"x", **{"Content-Encoding": "gzip"})
    assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")


# Storage


def test_a_notification_is_a_named_graph(store):
    url = post(store).headers["location"]
    graph = f"{INBOX_GRAPH}:{url.rpartition('=')[2]}"
    found = store.http.get("/query", params={"query": "SELECT ?g ?s { GRAPH ?g { ?s a ?type } }"}).json()
    assert rows(found) == [(graph, url)]
    assert store.lines(INBOX_GRAPH) == [f"<{INBOX_GRAPH}> <{LDP}contains> <{graph}> ."]


def test_subscribers_are_notified(store):
    query = f"SELECT ?n ?type {{ GRAPH <{INBOX_GRAPH}> {{ ?inbox <{LDP}contains> ?n }} GRAPH ?n {{ ?s a ?type }} }}"
    with store.subscribed(query) as receive:
        url = post(store).headers["location"]
        (added,) = rows(receive()["addedResults"])
        assert added[0].endswith(url.rpartition("=")[2])
        store.http.delete(url)
        assert rows(receive()["removedResults"]) == [added]


def test_the_inboxes_are_separate(store):
    named = {
        inbox: post(store, inbox=inbox).headers["location"] for inbox in (INBOX, OTHER, "/inbox?query=urn%3Aother")
    }
    for inbox, url in named.items():
        assert listed(store, inbox) == [url]
    assert len({url.rpartition("=")[2] for url in named.values()}) == 3
    elsewhere = named[INBOX].replace("floor-plan", "other")
    assert store.http.get(elsewhere).status_code == store.http.delete(elsewhere).status_code == 404
    assert listed(store) == [named[INBOX]]


def test_delete_ends_a_notification(store):
    first, second = (post(store).headers["location"] for _ in range(2))
    assert store.http.delete(first).status_code == 204
    assert listed(store) == [second]
    assert store.http.get(first).status_code == store.http.delete(first).status_code == 404
    assert store.http.get(second).status_code == 200
    assert INBOX_GRAPH + ":" + first.rpartition("=")[2] not in store.http.get("/sparql").text


def test_conditional_requests(store):
    empty = store.http.get(INBOX).headers["etag"]
    url = post(store).headers["location"]
    tag = store.http.get(INBOX).headers["etag"]
    assert tag != empty
    assert store.http.get(INBOX, headers={"If-None-Match": tag}).status_code == 304
    note = store.http.get(url).headers["etag"]
    assert store.http.get(url, headers={"If-None-Match": note}).status_code == 304
    assert store.http.delete(url, headers={"If-Match": '"other"'}).status_code == 412
    assert post(store, **{"If-None-Match": "*"}).status_code == 400
    assert store.http.delete(url, headers={"If-Match": note}).status_code == 204
    assert store.http.delete(url, headers={"If-Match": note}).status_code == 412


def test_entries_that_are_no_notifications_are_left_out(store):
    url = post(store).headers["location"]
    others = f"<urn:x>, 1, <{INBOX_GRAPH}:x>, <{INBOX_GRAPH}>, <urn:edge:inbox:graph:urn%3Aother:{NOWHERE}>"
    store.update(f"INSERT DATA {{ GRAPH <{INBOX_GRAPH}> {{ <{INBOX_GRAPH}> <{LDP}contains> {others} }} }}")
    assert listed(store) == [url]


def test_a_notification_whose_graph_was_dropped_can_be_deleted(store):
    url = post(store).headers["location"]
    store.send("DELETE", f"{INBOX_GRAPH}:{url.rpartition('=')[2]}")
    assert store.http.get(url).status_code == 404
    assert store.http.delete(url).status_code == 204
    assert listed(store) == []


# URLs and methods


@pytest.mark.parametrize(
    ("where", "status"),
    [
        ("", 400),
        ("graph=", 400),
        ("graph=relative", 400),
        ("graph=urn%3Ax&graph=urn%3Ay", 400),
        ("graph=urn%3Ax&query=y", 400),
        ("graph=urn%3Ax&other=1", 400),
        ("graph=%ff", 400),
        ("query=" + "x" * 2001, 400),
        ("query=" + "x" * 2000, 200),
        ("notification=" + NOWHERE, 400),
        ("graph=urn%3Ax&notification=", 404),
        ("graph=urn%3Ax&notification=1", 404),
        ("graph=urn%3Ax&notification=" + NOWHERE.replace("-", ""), 404),
        ("graph=urn%3Ax&notification=" + NOWHERE, 404),
    ],
)
def test_urls_of_inboxes_and_notifications(store, where, status):
    assert store.http.get(f"/inbox?{where}").status_code == status


def test_other_methods_are_refused(store):
    url = post(store).headers["location"]
    for wrong, allowed in ((store.http.delete(INBOX), "POST"), (post(store, inbox=url), "DELETE")):
        assert wrong.status_code == 405
        assert allowed in wrong.headers["allow"]
    for method in ("PUT", "PATCH"):
        assert store.http.request(method, INBOX).status_code == 405
    assert len(listed(store)) == 1


def test_odd_names_are_names(store):
    for name in ("ä b", "a/b?c#d&e", "%2F", ">} ; DROP ALL #", "x:" + NOWHERE):
        inbox = f"/inbox?{store.http.build_request('GET', '/', params={'query': name}).url.query.decode()}"
        url = post(store, inbox=inbox).headers["location"]
        assert listed(store, inbox) == [url]
        assert store.http.get(url).status_code == 200


def test_a_hostile_host_is_no_part_of_urls(store):
    for host in ("localhost:1 2", "<x>", "a\\b", "localhost/<x>"):
        answer = post(store, Host=host)
        assert answer.status_code in (201, 400, 403)
        if answer.status_code == 201:
            assert store.http.get(answer.headers["location"]).status_code == 200
        listing = store.http.get(INBOX, headers={"Host": host, "Accept": "text/turtle"})
        assert listing.status_code in (200, 400, 403)


def test_pages_of_other_origins_read_the_link(store):
    store.put(G, "<urn:s> <urn:p> 1 .")
    origin = {"Origin": "http://localhost:5173"}
    exposed = store.http.get("/graph-store", params={"graph": G}, headers=origin).headers
    assert "Link" in exposed["access-control-expose-headers"]
    asked = {**origin, "Access-Control-Request-Method": "DELETE"}
    assert "DELETE" in store.http.options(INBOX, headers=asked).headers["access-control-allow-methods"]


# Limits


def test_a_full_inbox_refuses_further_notifications():
    with store_running(http={"max_notifications": 5}) as store:
        # Entries that a client adds by SPARQL do not count.
        entries = " ".join(f"<{INBOX_GRAPH}> <http://www.w3.org/ns/ldp#contains> <urn:x{n}> ." for n in range(9))
        store.update(f"INSERT DATA {{ GRAPH <{INBOX_GRAPH}> {{ {entries} }} }}")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(store), range(20)))
        assert sorted(answer.status_code for answer in answers) == [201] * 5 + [429] * 15
        assert len(listed(store)) == 5
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "http.max_notifications" in json.loads(refused.text)["error_description"]
        assert post(store, inbox=OTHER).status_code == 201
        assert store.http.delete(listed(store)[0]).status_code == 204
        assert post(store).status_code == 201
        assert post(store).status_code == 429
