"""Every committed update can be restored, whatever terms it creates and however they arrive; others are refused."""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pyoxigraph as ox
import pytest
from generated_terms import EXPRESSIONS, TERMS
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.engine.journal import codec
from edge.engine.journal.codec import VOCABULARY
from edge.engine.journal.journal import Journal, JournalEntry, snapshot_bodies
from edge.engine.requests import QueryRequest, Solutions, UpdateRequest
from edge.engine.scheduling.scheduler import Scheduler
from edge.engine.settings import EngineSettings
from edge.engine.start import open_engine
from edge.engine.store.changes import ChangeSet
from edge.engine.store.terms import LONGEST_TERM
from edge.protocol.due_time import After
from edge.protocol.errors import EdgeError, StorageFailed, UpdateFailed
from edge.protocol.results import Term
from tests.support.examples import examples
from tests.support.settings import unchecked
from tests.support.waiting import PATIENCE, wait_for

WAIT = PATIENCE
CRC = 3604837282
"""Checksum of the preset dictionary."""
NAME = ox.NamedNode("http://example.org/name")
EVERYTHING = "SELECT ?s ?p ?o ?g { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
PREFIX = "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#> "
WHERES = (
    "{{ BIND({0} AS ?x) }}",  # our own operators, or Oxigraph for expressions that they do not support
    "{{ SELECT ?x {{ BIND({0} AS ?x) }} LIMIT 1 }}",  # Oxigraph
    "{{ SELECT ?x {{ {{ SELECT (MAX(?y) AS ?m) {{ ?s <urn:y>* ?y }} }} BIND({0} AS ?x) }} LIMIT 1 }}",
)
TEMPLATES = ("<urn:s> <urn:p> ?x", "?x <urn:p> <urn:o>", "GRAPH ?x {{ <urn:s> <urn:p> <urn:o> }}", "<urn:s> ?x 1")


class Gateway:
    """An engine on a directory. LOAD fetches documents with the given quads."""

    def __init__(self, directory: Path, **options: object) -> None:
        self.quads: Sequence[ox.Quad] = ()
        options = {"durability": "interval", "allow_load": True, "query_timeout": 3 * WAIT, **options}
        self.scheduler: Scheduler = open_engine(directory, unchecked(EngineSettings, **options), load=self._load)  # type: ignore[arg-type]

    def _load(self, document: str) -> Iterable[ox.Quad]:
        return self.quads

    def update(self, text: str, **bindings: Term) -> EdgeError | None:
        """Run an update. If it fails, the error must be clear."""
        error = self.scheduler.update([UpdateRequest(PREFIX + text, bindings=bindings)]).exception(WAIT)
        assert error is None or (isinstance(error, EdgeError) and not isinstance(error, StorageFailed)), error
        return error

    def delayed(self, text: str, **bindings: Term) -> None:
        """Run a delayed update, unless it is refused when it is scheduled."""
        request = UpdateRequest(PREFIX + text, bindings=bindings)
        error = self.scheduler.schedule(request, After(0)).exception(WAIT)
        assert error is None or isinstance(error, EdgeError), error
        wait_for(lambda: not self.scheduler.pending_timers)
        assert not self.scheduler.storage_failing

    def state(self) -> set[object]:
        result = self.scheduler.query(QueryRequest(EVERYTHING)).result(WAIT)
        assert isinstance(result, Solutions)
        return set(result.rows)

    def close(self) -> None:
        assert self.scheduler.close(WAIT)


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_a_restart_restores_committed_data(data):
    with tempfile.TemporaryDirectory() as name:
        with closing(Gateway(Path(name))) as gateway:  # Hypothesis ends some examples in the middle of `draw`
            for _ in range(data.draw(st.integers(1, 8))):
                _change(gateway, data)
            before = gateway.state()
        for _ in range(2):  # the second time from a snapshot
            with closing(Gateway(Path(name), snapshot_min_bytes=1, snapshot_ratio=0.0)) as gateway:
                assert gateway.state() == before
                assert gateway.update("INSERT DATA { <urn:s> <urn:p> 'last' }") is None
                before = gateway.state()


