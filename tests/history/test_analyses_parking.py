"""The analyses on recorded data, the car parks of Aarhus, compared with pandas. See README.md next to the data."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal, assert_series_equal

from tests.history.history_data import EX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARKING = Path(__file__).parents[3] / "shared" / "data" / "aarhus_parking.csv"

pytestmark = pytest.mark.skipif(not PARKING.exists(), reason="the recorded readings are absent (../shared/data)")


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    """Return the recorded data: series, ts, value (occupied spaces in percent, sometimes above 100)."""
    read = pd.read_csv(PARKING, parse_dates=["updatetime"])
    ts = read["updatetime"].astype("datetime64[us]")
    return pd.DataFrame(
        {
            "series": EX + read["garagecode"],
            "ts": ts,
            "value": read["vehiclecount"] / read["totalspaces"] * 100,
            "seq": read["_id"],
        }
    )


@pytest.fixture(scope="module")
def rows(spark: SparkSession, recorded: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    """Return the same data as rows of the table."""
    from pyspark.sql import functions as F  # noqa: N812

    file = tmp_path_factory.mktemp("parking") / "recorded.parquet"
    recorded.to_parquet(file)
    table = spark.read.parquet(str(file)).select(
        "series",
        *(F.col("series").alias(name) for name in ("sensor", "feature")),
        *(F.lit(None).cast("string").alias(name) for name in ("topic", "unit")),
        F.lit(EX + "taken").alias("property"),
        F.col("ts").cast("timestamp"),
        F.to_date("ts").alias("date"),
        "seq",
        "value",
    )
    yield table.cache()
    table.unpersist()


def test_days_equal_those_of_pandas(rows: DataFrame, recorded: pd.DataFrame) -> None:
    from spark_offload.analyses.downsample import downsample

    found = downsample(rows, timedelta(days=1)).toPandas().set_index(["series", "start"]).sort_index()
    grouped = recorded.groupby(["series", recorded["ts"].dt.floor("D").rename("start")])["value"]
    expected = grouped.agg(["min", "mean", "max", "count"])
    assert len(found) > 1000
    assert_frame_equal(found[expected.columns], expected, check_dtype=False, check_index_type=False)


def test_gaps_equal_those_of_pandas_and_contain_no_rows(rows: DataFrame, recorded: pd.DataFrame) -> None:
    from spark_offload.analyses.gaps import gaps

    found = gaps(rows, longer=timedelta(hours=3)).toPandas()
    ordered = recorded.sort_values(["series", "ts"])
    lengths = ordered.groupby("series")["ts"].diff()
    long = lengths > timedelta(hours=3)
    expected = {
        (series, until, length)
        for series, until, length in zip(
            ordered["series"][long], ordered["ts"][long], lengths[long].dt.total_seconds(), strict=True
        )
    }
    assert len(expected) > 8
    assert (
        set(found.dropna(subset=["end"])[["series", "end", "seconds"]].itertuples(index=False, name=None)) == expected
    )
    assert set(found["usual"].round(-2)) == {1800.0}  # almost half an hour


def test_anomalies_equal_those_of_pandas(rows: DataFrame, recorded: pd.DataFrame) -> None:
    from spark_offload.analyses.anomalies import anomalies

    found = anomalies(rows, zone="Europe/Copenhagen").toPandas()
    hour = recorded["ts"].dt.tz_localize("UTC").dt.tz_convert("Europe/Copenhagen").dt.hour
    together = recorded["value"].groupby([recorded["series"], hour])
    deviation = recorded["value"] - together.transform("median")
    sizes = deviation.abs().groupby([recorded["series"], hour])
    spread = (sizes.transform("median") * 1.4826).where(lambda mad: mad > 0, sizes.transform("mean") * 1.2533)
    expected = recorded.assign(z=deviation / spread)[lambda frame: frame["z"].abs() > 3.5]
    assert 100 < len(expected) < len(recorded) / 10
    keys = ["series", "ts", "value"]
    both = found.sort_values(keys, ignore_index=True), expected.sort_values(keys, ignore_index=True)
    assert_series_equal(both[0]["ts"], both[1]["ts"], check_dtype=False)
    assert_series_equal(both[0]["z"], both[1]["z"])


def test_differences_of_all_places_add_up_to_zero(rows: DataFrame) -> None:
    from spark_offload.analyses.places import places

    found = places(rows, timedelta(weeks=1)).toPandas()
    weeks = found.groupby("start")
    assert weeks["difference"].sum().abs().max() < 1e-9
    assert set(weeks["rank"].min()) == {1}
    assert (weeks["rank"].max() <= weeks["places"].max()).all()
    assert set(found["places"]) == {8}
    assert (found.sort_values(["start", "rank"])["mean"].groupby(found["start"]).diff().dropna() <= 0).all()
    assert set(found["start"].dt.dayofweek) == {0}


def test_known_and_unknown_hours_cover_the_whole_time(rows: DataFrame, recorded: pd.DataFrame) -> None:
    """The test treats occupancy as dimming: a value above 100 is not a percentage."""
    from spark_offload.analyses.energy import energy

    found = energy(rows, 100.0, hold=timedelta(hours=2)).toPandas()
    times = recorded.groupby("series")["ts"]
    hours = (recorded["ts"].max() - times.min()).dt.total_seconds() / 3600
    days = found.groupby("street")[["kwh", "known", "unknown"]].sum()
    assert_series_equal(days["known"] + days["unknown"], hours, check_names=False, check_index_type=False)
    assert (days["kwh"] <= days["known"] * 0.1).all()
    assert (found["known"] + found["unknown"] <= 24 + 1e-9).all()
    assert days["unknown"].min() > 0
    held = recorded.sort_values(["series", "ts", "seq"])
    length = held.groupby("series")["ts"].shift(-1).fillna(recorded["ts"].max()) - held["ts"]
    counted = (
        length.clip(upper=timedelta(hours=2)).dt.total_seconds() / 3600 * held["value"].where(held["value"] <= 100)
    )
    assert_series_equal(days["kwh"], counted.groupby(held["series"]).sum() / 1000, check_names=False)
