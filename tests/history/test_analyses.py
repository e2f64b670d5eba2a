"""Analyses on data that is small enough to compute the results by hand."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from edge.outbox.observation import XSD, Cells, ObservationContext
from tests.history.history_data import DAY, EX, HOUR, MIDNIGHT, SECOND, frame, numbered

pytest.importorskip("pyspark")

from pyspark.sql.types import DoubleType, StringType, StructType

from spark_offload.analyses.anomalies import anomalies
from spark_offload.analyses.downsample import downsample
from spark_offload.analyses.energy import energy
from spark_offload.analyses.gaps import gaps
from spark_offload.analyses.numeric_rows import chosen, latest
from spark_offload.analyses.output import WRITERS
from spark_offload.analyses.places import places
from spark_offload.local_rows import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


MINUTE = 60 * SECOND
CELSIUS = EX + "celsius"


def reading(
    sensor: str,
    time: int,
    value: object,
    *,
    feature: str | None = "hall",
    unit: str | None = CELSIUS,
    kind: str = "heat",
) -> tuple[ObservationContext, Cells]:
    """Return an observation `time` microseconds after midnight."""
    context = ObservationContext(
        series=f"{EX}{sensor}/{kind}",
        sensor=EX + sensor,
        feature=feature and EX + feature,
        property=EX + kind,
        unit=unit,
        datatype=XSD + "double",
    )
    return context, Cells(MIDNIGHT + time, str(value))


def table(spark: SparkSession, *observations: tuple[ObservationContext, Cells]) -> DataFrame:
    return frame(spark, numbered(observations))


def at(time: int) -> datetime:
    return datetime.fromtimestamp((MIDNIGHT + time) / SECOND, UTC)


def found(result: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return the sorted rows, with times in UTC and IRIs without their prefix."""

    def plain(cell: Any) -> Any:
        if isinstance(cell, datetime):
            return cell.astimezone(UTC)
        return cell.removeprefix(EX) if isinstance(cell, str) else cell

    rows = [tuple(plain(row[name]) for name in columns) for row in result.collect()]
    return sorted(rows, key=repr)


def close(*numbers: float) -> Sequence[float]:
    return pytest.approx(numbers, rel=1e-9)


