"""Sampling: the readings that are stored according to their mapping."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from edge.mapping import Mapper, load_pack
from edge.mapping.reading import XSD_DECIMAL, Reading
from edge.mapping.store import StoreRules
from edge.outbox.sampling import Sampler

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SERIES = "http://example.org/o"


def stored(store: str, *messages: tuple[float, str]) -> list[str]:
    """Return the stored values of messages, given as seconds after noon and payload."""
    mapping = f'[[mapping]]\ntopic = "t"\nobservation = "{SERIES}"\ndatatype = "auto"\nstore = {store}'
    mapper, chooser = Mapper([load_pack(mapping)]), Sampler()
    found = []
    for seconds, payload in messages:
        when = NOON + timedelta(seconds=seconds)
        (reading,) = mapper.map("t", payload.encode(), when).readings
        if (note := chooser.note(reading, when)) is not None:
            assert note.cells.time == when.timestamp() * 1_000_000
            assert note.context.series == SERIES
            found.append(note.cells.value)
    return found


def every_second(*payloads: str) -> list[tuple[float, str]]:
    return list(enumerate(payloads))


def test_none_is_the_default_and_overrides_defaults():
    assert stored('"none"', (0, "1")) == []
    own = '[defaults]\nstore = "all"\n[[mapping]]\ntopic = "t"\nobservation = "urn:o:1"\n'
    assert Mapper([load_pack(own)]).map("t", b"1").readings[0].store == StoreRules()
    assert Mapper([load_pack(own + 'store = "none"')]).map("t", b"1").readings[0].store is None


def test_all_stores_every_reading():
    assert stored('"all"', *every_second("1", "1", "2")) == ["1", "1", "2"]


def test_change_stores_changed_values_only():
    assert stored('"change"', *every_second("1", "1", "2", "2", "1", "on", "on")) == ["1", "2", "1", "on"]


def test_a_dead_band_counts_from_the_last_that_was_stored():
    values = every_second("20.0", "20.3", "20.4", "20.5", "20.6", "20.1", "20.0")
    assert stored("{ dead_band = 0.5 }", *values) == ["20.0", "20.5", "20.0"]


def test_values_that_are_not_numbers_have_no_dead_band():
    assert stored("{ dead_band = 0.5 }", *every_second("1", "off", "off", "1.2", "1.3")) == ["1", "off", "1.2"]
    # Its difference to any other number cannot be computed.
    assert stored("{ dead_band = 0.5 }", *every_second("1", "1e9999999", "1.2")) == ["1", "1e9999999", "1.2"]


def test_at_most_every_by_the_readings_own_times():
    values = [(0, "1"), (59.9, "2"), (60, "3"), (90, "4"), (1000, "5"), (970, "6")]
    assert stored("{ at_most_every = 60 }", *values) == ["1", "3", "5"]
    assert stored("{ change = true, at_most_every = 60 }", (0, "1"), (10, "2"), (70, "1"), (80, "2")) == ["1", "2"]


def test_undone_storage_does_not_count_for_sampling():
    chooser, store = Sampler(), StoreRules(change=True)

    def note(value: str, seconds: int) -> object:
        return chooser.note(Reading(SERIES, value, XSD_DECIMAL, store=store), NOON + timedelta(seconds=seconds))

    assert note("1", 0)
    second = note("2", 1)
    chooser.give_up(second)
    assert note("1", 2) is None
    third, fourth = note("3", 3), note("4", 4)
    chooser.give_up(third)  # another reading is in progress: the last stored value is unknown until the next
    assert fourth
    assert note("1", 5)


def test_the_memory_of_sampling_is_bounded():
    chooser, store = Sampler(most=2), StoreRules(change=True)
    for series in ("a", "b", "c"):
        assert chooser.note(Reading(series, "1", XSD_DECIMAL, store=store), NOON)
    assert chooser.note(Reading("c", "1", XSD_DECIMAL, store=store), NOON) is None
    assert chooser.note(Reading("a", "1", XSD_DECIMAL, store=store), NOON)


@given(
    values=st.lists(st.decimals(-100, 100, places=2), min_size=1, max_size=30),
    band=st.decimals(Decimal("0.01"), 50, places=2),
)
def test_no_value_is_further_than_the_dead_band_from_the_last_stored(values, band):
    chooser, store = Sampler(), StoreRules(change=True, dead_band=band)
    last = None
    for second, value in enumerate(values):
        reading = Reading(SERIES, str(value), XSD_DECIMAL, store=store)
        if chooser.note(reading, NOON + timedelta(seconds=second)) is not None:
            assert last is None or abs(value - last) >= band
            last = value
        assert abs(value - last) < band
