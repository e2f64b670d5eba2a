"""Bags: the algebra of results and changes, which merging, comparing and undoing rely on."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.bag import Bag, split

ROWS = st.integers(0, 4)
rows = st.lists(ROWS, max_size=8)
changes = st.builds(Bag.of, rows, rows)


def merged(*parts):
    total = Bag()
    for part in parts:
        total.merge(part)
    return total


@given(added=rows, removed=rows)
def test_a_bag_counts_added_and_removed_items(added, removed):
    bag = Bag.of(added, removed)
    assert 0 not in bag.values()
    assert Counter(bag.added) == Counter(added) - Counter(removed)
    assert Counter(bag.removed) == Counter(removed) - Counter(added)
    assert Bag.of(bag.added, bag.removed) == bag
    assert split(bag.items()) == (bag.added, bag.removed)


@given(one=changes, other=changes, third=changes)
def test_changes_merge_in_any_order_and_grouping(one, other, third):
    assert merged(one, other) == merged(other, one)
    assert merged(merged(one, other), third) == merged(one, merged(other, third))
    assert merged(one, Bag()) == one
    assert 0 not in merged(one, other).values()


@given(change=changes)
def test_a_change_and_its_inverse_cancel_out(change):
    assert merged(change, change.inverse) == Bag()
    assert change.inverse.inverse == change


@given(before=changes, after=changes)
def test_the_difference_leads_from_one_bag_to_the_other(before, after):
    change = after.since(before)
    assert merged(before, change) == after
    assert change == merged(before.inverse, after)
    assert 0 not in change.values()


@given(bag=changes, row=ROWS, count=st.integers(-3, 3))
def test_adding_a_row_returns_its_new_count(bag, row, count):
    expected = bag.get(row, 0) + count
    assert bag.add(row, count) == expected == bag.get(row, 0)
    assert 0 not in bag.values()


@given(parts=st.lists(changes, max_size=4))
def test_a_merged_change_is_no_larger_than_the_results_around_it(parts):
    before = Bag.of([row for row in range(5) for _ in range(40)])
    after = merged(before, *parts)
    assert len(merged(*parts)) <= len(before.keys() | after.keys())


def test_merging_leaves_the_merged_change_alone():
    change = Bag.of([1])
    total = merged(change)
    total.add(1)
    assert change == Bag.of([1])


def test_the_keys_of_a_mapping_are_rows():
    assert Bag.of({1: None, 2: 5}) == {1: 1, 2: 1}
