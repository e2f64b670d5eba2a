"""Short names, and the parsing of option values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_offload.analyses.names import short_names
from spark_offload.cli.kinds import Length, Timestamp

CITY = "http://example.org/city/"


@given(st.sets(st.text("ab/#:", min_size=1, max_size=8)), st.integers(1, 3))
@example({":", "::"}, 1)
def test_short_names_distinguish_texts(texts: set[str], parts: int) -> None:
    names = short_names(texts, parts)
    assert set(names) == texts
    assert len(set(names.values())) == len(texts)
    assert all(name in text for text, name in names.items())


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ([f"{CITY}lamp-1/dimming", f"{CITY}lamp-2/dimming"], ["lamp-1", "lamp-2"]),
        ([f"{CITY}a/x", f"{CITY}b/y"], ["a/x", "b/y"]),
        ([f"{CITY}a", f"{CITY}a/b"], ["a", "a/b"]),
        (["http://example.org/a#Heat"], ["Heat"]),
        (["urn:a:lamp/dimming"], ["dimming"]),
        (["plain", "words"], ["plain", "words"]),
    ],
)
def test_short_names_are_the_differing_parts(texts: list[str], names: list[str]) -> None:
    assert [short_names(texts)[text] for text in texts] == names


def test_single_name_keeps_the_requested_number_of_parts() -> None:
    assert short_names([f"{CITY}lamp/dimming"], 2) == {f"{CITY}lamp/dimming": "lamp/dimming"}


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("1.5h", timedelta(hours=1.5)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_valid_lengths_are_read(text: str, length: timedelta) -> None:
    assert Length().convert(text, None, None) == length


@pytest.mark.parametrize("text", ["", "0s", "0.0h", "-1h", "1", "h", "1 y", "1h30m", "1e3s", "9999999w"])
def test_an_invalid_length_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s"):
        Length().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T18:00", datetime(2026, 1, 31, 18, tzinfo=UTC)),
        ("2026-01-31T18:00:00Z", datetime(2026, 1, 31, 18, tzinfo=UTC)),
        ("2026-01-31T18:00:00+01:00", datetime(2026, 1, 31, 17, tzinfo=UTC)),
    ],
)
def test_valid_times_are_read(text: str, moment: datetime) -> None:
    assert Timestamp().convert(text, None, None) == moment


@pytest.mark.parametrize("text", ["", "now", "2026-13-01", "0001-01-01T00:00:00+10:00"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 2026-01-31"):
        Timestamp().convert(text, None, None)
