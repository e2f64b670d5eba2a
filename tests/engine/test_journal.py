"""The journal returns its content exactly: after closing, through snapshots, for all kinds of quads."""

import logging
import sqlite3
import tempfile
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.logs import records_of

from edge.engine.journal import codec
from edge.engine.journal.journal import Journal, JournalEntry, snapshot_bodies
from edge.engine.store.changes import ChangeSet
from edge.protocol.errors import StorageFailed
from tests.support.examples import examples

VALUE = ox.NamedNode("http://qudt.org/schema/qudt#numericValue")


def reading(number: int, sensor: int = 0, text: str = "") -> ox.Quad:
    name = ox.NamedNode(f"http://wot.arces.unibo.it/monitor#observation/greenhouse/sensor{sensor}/result")
    return ox.Quad(name, VALUE, ox.Literal(f"{number}{text}"))


def overwrite(number: int, sensor: int = 0) -> JournalEntry:
    old = () if number == 1 else (reading(number - 1, sensor),)
    return JournalEntry(number, ChangeSet((reading(number, sensor),), old), b"receipt %d" % number)


def restored(journal: Journal) -> tuple[set[ox.Quad], set[object]]:
    """Return the graph that the journal leads to. Every change set must be exact."""
    quads: set[ox.Quad] = set()
    graphs: set[object] = set()
    for changes in journal.restore():
        assert quads.issuperset(changes.removed)
        assert quads.isdisjoint(changes.added)
        assert graphs.issuperset(changes.dropped)
        assert graphs.isdisjoint(changes.created)
        quads = quads.difference(changes.removed).union(changes.added)
        graphs = graphs.difference(changes.dropped).union(changes.created)
    return quads, graphs


def size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


def limit_pages(journal: Journal, pages: int) -> None:
    """Let SQLite report "database or disk is full" from this number of pages on."""
    journal.commit((), lambda connection: connection.execute(f"PRAGMA max_page_count = {pages}").fetchone())


def test_entries_come_back_in_order(tmp_path):
    with_graphs = ChangeSet(created=(ox.NamedNode("urn:a"), ox.BlankNode("b")))
    without = ChangeSet(dropped=(ox.BlankNode("b"),))
    entries = [
        overwrite(1),
        overwrite(2),
        JournalEntry(3, with_graphs),
        JournalEntry(4, without),
        JournalEntry(5, ChangeSet()),
    ]
    journal = Journal.open(tmp_path / "new" / "data")
    assert journal.sequence == 0
    assert list(journal.restore()) == []
    assert journal.commit(entries[:2]) == 2
    assert journal.commit(entries[2:]) == 5
    journal.close()
    journal.close()
    journal = Journal.open(tmp_path / "new" / "data")
    assert journal.sequence == 5
    assert list(journal.restore()) == [entry.changes for entry in entries]
    assert journal.receipts() == b"receipt 1receipt 2"
    assert journal.commit([overwrite(6)]) == 6
    journal.close()


def test_closing_leaves_one_file_and_the_lock(tmp_path):
    journal = Journal.open(tmp_path)
    journal.commit([overwrite(1)])
    journal.close()
    assert {file.name for file in tmp_path.iterdir()} == {"edge.sqlite3", "lock"}


