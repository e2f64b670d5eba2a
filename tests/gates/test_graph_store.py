"""SPARQL 1.1 Graph Store HTTP Protocol at /graph-store."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pyoxigraph as ox
import pytest
from gate_client import rows
from graph_store_client import FORMATS, parsed, store_running

G, H = "urn:g", "http://example.org/graphs/a b?c=ä&d#e".replace(" ", "%20")
ONE = "<urn:s> <urn:p> 1 ."
ONE_LINE = '<urn:s> <urn:p> "1"^^<http://www.w3.org/2001/XMLSchema#integer> .'


@pytest.fixture(scope="module")
def running():
    with store_running() as store:
        yield store


@pytest.fixture
def store(running):
    yield running
    running.clear()


def description(answer) -> str:
    body = answer.json()
    assert body["status_code"] == answer.status_code
    return body["error_description"]


# The cases of the W3C test suite for this protocol, in its order


def test_the_cases_of_the_w3c_suite(store):
    """Each step has the status that the suite expects, and the graph afterwards."""
    person, other = "<urn:p1> a <urn:Person> .", "<urn:p2> a <urn:Person> ."
    person_line, other_line = (
        f"<urn:p{number}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <urn:Person> ." for number in (1, 2)
    )
    assert store.put(G, person).status_code == 201  # PUT: the initial state
    assert store.lines(G) == [person_line]
    assert store.put(G, other).status_code in (200, 204)  # PUT: a graph that is already there
    assert store.lines(G) == [other_line]
    assert store.put("", person).status_code in (200, 201, 204)  # PUT: the default graph
    assert store.lines("") == [person_line]
    mismatched = store.send("PUT", G, person, Content_Type="application/rdf+xml")
    assert mismatched.status_code == 400  # PUT: the payload is not of its content type
    assert store.lines(G) == [other_line]
    assert store.put("urn:empty", "").status_code == 201  # PUT: an empty graph
    assert store.lines("urn:empty") == []
    assert store.put("urn:empty", person).status_code == 204  # PUT: replace the empty graph
    assert store.lines("urn:empty") == [person_line]
    assert store.send("DELETE", G).status_code in (200, 204)  # DELETE: a graph that is there
    assert store.send("GET", G).status_code == 404
    assert store.send("DELETE", G).status_code == 404  # DELETE: a graph that is not there
    store.put(G, person)
    assert store.post(G, other).status_code in (200, 204)  # POST: an existing graph
    assert store.lines(G) == [person_line, other_line]
    created = store.post(None, person)  # POST: a new graph
    assert created.status_code == 201
    assert parsed(store.http.get(created.headers["location"])) == parsed(store.send("GET", "urn:empty"))
    assert store.post(G, "").status_code in (200, 204)  # POST: an empty graph to an existing one
    assert store.lines(G) == [person_line, other_line]
    head, got = store.send("HEAD", G), store.send("GET", G)
    assert (head.status_code, head.content) == (200, b"")  # HEAD: an existing graph
    assert {**head.headers, "date": ""} == {**got.headers, "date": ""}
    assert store.send("HEAD", "urn:none").status_code == 404  # HEAD: a graph that is not there


# Identification


def test_the_default_graph_always_exists(store):
    assert store.lines("") == []
    assert store.put("", ONE).status_code == 204
    assert store.send("DELETE", "").status_code == 204
    assert store.send("DELETE", "").status_code == 204
    assert store.lines("") == []


def test_an_iri_with_any_characters_identifies_a_graph(store):
    created = store.put(H, ONE)
    assert created.status_code == 201
    assert parsed(store.http.get(created.headers["location"])) == parsed(store.send("GET", H))
    named = store.http.get("/query", params={"query": "SELECT ?g { GRAPH ?g {} }"}).json()
    assert [row["g"]["value"] for row in named["results"]["bindings"]] == [H]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "POST"])
@pytest.mark.parametrize(
    "query", ["default&graph=urn:g", "graph=urn:g&graph=urn:h", "default&default", "graph=", "graph=g", "graphs=urn:g"]
)
def test_a_url_that_does_not_name_one_graph_is_refused_with_a_remedy(store, method, query):
    answer = store.http.request(method, f"/graph-store?{query}", content=ONE, headers={"Content-Type": "text/turtle"})
    assert answer.status_code == 400
    if method != "HEAD":
        assert "?graph= with the percent-encoded IRI" in description(answer)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_a_url_without_a_graph_is_only_for_post(store, method):
    answer = store.send(method, None, "", Content_Type="text/turtle")
    assert answer.status_code == 400
    assert "names no graph" in description(answer)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "POST"])
def test_a_graph_with_a_long_iri_is_refused(store, method):
    longest = "urn:" + "é" * 1996
    assert store.send(method, longest, "", Content_Type="application/sparql-update").status_code != 400
    answer = store.send(method, longest + "x", ONE, Content_Type="text/turtle")
    assert answer.status_code == 400
    if method != "HEAD":
        assert "2,000 characters" in description(answer)


def test_each_post_without_a_graph_creates_another_one(store):
    locations = {store.post(None, ONE).headers["location"] for _ in range(3)}
    assert len(locations) == 3
    assert all(location.startswith("/graph-store?graph=urn%3Auuid%3A") for location in locations)


def test_relative_iris_have_the_graph_as_their_base(store):
    store.put("http://example.org/x/", "<y> <#p> <> .")
    assert store.lines("http://example.org/x/") == [
        "<http://example.org/x/y> <http://example.org/x/#p> <http://example.org/x/> ."
    ]
    store.put("", "<y> <urn:p> <urn:o> .")
    assert store.lines("") == [f"<{store.http.base_url.join('/y')}> <urn:p> <urn:o> ."]


# Formats


@pytest.mark.parametrize("media_type", FORMATS)
def test_a_graph_is_returned_in_each_format_with_its_own_entity_tag(store, media_type):
    store.put(G, "<urn:s> <http://example.org/p> 1, 'x'@en, <urn:o> .")
    answer = store.send("GET", G, Accept=media_type)
    assert answer.headers["content-type"].partition(";")[0] == media_type
    assert "Accept" in answer.headers["vary"]
    assert parsed(answer) == parsed(store.send("GET", G))
    tags = {store.send("GET", G, Accept=each).headers["etag"] for each in FORMATS}
    assert len(tags) == len(FORMATS)


def test_quality_values_decide(store):
    store.put(G, ONE)
    accept = "text/turtle;q=0.2, application/n-triples;q=0.8, text/html, */*;q=0.1"
    assert store.send("GET", G, Accept=accept).headers["content-type"] == "application/n-triples"


def test_a_format_that_is_not_available_is_refused_with_the_list(store):
    store.put(G, ONE)
    answer = store.send("GET", G, Accept="text/html")
    assert answer.status_code == 406
    assert all(media_type in description(answer) for media_type in FORMATS)


BODIES = {
    "text/turtle": "<urn:s> <urn:p> 'x' .",
    "application/n-triples": '<urn:s> <urn:p> "x" .',
    "application/n-quads": '<urn:s> <urn:p> "x" .',
    "application/trig": "<urn:s> <urn:p> 'x' .",
    "application/ld+json": '{"@id": "urn:s", "urn:p": "x"}',
    "application/json": '{"@id": "urn:s", "urn:p": "x"}',
    "application/rdf+json": '{"urn:s": {"urn:p": [{"type": "literal", "value": "x"}]}}',
    "application/rdf+xml": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:">'
    '<rdf:Description rdf:about="urn:s"><u:p>x</u:p></rdf:Description></rdf:RDF>',
    "text/turtle; charset=utf-8": "<urn:s> <urn:p> 'x' .",
}


@pytest.mark.parametrize("method", ["PUT", "POST"])
@pytest.mark.parametrize("media_type", BODIES)
def test_bodies_are_read_in_each_format(store, method, media_type):
    assert store.send(method, G, BODIES[media_type], Content_Type=media_type).status_code == 201
    assert store.lines(G) == ['<urn:s> <urn:p> "x" .']


@pytest.mark.parametrize(
    "media_type", ["text/html", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"]
)
def test_another_content_type_is_refused_with_the_list(store, media_type):
    answer = store.send("PUT", G, ONE, Content_Type=media_type)
    assert answer.status_code == 415
    assert "application/rdf+xml" in description(answer)
    answer = store.send("PATCH", G, ONE, Content_Type=media_type)
    assert answer.status_code == 415
    assert "application/sparql-update" in description(answer)
    assert answer.headers["accept-patch"] == "application/sparql-update"
    assert store.lines(G) is None


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("text/turtle", "<urn:s> <urn:p>"),
        ("application/trig", "<urn:other> { <urn:s> <urn:p> 1 }"),
        ("text/turtle", "<urn:s> <urn:p> <<( <urn:s> <urn:p> 1 )>> ."),
        ("application/n-triples", '<urn:s> <urn:p> "\\uD800" .'),
    ],
)
def test_a_body_that_is_not_a_graph_changes_nothing(store, media_type, body):
    store.put(G, ONE)
    answer = store.send("PUT", G, body, Content_Type=media_type)
    assert answer.status_code == 400
    assert store.lines(G) == [ONE_LINE]


RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:u="urn:"'


def rdf_xml(entities: str, text: str) -> str:
    return (
        f"<?xml version='1.0'?><!DOCTYPE rdf:RDF [{entities}]>"
        f'<rdf:RDF {RDF}><rdf:Description rdf:about="urn:s"><u:p>{text}</u:p></rdf:Description></rdf:RDF>'
    )


def test_short_bodies_that_would_be_long_graphs_are_refused(store):
    nested = "".join(f'<!ENTITY a{number} "{f"&a{number - 1};" * 10}">' for number in range(1, 9))
    body = rdf_xml(f'<!ENTITY a0 "aaaaaaaaaa">{nested}', "&a8;")
    assert store.send("PUT", G, body, Content_Type="application/rdf+xml").status_code == 400
    body = rdf_xml(f"<!ENTITY a '{'a' * 100_000}'>", "&a;" * 1000)
    assert store.send("PUT", G, body, Content_Type="application/rdf+xml").status_code == 400
    body = rdf_xml('<!ENTITY urn "urn:x:">', "&urn;y &lt; z")
    assert store.send("PUT", G, body, Content_Type="application/rdf+xml").status_code == 201
    assert store.lines(G) == ['<urn:s> <urn:p> "urn:x:y < z" .']
    prefix = f"PREFIX p: <urn:{'a' * 100_000}>\n"
    answer = store.put(G, prefix + "".join(f"p:{number} p:b p:c .\n" for number in range(1000)))
    assert answer.status_code == 413
    assert store.lines(G) == ['<urn:s> <urn:p> "urn:x:y < z" .']


def test_texts_with_any_characters_survive(store):
    text = '"quoted" \\ \n\r\t } ; DROP ALL # é 🜁 \u0007'
    triple = ox.Triple(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), ox.Literal(text))
    store.put(G, f"{triple} .")
    assert store.lines(G) == [f"{triple} ."]


# Changes


def test_subscribers_get_the_difference_of_a_put(store):
    store.put(G, "<urn:s> <urn:p> 1, 2 .")
    with store.subscribed(f"SELECT ?o {{ GRAPH <{G}> {{ ?s ?p ?o }} }}") as receive:
        store.put(G, "<urn:s> <urn:p> 2, 1 .")  # no change, so no notification
        store.put(G, "<urn:s> <urn:p> 2, 3 .")
        note = receive()
    assert (rows(note["addedResults"]), rows(note["removedResults"])) == ([("3",)], [("1",)])


def test_large_graphs_change_by_the_difference_too(store):
    """From 2,000 triples on, the engine prepares a change in pieces."""
    many = "".join(f"<urn:s{number}> <urn:p> {number} .\n" for number in range(3000))
    assert store.put(G, many).status_code == 201
    with store.subscribed(f"SELECT ?o {{ GRAPH <{G}> {{ ?s ?p ?o }} }}") as receive:
        assert store.put(G, many).status_code == 204
        assert store.put(G, many + "<urn:s> <urn:p> 'new' .", If_Match=store.tag(G)).status_code == 204
        note = receive()
    assert (rows(note["addedResults"]), rows(note["removedResults"])) == ([("new",)], [])
    assert len(store.lines(G) or ()) == 3001


def test_blank_nodes_of_a_put_are_new_ones(store):
    store.put(G, "_:b <urn:p> 1 .")
    first = store.lines(G)
    store.put(G, "_:b <urn:p> 1 .")
    second = store.lines(G)
    assert (len(first), len(second)) == (1, 1)
    assert first != second
    tag = store.tag(G)
    assert store.tag(G) == tag  # the names of stored blank nodes do not change
    store.post(G, "_:b <urn:p> 1 .")
    assert len(store.lines(G)) == 2


def test_graphs_and_entity_tags_survive_a_restart(tmp_path):
    found = []
    for number in range(2):
        with store_running(tmp_path) as store:
            if not number:
                store.put(G, "_:b <urn:p> 1, _:c . <urn:s> <urn:p> 'x'@en-GB, 01, 1.50, 'y'^^<urn:t> .")
                store.put("urn:empty", "")
            found.append([(store.lines(graph), store.tag(graph)) for graph in (G, "urn:empty", "")])
    assert found[0] == found[1]


def test_patch_changes_only_the_graph_of_the_url(store):
    store.put("", "<urn:s> <urn:p> 1 .")
    store.put(G, "<urn:s> <urn:p> 1 .")
    steps = (
        "PREFIX u: <urn:> DELETE { ?s u:p ?o } INSERT { ?s u:p ?new } WHERE { ?s u:p ?o BIND(?o + 1 AS ?new) } ; # }\n"
        "INSERT DATA { <urn:s> <urn:q> '{ GRAPH }' , 2 # }\n } ; DELETE DATA { <urn:s> <urn:q> 2 } ;"
    )
    assert store.patch(G, steps).status_code == 204
    assert store.lines(G) == [ONE_LINE.replace('"1"', '"2"'), '<urn:s> <urn:q> "{ GRAPH }" .']
    assert store.lines("") == [ONE_LINE]
    assert store.patch(G, "DELETE WHERE { ?s ?p ?o }").status_code == 204
    assert (store.lines(G), store.lines("")) == ([], [ONE_LINE])
    assert store.patch("", "CLEAR DEFAULT ; INSERT DATA { <urn:s> <urn:p> 3 }").status_code == 204
    assert store.lines("") == [ONE_LINE.replace('"1"', '"3"')]
    assert store.patch("urn:new", "INSERT { <urn:a> <urn:b> <urn:c> } WHERE {}").status_code == 201
    assert store.patch("urn:new", "CLEAR DEFAULT").status_code == 204
    assert store.lines("urn:new") == []


def test_patch_may_clear_a_graph_that_does_not_exist_yet(store):
    assert store.patch("urn:new", "CLEAR DEFAULT ; INSERT DATA { <urn:s> <urn:p> 1 }").status_code == 201
    assert store.lines("urn:new") == [ONE_LINE]
    assert store.patch("urn:new", "clear silent default").status_code == 204
    assert store.lines("urn:new") == []
    assert store.patch(G, "CLEAR DEFAULT").status_code == 204
    assert store.lines(G) is None  # nothing was added to it


@pytest.mark.parametrize("graph", ["", G], ids=["default", "named"])
@pytest.mark.parametrize(
    "update",
    [
        "INSERT DATA { GRAPH <urn:other> { <urn:s> <urn:p> 1 } }",
        "INSERT DATA { <urn:s> <urn:p> 1 } ; CLEAR ALL",
        "DROP GRAPH <urn:other>",
        "CREATE GRAPH <urn:new>",
        "COPY <urn:other> TO DEFAULT",
        "MOVE DEFAULT TO <urn:new>",
        "WITH <urn:other> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p ?o } USING <urn:other> WHERE { ?s ?p ?o }",
        "INSERT { ?s ?p ?o } WHERE { FILTER EXISTS { GRAPH ?g { ?s ?p ?o } } }",
        "LOAD <http://127.0.0.1:9/> INTO GRAPH <urn:other>",
    ],
)
def test_patch_refuses_other_graphs(store, graph, update):
    store.put("urn:other", ONE)
    answer = store.patch(graph, update)
    assert answer.status_code == 422
    assert "/update" in description(answer) or "leave out" in description(answer)
    assert store.lines("urn:other") == [ONE_LINE]
    assert store.lines("") == []


@pytest.mark.parametrize(
    "update",
    ["INSERT DATA { <urn:s> <urn:p> }", "SELECT * { ?s ?p ?o }", "} ; DROP ALL", "INSERT", "CLEAR ALL DEFAULT"],
)
def test_an_invalid_patch_is_refused(store, update):
    store.put(G, ONE)
    assert store.patch(G, update).status_code in (400, 422)
    assert store.lines(G) == [ONE_LINE]


def test_a_long_patch_is_refused(store):
    answer = store.patch(G, "#" * (1024 * 1024 + 1))
    assert answer.status_code == 413
    assert store.patch(G, "#" * 1024 * 1024).status_code == 204


def test_a_patch_that_would_be_long_with_the_name_of_its_graph_is_refused(store):
    answer = store.patch("urn:" + "x" * 1996, "INSERT;" * 100_000)
    assert answer.status_code == 413
    assert "http.max_message" in description(answer)


@pytest.mark.parametrize("graph", ["", G], ids=["default", "named"])
@pytest.mark.parametrize("value", ["bytes 0-17/100", "bytes */100", ""])
def test_a_part_of_a_graph_does_not_replace_it(store, graph, value):
    """RFC 9110, section 14.5."""
    store.put(graph, "<urn:s> <urn:p> 0 .")
    answer = store.put(graph, ONE, Content_Range=value)
    assert answer.status_code == 400
    assert "Content-Range" in description(answer)
    assert store.lines(graph) == [ONE_LINE.replace('"1"', '"0"')]


# Conditional requests


def test_a_graph_that_has_not_changed_is_not_sent_again(store):
    store.put(G, ONE)
    got = store.send("GET", G)
    tag = got.headers["etag"]
    for condition in (tag, f'"x", {tag}', f"W/{tag}", "*"):
        answer = store.send("GET", G, If_None_Match=condition)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert answer.headers["vary"] == got.headers["vary"]
    assert store.send("GET", G, If_None_Match='"x"').status_code == 200
    assert store.send("GET", G, If_None_Match=tag, Accept="application/n-triples").status_code == 200
    assert store.send("GET", G, If_Match='"x"').status_code == 412
    assert store.send("GET", G, If_Match=tag).content == got.content
    store.post(G, "<urn:s> <urn:p> 2 .")
    assert store.send("GET", G, If_None_Match=tag).status_code == 200
    store.put(G, ONE)
    assert store.tag(G) == tag  # the tag depends on the content alone


@pytest.mark.parametrize("method", ["PUT", "POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("graph", ["", G], ids=["default", "named"])
def test_a_change_with_an_outdated_entity_tag_is_refused(store, method, graph):
    body, kind = ("INSERT DATA { <urn:s> <urn:p> 3 }", "application/sparql-update") if method == "PATCH" else (ONE, "")
    store.put(graph, "<urn:s> <urn:p> 0 .")
    old = store.tag(graph)
    triple = "<urn:s> <urn:p> 7"
    store.update(f"INSERT DATA {{ {f'GRAPH <{graph}> {{ {triple} }}' if graph else triple} }}")
    before = store.lines(graph)
    for condition in ({"If_Match": old}, {"If_Match": f"W/{store.tag(graph)}"}, {"If_None_Match": "*"}):
        assert store.send(method, graph, body, Content_Type=kind, **condition).status_code == 412, condition
    assert store.send(method, graph, body, Content_Type=kind, If_None_Match=store.tag(graph)).status_code == 412
    assert store.lines(graph) == before
    json_tag = store.send("GET", graph, Accept="application/ld+json").headers["etag"]
    assert store.send(method, graph, body, Content_Type=kind, If_Match=f'"x", {json_tag}').status_code == 204
    assert store.lines(graph) != before


def test_conditions_on_the_existence_of_a_graph(store):
    assert store.put(G, ONE, If_Match="*").status_code == 412
    assert store.put(G, ONE, If_Match='"x"').status_code == 412
    assert store.send("GET", G, If_Match="*").status_code == 412
    assert store.put(G, ONE, If_None_Match="*").status_code == 201
    assert store.put(G, ONE, If_None_Match="*").status_code == 412
    assert store.put(G, ONE, If_Match="*").status_code == 204
    assert store.put("", ONE, If_Match="*").status_code == 204
    assert store.put("", ONE, If_Match="*", If_None_Match="*").status_code == 412
    assert store.send("DELETE", G, If_Match="*").status_code == 204
    assert store.send("DELETE", G, If_Match="*").status_code == 412


@pytest.mark.parametrize("condition", ["x", '"x', "W/x", '"a" "b"', "*, *"])
def test_a_condition_that_cannot_be_read_is_refused(store, condition):
    answer = store.put(G, ONE, If_Match=condition)
    assert answer.status_code == 400
    assert "If-Match" in description(answer)
    assert store.lines(G) is None


def test_of_several_clients_with_the_same_entity_tag_one_succeeds(store):
    def put(value: int, tag: str) -> int:
        return store.put(G, f"<urn:s> <urn:p> {value} .", If_Match=tag).status_code

    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):
            store.put(G, ONE)
            assert sorted(pool.map(put, range(10, 14), [store.tag(G)] * 4)) == [204, 412, 412, 412]


def test_of_several_clients_that_create_a_graph_one_succeeds(store):
    def put(graph: str) -> int:
        return store.put(graph, ONE, If_None_Match="*").status_code

    with ThreadPoolExecutor(4) as pool:
        for number in range(5):
            assert sorted(pool.map(put, [f"urn:new:{number}"] * 4)) == [201, 412, 412, 412]


def test_no_increment_of_concurrent_clients_is_lost(store):
    """Some clients use entity tags, and others SPARQL Update, on the same graph."""

    def by_tag() -> None:
        done = 0
        while done < 5:
            got = store.send("GET", G)
            (triple,) = parsed(got)
            new = f"<urn:s> <urn:p> {int(triple.object.value) + 1} ."
            answer = store.put(G, new, If_Match=got.headers["etag"])
            assert answer.status_code in (204, 409, 412), answer.text
            done += answer.status_code == 204

    def by_update() -> None:
        for _ in range(5):
            store.update(
                f"WITH <{G}> DELETE {{ ?s ?p ?o }} INSERT {{ ?s ?p ?new }} WHERE {{ ?s ?p ?o BIND(?o + 1 AS ?new) }}"
            )

    store.put(G, "<urn:s> <urn:p> 0 .")
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(action) for action in (by_tag, by_update, by_tag, by_update)]:
            future.result(60)
    assert store.lines(G) == [ONE_LINE.replace('"1"', '"20"')]


# The rest of HTTP


def test_methods_are_listed_and_others_refused(store):
    options = store.send("OPTIONS", G)
    assert (options.status_code, options.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
    assert options.headers["accept-patch"] == "application/sparql-update"
    assert store.send("TRACE", G).status_code == 405


def test_pages_of_an_allowed_origin_may_change_graphs_and_read_entity_tags(store):
    origin = {"Origin": "http://localhost:3000"}
    asked = store.http.options("/graph-store?default", headers={**origin, "Access-Control-Request-Method": "PATCH"})
    assert {"PUT", "PATCH", "DELETE"} <= set(asked.headers["access-control-allow-methods"].split(", "))
    got = store.http.get("/graph-store?default", headers=origin)
    assert got.headers["access-control-expose-headers"] == "ETag"


def test_the_service_description_names_the_graph_store(store):
    answer = store.http.get("/sparql", headers={"Accept": "text/turtle"})
    assert f"<{store.http.base_url.join('/graph-store')}>" in answer.text


def test_errors_are_json(store):
    answer = store.send("GET", "urn:none")
    assert json.loads(answer.text)["error"] == "not_found"
    assert "urn:none" in description(answer)


def test_the_default_graph_is_not_the_union_of_all_graphs():
    with store_running(default_graph_as_union=True) as store:
        store.put("", ONE)
        store.put(G, "<urn:s> <urn:p> 2 .")
        assert store.lines("") == [ONE_LINE]
        assert store.patch("", "DELETE { ?s ?p ?o } INSERT { ?s <urn:q> ?o } WHERE { ?s ?p ?o }").status_code == 204
        assert store.lines("") == [ONE_LINE.replace("urn:p", "urn:q")]
        assert store.lines(G) == [ONE_LINE.replace('"1"', '"2"')]
