"""SPARQL 1.1 Service Description at /sparql."""

from __future__ import annotations

import pyoxigraph as ox
import pytest

from edge.engine.settings import EngineSettings
from edge.gates.http import Views
from edge.gateway.gateway import _features

SD = "http://www.w3.org/ns/sparql-service-description#"
FORMATS = {
    "text/turtle": ox.RdfFormat.TURTLE,
    "application/ld+json": ox.RdfFormat.JSON_LD,
    "application/rdf+xml": ox.RdfFormat.RDF_XML,
}


def objects(answer, predicate: str) -> set[str]:
    form = FORMATS[answer.headers["content-type"]]
    quads = ox.parse(answer.content, form, base_iri="http://localhost/")
    return {str(quad.object) for quad in quads if quad.predicate.value == SD + predicate}


@pytest.fixture
async def http(gateway):
    await gateway.update("INSERT DATA { GRAPH <urn:g> { <urn:s> <urn:p> 1 } GRAPH <urn:h> { <urn:s> <urn:p> 1 } }")
    async with gateway.http() as client:
        yield client


@pytest.mark.parametrize("media_type", FORMATS)
async def test_a_get_without_a_query_describes_the_endpoint(http, media_type):
    answer = await http.get("/sparql", headers={"Accept": media_type})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == media_type
    assert objects(answer, "supportedLanguage") == {f"<{SD}SPARQL11Query>", f"<{SD}SPARQL11Update>"}
    assert objects(answer, "endpoint") == {f"<{http.base_url.join('/sparql')}>"}
    assert objects(answer, "name") == {"<urn:g>", "<urn:h>"}
    assert objects(answer, "feature") == set()


async def test_a_browser_gets_the_console(http):
    answer = await http.get("/sparql", headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/#console")


async def test_a_format_that_does_not_exist_is_refused(http):
    answer = await http.get("/sparql", headers={"Accept": "image/png"})
    assert answer.status_code == 406
    assert "text/turtle" in answer.json()["error_description"]


async def test_a_query_that_is_missing_is_still_an_error(http):
    answer = await http.get("/sparql?default-graph-uri=urn:g")
    assert answer.status_code == 400


async def test_features_and_other_endpoints_are_named(serve):
    views = Views(features=["UnionDefaultGraph"], endpoints=lambda: {"ws": "ws://127.0.0.1:1/subscribe"})
    async with serve(views=views) as gateway, gateway.http() as http:
        answer = await http.get("/sparql", headers={"Accept": "text/turtle"})
    assert objects(answer, "feature") == {f"<{SD}UnionDefaultGraph>"}
    assert "<ws://127.0.0.1:1/subscribe>" in answer.text


def test_the_features_are_those_of_the_settings():
    assert _features(EngineSettings()) == ["EmptyGraphs"]
    with_all = EngineSettings(default_graph_as_union=True, allow_load=True, allow_service=True)
    assert _features(with_all) == ["EmptyGraphs", "UnionDefaultGraph", "DereferencesURIs", "BasicFederatedQuery"]