def test_the_memory_journal_stores_nothing_with_the_same_interface(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    journal = Journal.open(None, snapshot_min_bytes=1)
    assert journal.commit([overwrite(1), overwrite(2)]) == 2
    journal.commit((), lambda connection: connection.execute("INSERT INTO meta VALUES ('timer', '1')"))
    assert journal.receipts() == b"receipt 1receipt 2"
    assert journal.flush_interval is None
    assert not journal.snapshot_due
    assert journal.snapshot(snapshot_bodies([reading(2)], []))
    assert list(journal.restore()) == []
    journal.flush()
    journal.close()
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_replaces_earlier_entries(tmp_path):
    graphs = [ox.NamedNode("urn:empty"), ox.BlankNode("g")]
    journal = Journal.open(tmp_path)
    journal.commit([overwrite(1), overwrite(2)])
    assert journal.journal_bytes > 0
    assert journal.snapshot(snapshot_bodies([reading(2)], graphs))
    assert journal.journal_bytes == 0
    assert journal.snapshot_bytes > 0
    journal.commit([overwrite(3)])
    journal.close()
    journal = Journal.open(tmp_path)
    assert journal.sequence == 3
    assert restored(journal) == ({reading(3)}, set(graphs))
    journal.close()


def test_snapshot_of_many_quads_comes_in_chunks(tmp_path):
    quads = [reading(number, number % 7) for number in range(25_000)]
    journal = Journal.open(tmp_path)
    journal.snapshot(snapshot_bodies(iter(quads), []))
    chunks = list(journal.restore())
    assert len(chunks) == 4
    assert [quad for chunk in chunks for quad in chunk.added] == quads
    journal.snapshot(snapshot_bodies([], []))
    journal.close()
    journal = Journal.open(tmp_path)
    assert restored(journal) == (set(), set())
    journal.close()


@pytest.mark.parametrize("place", ["subject", "object", "datatype", "graph"])
def test_a_chunk_of_a_snapshot_is_bounded_by_characters_as_well(place):
    long, name = "x" * 1_000_000, ox.NamedNode("urn:x")
    made = {
        "subject": lambda number: ox.Quad(ox.NamedNode(f"urn:{long}{number}"), name, name),
        "object": lambda number: ox.Quad(name, name, ox.Literal(f"{long}{number}")),
        "datatype": lambda number: ox.Quad(name, name, ox.Literal("1", datatype=ox.NamedNode(f"urn:{long}{number}"))),
        "graph": lambda number: ox.Quad(name, name, name, ox.NamedNode(f"urn:{long}{number}")),
    }[place]
    quads = [made(number) for number in range(20)]
    _, *bodies = snapshot_bodies(quads, [])
    decoded = [quad for body in bodies for entry in codec.decode(body) for quad in entry.changes.added]
    assert decoded == quads
    assert len(bodies) == 5


def test_an_error_while_reading_quads_leaves_the_snapshot_unchanged(tmp_path):
    def broken():
        yield reading(7)
        raise KeyError("gone")

    journal = Journal.open(tmp_path)
    journal.commit([overwrite(1)])
    with pytest.raises(KeyError):
        journal.snapshot(snapshot_bodies(broken(), []))
    assert restored(journal) == ({reading(1)}, set())
    assert journal.commit([overwrite(2)]) == 2
    journal.close()


def test_the_log_keeps_its_size_over_several_rounds(tmp_path):
    """A file system writes three times as much when a commit extends the file."""
    journal = Journal.open(tmp_path, durability="interval", snapshot_min_bytes=1024**3)
    log = tmp_path / "edge.sqlite3-wal"
    sizes = []
    for number in range(1, 12_001):
        journal.commit([overwrite(number)])
        sizes.append(log.stat().st_size)
    journal.close()
    assert 3 * 1024**2 < sizes[-1] <= 4 * 1024**2
    assert set(sizes[-8_000:]) == {sizes[-1]}


def test_files_stay_bounded_over_many_overwriting_updates(tmp_path):
    journal = Journal.open(tmp_path, durability="interval", snapshot_min_bytes=256 * 1024)
    sizes = []
    snapshots = 0
    for number in range(1, 20_001):
        journal.commit([overwrite(number)])
        if journal.snapshot_due:
            assert journal.snapshot(snapshot_bodies([reading(number)], []))
            snapshots += 1
        if number % 100 == 0:
            sizes.append(size(tmp_path))
    assert snapshots > 5
    assert max(sizes) < 4.5 * 1024 * 1024  # the write-ahead log's 4 MiB, and half a MiB
    journal.close()
    assert size(tmp_path) < 512 * 1024
    journal = Journal.open(tmp_path)
    assert restored(journal) == ({reading(20_000)}, set())
    journal.close()


def test_file_shrinks_when_the_graph_does(tmp_path):
    journal = Journal.open(tmp_path, snapshot_min_bytes=64 * 1024)
    journal.snapshot(snapshot_bodies((reading(number * 7919, number) for number in range(100_000)), []))
    file = tmp_path / "edge.sqlite3"
    assert file.stat().st_size > 512 * 1024
    journal.snapshot(snapshot_bodies([reading(1)], []))
    assert file.stat().st_size < 256 * 1024
    journal.close()
    assert size(tmp_path) < 256 * 1024


def test_a_snapshot_is_due_by_size_and_by_ratio(tmp_path):
    journal = Journal.open(tmp_path, snapshot_min_bytes=2_000, snapshot_ratio=2.0)
    while journal.journal_bytes <= 2_000:
        assert not journal.snapshot_due
        journal.commit([overwrite(journal.sequence + 1)])
    assert journal.snapshot_due
    journal.snapshot(snapshot_bodies((reading(number * 7919, number) for number in range(1_000)), []))
    assert journal.snapshot_bytes > 2_000
    while journal.journal_bytes <= 2 * journal.snapshot_bytes:
        assert not journal.snapshot_due
        journal.commit([overwrite(journal.sequence + 1)])
    assert journal.snapshot_due
    journal.close()


def test_a_failed_snapshot_loses_nothing_and_is_retried(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    journal = Journal.open(tmp_path, snapshot_min_bytes=8_000)
    while not journal.snapshot_due:
        journal.commit([overwrite(journal.sequence + 1)])
    last = reading(journal.sequence)
    large = [reading(number * 7919, number) for number in range(20_000)]
    limit_pages(journal, 40)
    for _ in range(2):
        assert not journal.snapshot(snapshot_bodies(large, []))
        assert not journal.snapshot_due
        assert restored(journal) == ({last}, set())
        before = journal.journal_bytes
        while not journal.snapshot_due:
            journal.commit([overwrite(journal.sequence + 1)])
        last = reading(journal.sequence)
        assert journal.journal_bytes - before > 1_900
    assert [record.message for record in records_of("edge", caplog)] == ["journal.snapshot_failed"]
    assert records_of("edge", caplog)[0].reason == "database or disk is full"
    limit_pages(journal, 100_000)
    assert journal.snapshot(snapshot_bodies([last], []))
    assert [record.message for record in records_of("edge", caplog)[1:]] == ["journal.snapshot_recovered"]
    sequence = journal.sequence
    journal.close()
    journal = Journal.open(tmp_path)
    assert journal.sequence == sequence
    assert restored(journal) == ({last}, set())
    journal.close()


def test_receipts_survive_snapshots_and_only_the_last_are_kept(tmp_path):
    wanted = b"".join(b"receipt %d" % number for number in range(6, 11))
    journal = Journal.open(tmp_path, receipt_bytes=46)
    journal.commit([overwrite(number) for number in range(1, 8)])
    journal.snapshot(snapshot_bodies([reading(7)], []))
    journal.commit([overwrite(number) for number in range(8, 11)])
    journal.commit([JournalEntry(11, ChangeSet())])
    assert journal.receipts() == wanted
    journal.close()
    for _ in range(2):
        journal = Journal.open(tmp_path, receipt_bytes=46)
        assert journal.receipts() == wanted
        journal.snapshot(snapshot_bodies([reading(10)], []))
        journal.close()


def test_other_tables_share_the_transaction(tmp_path):
    def tables(connection):
        connection.execute("INSERT INTO meta VALUES ('timer', 'due')")

    def broken(connection):
        connection.execute("DELETE FROM meta WHERE name = 'timer'")
        raise RuntimeError("no")

    def read(connection):
        found.extend(connection.execute("SELECT value FROM meta WHERE name = 'timer'"))

    found: list[tuple[str]] = []
    journal = Journal.open(tmp_path)
    journal.commit([overwrite(1)], tables)
    with pytest.raises(RuntimeError):
        journal.commit([overwrite(2)], broken)
    with pytest.raises(StorageFailed):
        journal.commit([overwrite(2)], tables)  # the name is taken, which is an error of SQLite
    assert journal.sequence == 1
    journal.close()
    journal = Journal.open(tmp_path)
    journal.commit((), read)
    assert found == [("due",)]
    assert restored(journal) == ({reading(1)}, set())
    assert journal.commit([overwrite(2)]) == 2
    journal.close()


def test_durability_is_sqlite_syncing_every_commit_or_flush_doing_it(tmp_path):
    def read(connection):
        found.append(connection.execute("PRAGMA synchronous").fetchone()[0])

    found: list[int] = []
    for durability in ("commit", "interval", "commit"):
        journal = Journal.open(tmp_path, durability=durability, flush_interval=0.5)
        journal.commit([overwrite(journal.sequence + 1)], read)
        assert journal.flush_interval == (None if durability == "commit" else 0.5)
        journal.flush()
        journal.flush()
        journal.close()
    assert found == [2, 1, 2]  # FULL, NORMAL, FULL


def test_a_failed_flush_is_reported_and_can_be_repeated(tmp_path):
    journal = Journal.open(tmp_path, durability="interval")
    journal.commit([overwrite(1)])
    wal = tmp_path / "edge.sqlite3-wal"
    wal.rename(tmp_path / "away")
    with pytest.raises(StorageFailed, match="not yet safe"):
        journal.flush()
    (tmp_path / "away").rename(wal)
    journal.flush()
    wal.rename(tmp_path / "away")
    journal.flush()  # no work is left
    (tmp_path / "away").rename(wal)
    journal.close()


def test_a_locked_file_fails_the_commit_and_the_next_one_works(tmp_path):
    journal = Journal.open(tmp_path)
    other = sqlite3.connect(tmp_path / "edge.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageFailed, match="locked"):
        journal.commit([overwrite(1)])
    other.execute("ROLLBACK")
    other.close()
    assert journal.commit([overwrite(1)]) == 1
    journal.close()


iris = st.text(st.characters(categories=("L", "N")), max_size=20).map(
    lambda t: ox.NamedNode(f"http://example.org/é/{t}")
)
blanks = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_-]{0,12}[A-Za-z0-9])?", fullmatch=True).map(ox.BlankNode)
literals = st.one_of(
    st.builds(ox.Literal, st.text()),
    st.builds(ox.Literal, st.text(), language=st.sampled_from(["en", "en-GB", "zh-hant-tw"])),
    st.builds(
        ox.Literal,
        st.text(),
        language=st.just("ar"),
        direction=st.sampled_from([ox.BaseDirection.RTL, ox.BaseDirection.LTR]),
    ),
    st.builds(ox.Literal, st.text(), datatype=iris),
    st.builds(
        ox.Literal,
        st.sampled_from(["01", "1.50", "NaN", "", " 1 ", "1e400"]),
        datatype=st.sampled_from(["integer", "decimal", "double"]).map(
            lambda name: ox.NamedNode(f"http://www.w3.org/2001/XMLSchema#{name}")
        ),
    ),
    st.sampled_from(["\x00", "\r\n", '"\\"', "\\u0041", "\x7f\x85\u2028\ufeff", "\U0001f600"]).map(ox.Literal),
)
objects = st.recursive(
    iris | blanks | literals, lambda inner: st.builds(ox.Triple, iris | blanks, iris, inner), max_leaves=3
)
names = iris | blanks
quads = st.builds(ox.Quad, iris | blanks, iris, objects, names | st.just(ox.DefaultGraph()))
change_sets = st.builds(
    ChangeSet,
    *(st.lists(quads, max_size=4, unique=True).map(tuple),) * 2,
    *(st.lists(names, max_size=3, unique=True).map(tuple),) * 2,
)
entries = st.builds(JournalEntry, st.integers(-(2**63), 2**63 - 1), change_sets, st.binary(max_size=40))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.lists(entries, min_size=1, max_size=4), max_size=4), st.lists(quads, max_size=8), st.lists(names))
def test_any_quads_come_back_as_they_were(commits, snapshot, graphs):
    given_entries = [entry for commit in commits for entry in commit]
    receipts = b"".join(entry.receipt for entry in given_entries)
    with tempfile.TemporaryDirectory() as name:
        journal = Journal.open(Path(name), durability="interval")
        for commit in commits:
            journal.commit(commit)
        journal.close()
        journal = Journal.open(Path(name), durability="interval")
        assert list(journal.restore()) == [entry.changes for entry in given_entries]
        assert journal.receipts() == receipts
        journal.snapshot(snapshot_bodies(snapshot, graphs))
        journal.close()
        journal = Journal.open(Path(name), durability="interval")
        found = list(journal.restore())
        assert [quad for changes in found for quad in changes.added] == snapshot
        assert [graph for changes in found for graph in changes.created] == graphs
        assert journal.receipts() == receipts
        journal.close()