def _change(gateway: Gateway, data: st.DataObject) -> None:
    """Update the graph in one of the ways in which terms arrive."""
    way = data.draw(st.sampled_from(("expression", "binding", "document", "delayed")))
    template = data.draw(st.sampled_from(TEMPLATES)).format()
    if way == "expression":
        where = data.draw(st.sampled_from(WHERES)).format(data.draw(EXPRESSIONS))
        gateway.update(f"INSERT {{ {template} }} WHERE {where}")
    elif way == "binding":
        gateway.update(f"INSERT {{ {template} }} WHERE {{}}", x=data.draw(TERMS))
    elif way == "delayed":
        where = data.draw(st.sampled_from(WHERES)).format(data.draw(EXPRESSIONS))
        gateway.delayed(f"INSERT {{ {template} }} WHERE {where}", y=data.draw(TERMS))
    else:
        node = ox.NamedNode("urn:n")
        gateway.quads = [ox.Quad(node, node, data.draw(TERMS))]
        gateway.update("LOAD <urn:document>")


REFUSED = (
    ("TRIPLE(<urn:a>, <urn:b>, <urn:c>)", "triple term"),
    ("STRLANGDIR('x', 'en', 'ltr')", "base direction"),
    ("BNODE('a:b')", "label"),
    (f"STRDT(REPLACE(STR(?long), 'a', 'aaaa'), <urn:x:{'d' * 100}>)", "longer than 15 MiB"),
)


