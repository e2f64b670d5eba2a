"""RDF 1.2 in updates: an explicit error wherever it would have to be stored."""

from __future__ import annotations

import pyoxigraph as ox
import pytest
from engine_client import PREFIX, Client, refused, triples, update
from engine_world import new_engine

from edge.engine.queries.oxigraph_queries import EvaluationFailed
from edge.engine.queries.query_processor import collect
from edge.engine.requests import QueryRequest
from edge.protocol.errors import ParsingFailed


@pytest.mark.parametrize(
    "text",
    [
        "INSERT DATA { << ex:a ex:b 1 >> ex:c 2 }",
        "INSERT DATA { ex:x ex:c <<( ex:a ex:b 1 )>> }",
        "INSERT DATA { ex:a ex:b 1 {| ex:c 2 |} }",
        "INSERT DATA { ex:a ex:b 1 ~ ex:r }",
        'INSERT DATA { ex:a ex:b "x"@en--ltr }',
        'INSERT DATA { ex:a ex:b 1 } ; INSERT DATA { GRAPH ex:g { ex:a ex:b "x"@ar--rtl } }',
        "INSERT { << ?s ?p ?o >> ex:c 2 } WHERE { ?s ?p ?o }",
        "DELETE { << ?s ?p ?o >> ex:c 2 } INSERT { ?s ?p 2 } WHERE { ?s ?p ?o }",
        "DELETE WHERE { << ?s ?p ?o >> ex:c 2 }",
        'VERSION "1.2" INSERT DATA { ex:a ex:b 1 }',
        "INSERT DATA { " + "ex:a ex:b 1 . " * 2000 + '<urn:a> <urn:b> "x"@en--ltr }',
    ],
)
def test_rdf_12_in_data_and_templates_is_refused_with_the_reason(text):
    assert " is RDF 1.2 and not accepted in " in refused(new_engine(), PREFIX + text, ParsingFailed)


def test_text_that_only_looks_like_rdf_12_is_accepted():
    engine = new_engine()
    update(engine, r"""INSERT DATA { ex:a ex:b "<< {| |} ~ @en--ltr"@en-GB , <urn:~> , ex:\~ } # << {| "x"@en--ltr""")
    update(engine, "INSERT { ex:VERSION ex:b ?n } WHERE { BIND(3--2 AS ?n) }")
    assert len(triples(engine)) == 4


@pytest.mark.parametrize(
    "text",
    [
        "CONSTRUCT { ?s ex:q <<( ?s ?p ?o )>> } WHERE { ?s ?p ?o }",
        "CONSTRUCT { << ?s ?p ?o >> ex:q 1 } WHERE { ?s ?p ?o }",
        "CONSTRUCT { ?s ?p ?o {| ex:q 1 |} } WHERE { ?s ?p ?o }",
        "CONSTRUCT { ?s ?p ?o ~ ex:r } WHERE { ?s ?p ?o } LIMIT 3",
        'CONSTRUCT { ?s ?p "x"@en--ltr } WHERE { ?s ?p ?o }',
        "CONSTRUCT WHERE { << ?s ?p ?o >> ?q ?r }",
    ],
)
def test_rdf_12_in_a_subscription_template_is_refused_with_the_reason(text):
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:b 1 }")
    with pytest.raises(ParsingFailed, match=r"RDF 1\.2 .* template of a subscription .* Send it as a query"):
        Client(engine, text)
    question = engine.queries.question(QueryRequest(PREFIX + text))
    engine.queries.run(question, collect, 0)  # a query accepts it


@pytest.mark.parametrize("where", ["?s ex:b ?o", "?s ex:b ?o . ?o ex:c* ?x"])
def test_a_subscription_may_hold_triple_terms_in_its_result(where):
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:b 1 }")
    client = Client(engine, f"SELECT ?t {{ {where} BIND(TRIPLE(?s, ex:b, ?o) AS ?t) }}")
    (row,) = client.last.delta.added
    assert isinstance(row[0], ox.Triple)


@pytest.mark.parametrize("form", ["SELECT ?x", "SELECT DISTINCT ?x", "CONSTRUCT { ?s ex:q ?x } WHERE"])
def test_a_blank_node_that_cannot_be_written_fails_a_subscription_with_the_reason(form):
    engine = new_engine()
    update(engine, "INSERT DATA { ex:a ex:b 1 }")
    with pytest.raises(EvaluationFailed, match="label"):
        Client(engine, form + " { ?s ex:b ?o BIND(BNODE('a:b') AS ?x) } LIMIT 1")


def test_rdf_12_in_a_where_clause_is_accepted():
    engine = new_engine()
    update(engine, 'INSERT { ex:a ex:b ?x } WHERE { BIND(LANGDIR("x"@en--ltr) AS ?x) }')
    assert triples(engine) == {'a b "ltr"'}