def test_times_are_clear_when_daylight_saving_ends(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Rome")
    time.tzset()
    try:
        first = round(datetime(2025, 10, 26, tzinfo=UTC).timestamp()) * SECOND - MIDNIGHT
        rows = table(session, *(reading("a", first + number * 30 * MINUTE, number) for number in range(4)))
        written = io.StringIO()
        WRITERS["csv"](rows.select("ts").orderBy("ts"), written)
        assert written.getvalue().split() == [
            *("ts", "2025-10-26T00:00:00Z", "2025-10-26T00:30:00Z", "2025-10-26T01:00:00Z", "2025-10-26T01:30:00Z")
        ]
        assert latest(rows) == datetime(2025, 10, 26, 1, 30, tzinfo=UTC)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_downsampling(session: SparkSession) -> None:
    rows = table(
        session,
        reading("a", 0, 1),
        reading("a", HOUR - 1, 4),  # the last microsecond of the first hour
        reading("a", HOUR, 10),
        reading("a", 2 * HOUR, "NaN"),
        reading("a", 2 * HOUR, "warm"),
        reading("b", -1, -5),  # the day before
        reading("b", 30 * MINUTE, 300, unit=EX + "kelvin"),
        reading("b", 31 * MINUTE, 20),
        (ObservationContext(), Cells(MIDNIGHT, quads=f"<{EX}a> <{EX}p> <{EX}o> .")),
    )
    result = downsample(rows, timedelta(hours=1))
    assert result.columns == ["series", "property", "unit", "start", "min", "mean", "max", "count"]
    assert found(result, "series", "property", "unit", "start", "min", "mean", "max", "count") == [
        ("a/heat", "heat", "celsius", at(0), 1.0, 2.5, 4.0, 2),
        ("a/heat", "heat", "celsius", at(HOUR), 10.0, 10.0, 10.0, 1),
        ("b/heat", "heat", "celsius", at(-HOUR), -5.0, -5.0, -5.0, 1),
        ("b/heat", "heat", "celsius", at(0), 20.0, 20.0, 20.0, 1),
        ("b/heat", "heat", "kelvin", at(0), 300.0, 300.0, 300.0, 1),
    ]


def test_windows_begin_at_midnight_and_on_mondays(session: SparkSession) -> None:
    rows = table(session, *(reading("a", day * DAY + HOUR, day) for day in range(7)))  # 1 January 2026: a Thursday
    weeks = found(downsample(rows, timedelta(weeks=1)), "start", "count")
    assert weeks == [(datetime(2025, 12, 29, tzinfo=UTC), 4), (datetime(2026, 1, 5, tzinfo=UTC), 3)]
    days = found(downsample(rows, timedelta(days=1)), "start", "count")
    assert days == [(at(day * DAY), 1) for day in range(7)]


def test_a_mean_weighted_by_time(session: SparkSession) -> None:
    rows = table(
        session,
        reading("a", 0, 10),  # held for 45 minutes
        reading("a", 45 * MINUTE, 50),  # for 15 minutes of this hour, and 15 of the next: then it is unknown
        reading("a", HOUR + 45 * MINUTE, 80),  # for 15 minutes
        reading("b", 2 * HOUR, 7),  # the end: no duration
    )
    result = downsample(rows, timedelta(hours=1), hold=timedelta(minutes=45))
    weighted = {(start, series): mean for start, series, mean in found(result, "start", "series", "mean")}
    assert weighted == {
        (at(0), "a/heat"): pytest.approx((10 * 45 + 50 * 15) / 60),
        (at(HOUR), "a/heat"): pytest.approx((50 * 30 + 80 * 15) / 45),
        (at(2 * HOUR), "b/heat"): 7.0,
    }


def test_gaps_and_silent_sensors(session: SparkSession) -> None:
    regular = [reading("a", number * MINUTE, 1) for number in (*range(10), *range(20, 60))]
    quiet = [reading("b", number * MINUTE, 1) for number in range(0, 30, 2)]  # until 00:28
    once = [reading("c", 0, 1)]
    slow = [reading("d", number * 20 * MINUTE, 1) for number in range(3)]  # slow is not silent
    rows = table(session, *regular, *quiet, *once, *slow)
    columns = ("series", "start", "end", "seconds", "usual", "missed")
    assert found(gaps(rows), *columns) == [
        ("a/heat", at(9 * MINUTE), at(20 * MINUTE), 660.0, 60.0, 10),
        ("b/heat", at(28 * MINUTE), None, 31 * 60.0, 120.0, 15),
    ]
    assert found(gaps(rows, factor=20), *columns) == []
    assert found(gaps(rows, longer=timedelta(minutes=30)), *columns) == [
        ("b/heat", at(28 * MINUTE), None, 1860.0, 120.0, 15),
        ("c/heat", at(0), None, 59 * 60.0, None, None),
    ]
    late = gaps(rows, end=at(2 * HOUR)).where("`end` is null")
    assert found(late, "series", "seconds") == [
        ("a/heat", 61 * 60.0),
        ("b/heat", 92 * 60.0),
    ]


def test_a_sensor_with_a_future_clock_makes_no_other_silent(session: SparkSession) -> None:
    rows = table(
        session,
        *(reading("a", number * MINUTE, 1) for number in range(5)),
        *(reading("b", number * MINUTE, 1) for number in range(5)),
        reading("b", 5000 * 365 * DAY, 1),
    )
    assert found(gaps(rows), "series") == []


def test_anomalies(session: SparkSession) -> None:
    ten = [reading("a", day * DAY, value) for day, value in enumerate((18, 19, 19, 20, 20, 20, 21, 21, 22, 40))]
    # Median 20; deviations 2 1 1 0 0 0 1 1 2 20, their median 1: 40 is 20 / 1.4826 away.
    night = [reading("a", day * DAY + 3 * HOUR, 40) for day in range(10)]  # usual at that hour
    still = [reading("b", day * DAY, 5) for day in range(19)]
    jump = reading("b", 19 * DAY, 7)
    # More than half are equal: the mean deviation 2 / 20 decides, 7 is 2 / 0.12533 away.
    few = [reading("c", day * DAY, value) for day, value in enumerate((1, 1, 1, 2, 99))]
    rows = table(session, *ten, *night, *still, jump, *few)
    columns = ("series", "ts", "hour", "value", "median", "spread", "z")
    result = found(anomalies(rows), *columns)
    assert [row[:5] for row in result] == [
        ("a/heat", at(9 * DAY), 0, 40.0, 20.0),
        ("b/heat", at(19 * DAY), 0, 7.0, 5.0),
    ]
    assert result[0][5:] == close(1.4826, 20 / 1.4826)
    assert result[1][5:] == close(0.12533, 2 / 0.12533)
    assert found(anomalies(rows, threshold=15), "series") == [("b/heat",)]
    assert ("c/heat",) in found(anomalies(rows, least=5), "series")


def test_hours_are_in_the_given_time_zone(session: SparkSession) -> None:
    # 23:30 UTC is half past midnight in Rome, in winter.
    rows = table(
        session, *(reading("a", day * DAY - 30 * MINUTE, day % 3) for day in range(9)), reading("a", 9 * DAY, 50)
    )
    assert found(anomalies(rows, zone="Europe/Rome"), "series") == []  # its hour is 1, without others to compare
    rows = table(
        session, *(reading("a", day * DAY - 30 * MINUTE, value) for day, value in enumerate((1, 2, 3) * 3 + (50,)))
    )
    assert found(anomalies(rows, zone="Europe/Rome"), "hour", "value") == [(0, 50.0)]


def test_comparison_across_places(session: SparkSession) -> None:
    rows = table(
        session,
        reading("a", 0, 10, feature="north"),
        reading("a", HOUR, 20, feature="north"),
        reading("b", 2 * HOUR, 30, feature="south"),
        reading("c", 3 * HOUR, 30, feature="west"),
        reading("d", DAY, 1, feature="north"),
        reading("e", 0, 99, feature="north", kind="noise"),
        reading("f", 0, 99, feature=None),
    )
    columns = ("property", "start", "feature", "mean", "count", "overall", "difference", "places", "rank")
    assert found(places(rows, timedelta(days=1)), *columns) == [
        ("heat", at(0), "north", 15.0, 2, 25.0, -10.0, 3, 3),
        ("heat", at(0), "south", 30.0, 1, 25.0, 5.0, 3, 1),
        ("heat", at(0), "west", 30.0, 1, 25.0, 5.0, 3, 1),
        ("heat", at(DAY), "north", 1.0, 1, 1.0, 0.0, 1, 1),
        ("noise", at(0), "north", 99.0, 1, 99.0, 0.0, 1, 1),
    ]


def dimming(lamp: str, time: int, percent: object, street: str = "high") -> tuple[ObservationContext, Cells]:
    return reading(lamp, time, percent, feature=street, unit=EX + "percent", kind="dimming")


def test_energy_of_streets(session: SparkSession) -> None:
    rows = table(
        session,
        dimming("1", 18 * HOUR, 100),  # until 22:00
        dimming("1", 22 * HOUR, 25),  # over midnight until 06:00
        dimming("1", DAY + 6 * HOUR, 0),  # until 14:00, when the hold is over; unknown until 18:00
        dimming("2", 20 * HOUR, 50),  # until 04:00, not longer: the hold; unknown until 18:00
        dimming("2", DAY + 18 * HOUR, 100),  # the end
        dimming("3", 23 * HOUR, 50, "low"),
        dimming("3", 23 * HOUR, 100, "low"),  # of two at once the last one counts
        dimming("3", 23 * HOUR + 30 * MINUTE, 130, "low"),  # not a percentage
        dimming("3", DAY, 10, "low"),  # until 08:00, then unknown until 18:00
    )
    columns = ("street", "date", "lamps", "kwh", "known", "unknown")
    first, second = date(2026, 1, 1), date(2026, 1, 2)
    result = found(energy(rows, 100, hold=timedelta(hours=8)), *columns)
    assert [row[:3] for row in result] == [
        ("high", first, 2),
        ("high", second, 2),
        ("low", first, 1),
        ("low", second, 1),
    ]
    kilowatt = 0.1
    assert [row[3:] for row in result] == [
        close(kilowatt * (4 + 2 * 0.25 + 4 * 0.5), 6 + 4, 0),
        close(kilowatt * (6 * 0.25 + 4 * 0.5), 6 + 8 + 4, 4 + 14),
        close(kilowatt * 0.5, 0.5, 0.5),
        close(kilowatt * 8 * 0.1, 8, 10),
    ]


def test_energy_by_a_table_of_lamps_and_within_a_period(session: SparkSession) -> None:
    rows = table(
        session,
        dimming("1", 18 * HOUR, 100),
        dimming("2", 18 * HOUR, 50),
        dimming("3", 18 * HOUR, 100, "low"),
        dimming("4", 18 * HOUR, 100, "low"),  # not in the table of lamps
    )
    lamps = local_frame(
        session,
        [(EX + "1", 40.0, None), (EX + "2", 80.0, EX + "low"), (EX + "3", 10.0, None)],
        StructType().add("sensor", StringType()).add("watts", DoubleType()).add("street", StringType()),
    )
    result = energy(rows, lamps, start=at(19 * HOUR), end=at(21 * HOUR))
    columns = ("street", "date", "lamps", "kwh", "known", "unknown")
    assert found(result, *columns) == [
        ("high", date(2026, 1, 1), 1, pytest.approx(0.08), 2.0, 0.0),
        ("low", date(2026, 1, 1), 3, pytest.approx(0.08 + 0.02), 4.0, 2.0),
    ]
    without_streets = energy(rows, lamps.drop("street"), start=at(19 * HOUR), end=at(21 * HOUR))
    assert [row[:3] for row in found(without_streets, *columns)] == [
        ("high", date(2026, 1, 1), 2),
        ("low", date(2026, 1, 1), 2),
    ]


def test_rows_are_selected_by_time_property_and_sensor(session: SparkSession) -> None:
    rows = table(
        session,
        reading("a", -1, 1),
        reading("a", 0, 2),
        reading("b", HOUR, 3),
        reading("b", HOUR, 4, kind="noise"),
        reading("b", DAY, 5),
    )
    assert found(chosen(rows, start=at(0), end=at(DAY)), "value") == [(2.0,), (3.0,), (4.0,)]
    assert found(chosen(rows, sensors=[EX + "a"]), "value") == [(1.0,), (2.0,)]
    assert found(chosen(rows, sensors=[EX + "a", EX + "b/noise"]), "value") == [(1.0,), (2.0,), (4.0,)]
    assert found(chosen(rows, properties=[EX + "noise"]), "value") == [(4.0,)]
