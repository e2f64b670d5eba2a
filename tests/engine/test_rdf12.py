"""RDF 1.2 in updates: refused in so many words where it would have to be stored."""

from __future__ import annotations

import pytest
from engine_client import PREFIX, refused, triples, update
from engine_world import new_engine

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
def test_it_is_refused_in_data_and_templates_and_the_error_says_so(text):
    assert refused(new_engine(), PREFIX + text, ParsingFailed).startswith("RDF 1.2 ")


def test_what_only_looks_like_it_is_taken():
    engine = new_engine()
    update(engine, r"""INSERT DATA { ex:a ex:b "<< {| |} ~ @en--ltr"@en-GB , <urn:~> , ex:\~ } # << {| "x"@en--ltr""")
    update(engine, "INSERT { ex:VERSION ex:b ?n } WHERE { BIND(3--2 AS ?n) }")
    assert len(triples(engine)) == 4


def test_a_where_clause_may_hold_it():
    engine = new_engine()
    update(engine, 'INSERT { ex:a ex:b ?x } WHERE { BIND(LANGDIR("x"@en--ltr) AS ?x) }')
    assert triples(engine) == {'a b "ltr"'}
