"""Columns: any integers and finite numbers are the same after encoding and decoding."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.recent.columns import (
    EXACT,
    DamagedColumn,
    deflated,
    inflated,
    pack_integers,
    pack_numbers,
    unpack_integers,
    unpack_numbers,
)

INTEGERS = st.integers(-EXACT, EXACT)
DECIMALS = st.decimals(-(10**6), 10**6, places=3).map(float)
NUMBERS = st.one_of(INTEGERS.map(float), DECIMALS, st.floats(allow_nan=False, allow_infinity=False))


@given(st.lists(st.one_of(INTEGERS, st.integers(-300, 300))))
def test_integers_are_the_same_after_a_round_trip(values):
    found, rest = unpack_integers(memoryview(pack_integers(values) + b"rest"))
    assert found == values
    assert bytes(rest) == b"rest"


@given(st.lists(NUMBERS))
def test_numbers_are_the_same_after_a_round_trip(values):
    found, rest = unpack_numbers(memoryview(pack_numbers(values) + b"rest"))
    assert found == values
    assert bytes(rest) == b"rest"


@given(st.lists(st.binary(max_size=3000), max_size=4))
def test_compressed_columns_are_the_same_after_a_round_trip(columns):
    assert bytes(inflated(memoryview(deflated(columns)).tobytes())) == b"".join(columns)


@pytest.mark.parametrize("data", [b"", b"\x00", pack_integers([1, 2, 300])[:-1], b"\x07" + bytes(30)])
def test_a_damaged_column_is_refused(data):
    with pytest.raises(DamagedColumn):
        unpack_integers(memoryview(data))


def test_whole_numbers_stay_integers():
    found, _ = unpack_numbers(memoryview(pack_numbers([1.0, 2.0, -3.0])))
    assert [repr(value) for value in found] == ["1", "2", "-3"]


def test_a_regular_sensor_takes_less_than_a_byte_for_a_sample():
    chance = random.Random(1)
    times = [second * 100 + round(chance.gauss(0, 1)) for second in range(3600)]
    values = [round(20 + math.sin(second / 600) + chance.gauss(0, 0.05), 1) for second in range(3600)]
    assert len(deflated([pack_integers(times), pack_numbers(values)])) < 3600
