"""The index of the live graph, compared with a plain set of triples."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from types import FrameType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge.engine.store import index_merge, triple_index
from edge.engine.store.triple_index import TripleIndex, TripleMerge

IDS = st.integers(1, 4)
TRIPLES = st.tuples(IDS, IDS, IDS)


def _replaced(index: TripleIndex, triples: set[tuple[int, int, int]], triple: tuple[int, int, int], new: int) -> bool:
    """Replace the object of a triple in both forms. Returns whether the index did."""
    s, p, old = triple
    only = {o for *rest, o in triples if rest == [s, p]} == {old}
    assert index.replace(s, p, old, new) == only
    if only:
        triples.discard(triple)
        triples.add((s, p, new))
    return only


@given(st.lists(st.tuples(st.sampled_from(("add", "remove", "replace")), TRIPLES, IDS), max_size=60))
def test_an_index_is_a_set_of_triples(changes):
    index = TripleIndex()
    triples: set[tuple[int, int, int]] = set()
    for change, triple, new in changes:
        if change == "replace":
            _replaced(index, triples, triple, new)
            continue
        adding = change == "add"
        assert (index.add if adding else index.remove)(*triple) == (adding != (triple in triples))
        (triples.add if adding else triples.discard)(triple)
    assert _state(index) == _state(_index(triples))
    _check(index, triples)


def _check(index: TripleIndex, triples: set[tuple[int, int, int]]) -> None:
    """Check all that an index tells about triples of these ids."""
    assert index.size == len(triples)
    ids = sorted({*range(1, 5), *(each for triple in triples for each in triple)})
    for pattern in product((None, *ids), repeat=3):
        expected = {t for t in triples if all(given in (None, term) for given, term in zip(pattern, t, strict=True))}
        found = list(index.match(*pattern))
        assert set(found) == expected
        assert len(found) == len(expected)
        assert bool(index.estimate(*pattern)) >= bool(expected)
        assert len(expected) <= index.most(*pattern)
        if None not in pattern:
            assert index.contains(*pattern) == bool(expected)
    subjects, predicates, objects = ({triple[place] for triple in triples} for place in range(3))
    assert sorted(index.all_subjects()) == sorted(subjects)
    assert tuple(map(sorted, index.terms())) == tuple(map(sorted, (subjects, predicates, objects)))
    for one in ids:
        assert sorted(index.predicates_of(one)) == sorted({p for s, p, _ in triples if s == one})
    for one, other in product(ids, repeat=2):
        for leaf, place in ((index.objects(one, other), 2), (index.subjects(one, other), 0)):
            at = (0, 1) if place == 2 else (1, 2)
            expected_leaf = {t[place] for t in triples if (t[at[0]], t[at[1]]) == (one, other)}
            assert ({leaf} if isinstance(leaf, int) else leaf or set()) == expected_leaf


_TRIPLE = st.tuples(st.integers(0, 4), st.integers(5, 7), st.integers(8, 11))
_TRIPLES = st.sets(_TRIPLE, max_size=40)


def _index(triples) -> TripleIndex:
    index = TripleIndex()
    for triple in sorted(triples):
        index.add(*triple)
    return index


def _state(index: TripleIndex) -> tuple[object, ...]:
    index.settle_at_once()
    further = {p: count for p, count in index._further.items() if count}
    return index.spo, index.pos, index._predicates, further, index.size


_MOVES = ("piece", "there", "new", "undone", "replaced", "all back")
_STORY = st.lists(st.tuples(st.sampled_from(_MOVES), TRIPLES | _TRIPLE), max_size=60)


@pytest.mark.parametrize(("small", "most"), [(64, 4), (2, 4), (2, 0), (0, 4)])
@given(_TRIPLES, _TRIPLES, _STORY)
@example({(1, 1, 1), (1, 1, 2)}, {(1, 2, 1)}, [*[("piece", (1, 1, 1))] * 4, ("undone", (1, 1, 1))])
@example({(0, 5, 8), (0, 6, 9)}, {(0, 5, 9), (0, 6, 8), (0, 7, 8)}, [("piece", (1, 1, 1))])
def test_a_merge_is_prepared_while_both_indexes_change(small, most, there, others, story):
    """The result is exact for all changes during the preparation; parts with more than `small` entries are not copied.

    A change that is rolled back at once is not reported to the merge.
    """
    there, new = set(there), set(others - there)
    into, other = _index(there), _index(new)
    merge = TripleMerge(into, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_merge, "_SMALL", small)
        patch.setattr(index_merge, "_MOST", most)
        patch.setattr(index_merge, "_PIECE", 1)
        pieces = merge.prepare()
        for move, triple in story:
            if move == "piece":
                next(pieces, None)
            elif move == "all back":
                for _ in pieces:
                    pass
                for _ in merge.take_all_back():
                    pass
            elif move == "undone":
                for change in (into.remove, into.add) if triple in there else (into.add, into.remove):
                    change(*triple)
            elif move == "there" and triple not in new:
                (into.remove if triple in there else into.add)(*triple)
                there ^= {triple}
                merge.take_back(*triple)
            elif move == "replaced":
                s, p, o = triple
                other_one = (s, p, o % 4 + 1)
                if other_one not in new and _replaced(into, there, triple, other_one[2]):
                    merge.take_back(*triple)
                    merge.take_back(*other_one)
            elif move == "new" and triple not in there:
                merge.take_back(*triple)
                (other.remove if triple in new else other.add)(*triple)
                new ^= {triple}
        merge.apply()
    assert _state(into) == _state(_index(there | new))
    for _ in merge.release():
        pass
    assert _state(into) == _state(_index(there | new))


def test_a_part_that_changes_before_it_is_joined_is_merged(monkeypatch):
    """Most of a branch is replaced, and one of its leaves changed between the beginning and its own turn."""
    monkeypatch.setattr(index_merge, "_PIECE", 1)
    there = {(number, 1, 1000 + number) for number in range(100)}
    into, other = _index(there), _index({(500 + number, 1, 1000 + number) for number in range(100)})
    merge = TripleMerge(into, other)
    pieces = merge.prepare()
    for _ in range(150):  # all subjects, and some objects
        next(pieces)
    into.add(999, 1, 1095)
    merge.take_back(999, 1, 1095)
    for _ in pieces:
        pass
    merge.apply()
    assert set(into.match(None, 1, 1095)) == {(95, 1, 1095), (595, 1, 1095), (999, 1, 1095)}


def _lines(action: Callable[[], object]) -> int:
    """Return the number of executed lines of Python: a measure of work that does not depend on the machine."""
    lines = 0

    def trace(_: FrameType, event: str, __: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines


def test_no_piece_of_a_merge_is_longer_if_the_other_index_is_larger():
    """Most triples of a predicate come with the merge: the work of a piece does not grow with them."""
    into, other = _index({(1, 1, 1), (2, 1, 2)}), _index({(number, 1, number) for number in range(10, 5_010)})
    merge = TripleMerge(into, other)
    pieces, moves = merge.prepare(), into.settle()
    most = max(iter(lambda: _lines(lambda: next(pieces, None)), 1))
    assert most < 10 * index_merge._PIECE
    assert _lines(merge.apply) < 10 * index_merge._PIECE
    assert max(iter(lambda: _lines(lambda: next(moves, None)), 1)) < 10 * triple_index._MOVED
    assert into.size == 5_002
    assert set(into.match(None, 1, 4_000)) == {(4_000, 1, 4_000)}


_CHANGES = ("add", "remove", "replace", "piece")


@given(
    st.sets(TRIPLES, max_size=30),
    st.sets(TRIPLES, max_size=30),
    st.lists(st.tuples(st.sampled_from(_CHANGES), TRIPLES)),
)
def test_an_index_is_exact_while_the_parts_of_a_merge_are_moved(there, others, changes):
    triples = there | others
    index = _index(there)
    merge = TripleMerge(index, _index(others - there))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_merge, "_PIECE", 0)
        patch.setattr(triple_index, "_MOVED", 1)
        merge.apply()
        assert index.pending is not None or others <= there
        pieces = index.settle()
        for change, triple in changes:
            if change == "piece":
                next(pieces, None)
            elif change == "replace":
                _replaced(index, triples, triple, triple[2] % 4 + 1)
            else:
                adding = change == "add"
                assert (index.add if adding else index.remove)(*triple) == (adding != (triple in triples))
                (triples.add if adding else triples.discard)(triple)
        _check(index, triples)
    assert _state(index) == _state(_index(triples))


@given(_TRIPLES, _TRIPLES)
def test_indexes_are_joined_and_parted_as_if_triple_by_triple(there, others):
    new = others - there
    index = _index(there)
    index.absorb(_index(new))
    assert _state(index) == _state(_index(there | others))
    index.subtract(_index(others))
    assert _state(index) == _state(_index(there - others))
    for triple in sorted(others):
        index.add(*triple)
    assert _state(index) == _state(_index(there | others))
