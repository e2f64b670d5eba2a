"""Documents that would end the process, or fill its memory, while they are parsed."""

from __future__ import annotations

import json

import pytest

from edge.gates.http.rdf_body import read_graph
from edge.protocol import json_ld_contexts
from edge.protocol.errors import InvalidRequest, TooLarge
from edge.protocol.json_ld_contexts import context_fault
from edge.protocol.parsed_quads import LONGEST

PREFIX = "http://example.org/" + "a" * 200_000
USES = LONGEST // len(PREFIX) + 1


def chain(length: int) -> str:
    terms = {f"a{number}": f"a{number + 1}:x" for number in range(length)}
    return json.dumps({"@context": {**terms, f"a{length}": "urn:x:"}, "@id": "urn:s", "a0": "value"})


@pytest.mark.parametrize(
    "document",
    [
        chain(6_000),
        chain(6_000).replace('"@context"', '"\\u0040con\\u0074ext"'),
        '{"@context":{' + ",".join(f'"a{n}":"a{n + 1}:x","a{n}":"urn:x:"' for n in range(6_000)) + '},"a0":"v"}',
        json.dumps({"@context": {"t": {"@id": "urn:t", "@context": json.loads(chain(6_000))["@context"]}}}),
        '{"@context":{' + ",".join(f'"a{n}":{{"@id":"urn:x","@type":"a{n + 1}"}}' for n in range(6_000)) + "}}",
        '{"@context":{' + ",".join(f'"a{n}":"a{(n + 1) % 200}:x"' for n in range(200)) + "}}",
        '{"@graph":[' * 5_000 + "]}" * 5_000,
        '{"urn:p":' + '{"@list":[' * 5_000 + "]}" * 5_000 + "}",
        '{"@id":"urn:s","urn:p":' * 5_000 + '"x"' + "}" * 5_000,
    ],
    ids=["chain", "escaped", "twice", "scoped", "types", "circle", "graphs", "lists", "objects"],
)
def test_json_ld_that_needs_deep_recursion_is_refused(document):
    with pytest.raises(InvalidRequest, match=r"chain|levels"):
        read_graph(document, "application/ld+json", "urn:base")


def test_contexts_in_use_are_read():
    terms = {f"t{number}": {"@id": f"p:{number}", "@type": "xsd:date"} for number in range(3_000)}
    context = {**terms, "p": "http://example.org/", "xsd": "http://www.w3.org/2001/XMLSchema#"}
    document = json.dumps({"@context": context, "@id": "urn:s", "t7": "2026-11-28"})
    assert not context_fault(document, "urn:base")
    assert len(read_graph(document, "application/ld+json", "urn:base")) == 1
    assert len(read_graph(chain(50), "application/ld+json", "urn:base")) == 1


@pytest.mark.parametrize("term", ["p:{}", '"{}"^^p:'], ids=["IRI", "datatype"])
def test_terms_that_are_long_without_their_prefix_are_refused(term):
    objects = ", ".join(term.format(number) for number in range(USES))
    with pytest.raises(TooLarge, match="without abbreviations"):
        read_graph(f"@prefix p: <{PREFIX}> . <urn:s> <urn:p> {objects} .", "text/turtle", "urn:base")


@pytest.mark.parametrize(("media", "term"), [("text/turtle", '"{}"'), ("application/n-triples", "<urn:{}>")])
def test_a_term_beyond_the_buffer_of_the_parser_is_refused(media, term):
    document = f"<urn:s> <urn:p> {term.format('x' * (17 << 20))} ."
    with pytest.raises(TooLarge, match="16 MiB"):
        read_graph(document, media, "urn:base")


def test_a_long_base_counts_with_each_relative_iri():
    base = "urn:" + "b" * 1_900
    document = json.dumps({"@id": "", "urn:p": [{"@id": str(number)} for number in range(60_000)]})
    assert context_fault(document, base)
    assert not context_fault(document, "http://example.org/graph")


def test_a_context_of_many_terms_is_read_once(monkeypatch):
    """The work for a term does not depend on the number of the others."""
    copies = []

    class Context(dict):
        def keys(self):
            copies.append(None)
            return super().keys()

    lengths = {}
    assert json_ld_contexts._expand(Context({f"t{n}": f"t{n // 2}:x" for n in range(1_000)}), lengths)
    assert len(lengths) == 1_000
    assert len(copies) <= 1


@pytest.mark.parametrize("end", ["X", ""])
def test_contexts_without_an_end_are_read_a_few_times(end, monkeypatch):
    read = []
    decode = json.JSONDecoder.raw_decode

    def counted(self, document, index=0):
        try:
            return decode(self, document, index)
        except json.JSONDecodeError as error:
            read.append(error.pos - index)
            raise

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", counted)
    document = '{"@context":' * 150 + "{" + '"a":1,' * 10_000 + end
    assert "not JSON" in context_fault(document, "urn:base")
    assert sum(read) <= 4 * len(document)


MANY = range(500)


@pytest.mark.parametrize(
    "document",
    [
        {"@context": {"p": PREFIX}, "@id": "urn:s", "urn:p": [{"@id": f"p:{n}"} for n in MANY]},
        {"@context": {"p": PREFIX}, "@id": "urn:s", **{f"p:{n}": 1 for n in MANY}},
        {"@context": {"@vocab": PREFIX}, "@id": "urn:s", **{f"p{n}": 1 for n in MANY}},
        {"@context": {"p": PREFIX, **{f"t{n}": f"p:{n}" for n in MANY}}, "@id": "urn:s", "t1": "x"},
        {"@context": {"@base": PREFIX}, "@graph": [{"@id": f"#{n}", "urn:p": 1} for n in MANY]},
        {"@id": PREFIX, **{f"urn:p{n}": 1 for n in range(1_500)}},
        {"@context": {f"p{n}": f"p{n + 1}:{'a' * 3_000}" for n in range(80)}, **{f"p0:{n}": 1 for n in MANY}},
        [
            {"@context": {"p": "http://example.org/" + "a" * 100_000, "q": "p:" + "b" * 100_000}},
            {"@context": {"r": "q:" + "c" * 100_000}, "@id": "urn:s", **{f"r:{n}": 1 for n in MANY}},
        ],
    ],
    ids=["values", "names", "vocabulary", "terms", "base", "subject", "chain", "several contexts"],
)
def test_json_ld_that_is_long_without_abbreviations_is_refused(document):
    with pytest.raises(InvalidRequest, match="without abbreviations"):
        read_graph(json.dumps(document), "application/ld+json", "urn:base")


def test_many_objects_with_the_same_context_are_read():
    context = {"ex": "http://example.org/", "name": "ex:name", "age": {"@id": "ex:age", "@type": "ex:years"}}
    objects = [{"@context": context, "@id": f"ex:{n}", "name": "x", "age": n} for n in range(5_000)]
    assert len(read_graph(json.dumps(objects), "application/ld+json", "urn:base")) == 10_000


def test_a_triple_that_is_repeated_counts_once():
    assert len(read_graph("<urn:s> <urn:p> " + "1," * 10_000 + "1 .", "text/turtle", "urn:base")) == 1


@pytest.mark.parametrize("term", ['"a"@en--ltr', "<<( <urn:a> <urn:b> 1 )>>"])
def test_terms_of_rdf_1_2_are_refused_in_the_words_of_the_body(term):
    with pytest.raises(InvalidRequest, match=r"The body has terms of RDF 1\.2"):
        read_graph(f"<urn:s> <urn:p> {term} .", "text/turtle", "urn:base")