@pytest.mark.parametrize(("expression", "reason"), REFUSED)
@pytest.mark.parametrize("where", WHERES[:2])
def test_a_term_that_cannot_be_restored_is_refused_with_the_reason(tmp_path, expression, reason, where):
    gateway = Gateway(tmp_path, max_query_memory=24 * 100_000_000, query_timeout=180.0)
    gateway.update("INSERT DATA { <urn:s> <urn:long> '" + "a" * (LONGEST_TERM // 4) + "' }")
    before = gateway.state()
    where = where.format(expression).replace("{ BIND", "{ OPTIONAL { ?s <urn:long> ?long } BIND")
    error = gateway.update(f"INSERT {{ <urn:s> <urn:p> ?x }} WHERE {where}")
    assert isinstance(error, UpdateFailed)
    assert reason in error.description
    assert gateway.state() == before
    gateway.close()


NODE = ox.NamedNode("urn:n")
NOT_STORABLE = (
    ox.Triple(NODE, NODE, NODE),
    ox.Literal("x", language="en", direction=ox.BaseDirection.RTL),
    ox.BlankNode("a:b"),
    ox.Literal("\0" * (LONGEST_TERM // 6)),
    ox.Literal("x", datatype=ox.NamedNode("urn:" + "x" * LONGEST_TERM)),
    ox.NamedNode("urn:" + "x" * LONGEST_TERM),
)


@pytest.mark.parametrize("term", NOT_STORABLE, ids=lambda term: type(term).__name__)
def test_forced_bindings_are_checked_as_well(tmp_path, term):
    gateway = Gateway(tmp_path)
    assert isinstance(gateway.update("INSERT { <urn:s> <urn:p> ?x } WHERE {}", x=term), UpdateFailed)
    assert gateway.update("INSERT { <urn:s> <urn:p> 1 } WHERE {}", x=term) is None  # not stored
    gateway.close()


@pytest.mark.parametrize("silent", ["", "SILENT "])
def test_a_document_is_loaded_whole_or_not_at_all(tmp_path, silent):
    gateway = Gateway(tmp_path)
    gateway.quads = [ox.Quad(NODE, NODE, ox.Literal(n)) for n in range(3)] + [ox.Quad(NODE, NODE, NOT_STORABLE[0])]
    error = gateway.update(f"LOAD {silent}<urn:document>")
    assert (error is None) if silent else "triple term" in str(error)
    assert gateway.state() == set()
    gateway.quads = [ox.Quad(ox.BlankNode("a:b"), NODE, ox.BlankNode("a:b"), ox.BlankNode("c:d"))]
    assert gateway.update("LOAD <urn:document>") is None  # blank nodes get new labels
    before = gateway.state()
    gateway.close()
    gateway = Gateway(tmp_path)
    assert gateway.state() == before
    gateway.close()


@pytest.mark.parametrize("term", NOT_STORABLE, ids=lambda term: type(term).__name__)
def test_a_delayed_update_is_restored_with_its_bindings_or_refused(tmp_path, term):
    gateway = Gateway(tmp_path)
    request = UpdateRequest("INSERT { <urn:s> <urn:p> ?x } WHERE {}", bindings={"x": term})
    with pytest.raises(EdgeError, match=r"\?x"):
        gateway.scheduler.schedule(request, After(1_000_000_000)).result(WAIT)
    assert gateway.scheduler.pending_timers == 0
    gateway.close()
    gateway = Gateway(tmp_path)
    gateway.close()


def test_the_journal_writes_nothing_that_it_cannot_read(tmp_path):
    """If a quad passes all checks and cannot be stored, the commit fails, and later ones work."""
    journal = Journal.open(tmp_path)
    good = JournalEntry(1, ChangeSet(((NODE, NODE, NODE, None),)))
    journal.commit([good])
    for term in (NOT_STORABLE[0], NOT_STORABLE[2], ox.Literal("a" * (16 << 20))):
        with pytest.raises(StorageFailed, match="after a restart"):
            journal.commit([JournalEntry(2, ChangeSet(((NODE, NODE, term, None),)))])
        assert not journal.snapshot(snapshot_bodies([ox.Quad(NODE, NODE, ox.Literal("a" * (16 << 20)))], []))
    journal.commit([good])
    journal.close()
    journal = Journal.open(tmp_path)
    assert [changes.sizes for changes in journal.restore()] == [(1, 0, 0, 0)] * 2
    journal.close()


@pytest.mark.parametrize("name", ["\ud800", "sepa://update/\udfff"])
def test_an_id_that_cannot_be_stored_fails_no_commit_of_others(tmp_path, name):
    gateway = Gateway(tmp_path)
    update = UpdateRequest("INSERT DATA { <urn:s> <urn:p> 1 }")
    futures = [
        gateway.scheduler.schedule(update, After(1_000_000_000), "good"),
        gateway.scheduler.schedule(update, After(1_000_000_000), name),
        gateway.scheduler.update([update]),
    ]
    with pytest.raises(UpdateFailed, match="surrogate"):
        futures[1].result(WAIT)
    for future in (futures[0], futures[2]):
        future.result(WAIT)
    gateway.close()


@settings(max_examples=examples(300), deadline=None)
@given(st.from_regex(codec._PLAIN_LINES, fullmatch=True))
def test_the_parser_reads_the_lines_that_are_not_parsed_before_the_commit(text):
    assert len(list(codec._parse(text.encode()))) == text.count("\n")


def test_a_small_commit_is_read_with_the_preset_dictionary():
    quads = tuple((NAME, NAME, ox.Literal(number), None) for number in range(9))
    entry = JournalEntry(1, ChangeSet(added=quads))
    body = codec.encode([entry])
    assert body.startswith(b"d")
    assert next(codec.decode(body)).changes == entry.changes
    for damaged in (body[:-1], body + b"x", b"z" + body[1:], body[:9] + b"?" + body[10:]):
        with pytest.raises(ValueError, match="decompressed"):
            list(codec.decode(damaged))


def test_the_preset_dictionary_never_changes():
    assert zlib.crc32(VOCABULARY) == CRC, "stored bodies could not be read any more: use a new flag"


def test_a_commit_without_the_preset_dictionary_is_read():
    entry = JournalEntry(1, ChangeSet(added=((NAME, NAME, NAME, None),)))
    head = struct.pack("<IqIIIII", 1, 1, 1, 0, 0, 0, 0)
    body = b"z" + zlib.compress(head + "".join(entry.changes.lines()).encode())
    assert next(codec.decode(body)).changes == entry.changes
