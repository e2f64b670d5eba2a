"""Quads that are encoded in pieces give the same body as in one piece."""

from __future__ import annotations

import pyoxigraph as ox
import pytest

from edge.engine.journal import codec
from edge.engine.journal.codec import EncodedQuads, JournalEntry, NotRestorable
from edge.engine.store.changes import ChangeSet, Statement

P = ox.NamedNode("urn:p")
GRAPH = ox.NamedNode("urn:g")


def statements(first: int, last: int, graph: ox.NamedNode | None = None) -> list[Statement]:
    return [(ox.NamedNode(f"urn:s{n}"), P, ox.Literal(f"é {n % 7} " * 20), graph) for n in range(first, last)]


@pytest.mark.parametrize("piece", [1, 7, 5_000])
@pytest.mark.parametrize(("added", "removed"), [(1, 0), (0, 1), (3_000, 2_000), (20_000, 0)])
def test_journal_entry_is_decoded_unchanged(piece, added, removed):
    changes = ChangeSet(statements(0, added), statements(added, added + removed, GRAPH), [GRAPH], [P])
    quads = EncodedQuads()
    for first in range(0, max(added, removed), piece):
        quads.add(changes._added[first : first + piece], changes._removed[first : first + piece])
    entry = JournalEntry(17, changes, b"receipt")
    body = quads.body(entry)
    assert codec._content(body) == codec._content(codec.encode([entry]))
    (found,) = codec.decode(body)
    assert (found.at, found.changes, found.receipt) == (17, changes, b"receipt")
    assert codec.receipts(body) == [b"receipt"]


def test_quads_that_cannot_be_read_again_are_refused():
    with pytest.raises(NotRestorable):
        EncodedQuads().add([(ox.BlankNode("a:b"), P, P, None)], ())
