"""`edge-history analyse`: one subcommand for each analysis of the history."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_offload.cli.analysing import AnalysisOptions, common, read_lamps, run
from spark_offload.cli.kinds import Length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@click.group(invoke_without_command=True)
@click.pass_context
def analyse(ctx: click.Context) -> None:
    """Analyse the history. Each analysis is a subcommand; `edge-history analyse NAME --help` has an example.

    Analyses use the observations with a numeric value. A series is an observation of the live graph, of which the
    history has the versions; without one, it is a sensor. All times are UTC.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@analyse.command()
@click.option("--window", type=Length(), default="1h", show_default=True, help="Length of the windows.")
@click.option(
    "--hold", type=Length(), help="Weight the mean by time. A value holds until the next one, at most this long."
)
@common
def downsample(options: AnalysisOptions, window: timedelta, hold: timedelta | None) -> None:
    """Aggregate each series over windows of time.

    Prints minimum, mean, maximum and number of values. Windows are aligned: days begin at midnight, weeks on Mondays.

    \b
    edge-history analyse downsample --table history --window 15m --from 2026-01-01 --plot day.png
    """
    from spark_offload.analyses.downsample import downsample as analysis

    run(
        options,
        lambda rows, _: analysis(rows, window, hold=hold),
        ("series", "property", "unit", "start"),
        "downsample",
    )


@analyse.command()
@click.option("--longer", type=Length(), help="Minimum length of a gap.  [default: --factor usual intervals]")
@click.option(
    "--factor",
    type=click.FloatRange(1),
    default=5.0,
    show_default=True,
    help="Minimum length of a gap, in usual intervals.",
)
@common
def gaps(options: AnalysisOptions, longer: timedelta | None, factor: float) -> None:
    """Find gaps in the observations, and silent sensors.

    A gap is a time without observations that is longer than --longer, or than --factor usual intervals. The usual
    interval of a series is the median of its intervals. A gap without an end lasts until --to, or until the last
    observation of the whole history. A sensor whose value is stored only when it changes may be silent and work well.

    \b
    edge-history analyse gaps --table history --from 2026-01-01
    edge-history analyse gaps --table history --longer 1h --plot gaps.svg
    """
    from spark_offload.analyses.gaps import gaps as analysis
    from spark_offload.analyses.numeric_rows import latest

    def found(rows: DataFrame, table: DataFrame) -> DataFrame:
        # The end comes from the whole table: the chosen sensors may all be silent.
        return analysis(rows, longer=longer, factor=factor, end=options.until or latest(table))

    run(options, found, ("series", "property", "start"), "gaps")


@analyse.command()
@click.option("--threshold", type=click.FloatRange(0), default=3.5, show_default=True, help="Minimum robust z-score.")
@click.option(
    "--least",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    help="Minimum number of observations of a series in one hour of the day; smaller groups are skipped.",
)
@click.option(
    "--zone", default="UTC", show_default=True, help="IANA time zone of the hours of the day, such as Europe/Rome."
)
@common
def anomalies(options: AnalysisOptions, threshold: float, least: int, zone: str) -> None:
    """Find outliers: values far from the usual ones.

    Each value is compared with those of the same series at the same hour of the day. The score is the distance from
    the median, divided by the spread: 1.4826 times the median of such distances.

    \b
    edge-history analyse anomalies --table history --property http://example.org/temperature --zone Europe/Rome
    """
    from zoneinfo import available_timezones

    from spark_offload.analyses.anomalies import anomalies as analysis

    if zone not in available_timezones():
        raise click.BadParameter(f"{zone!r} is not a time zone; write one like Europe/Rome", param_hint="--zone")
    run(
        options,
        lambda rows, _: analysis(rows, threshold=threshold, least=least, zone=zone),
        ("series", "property", "unit", "ts"),
        "anomalies",
    )


@analyse.command()
@click.option("--window", type=Length(), default="1d", show_default=True, help="Length of the windows.")
@common
def places(options: AnalysisOptions, window: timedelta) -> None:
    """Compare places.

    A place is a feature of interest. For each property and window the analysis returns the mean of each place, its
    difference from the mean of all places, and its rank. Each place counts once, whatever its number of sensors.

    \b
    edge-history analyse places --table history --window 1w --property http://example.org/noise --plot places.png
    """
    from spark_offload.analyses.places import places as analysis

    run(options, lambda rows, _: analysis(rows, window), ("property", "unit", "start", "rank", "feature"), "places")


@analyse.command()
@click.option("--power", type=click.FloatRange(0, min_open=True), help="Rated power of each lamp, in watts.")
@click.option(
    "--lamps",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV with a header: sensor,watts and optionally street (default: the feature of interest).",
)
@click.option(
    "--hold", type=Length(), default="25h", show_default=True, help="How long the last observation of a lamp is valid."
)
@common
def energy(options: AnalysisOptions, power: float | None, lamps: Path | None, hold: timedelta) -> None:
    """Estimate the energy that the lamps of each street used.

    Returns the energy of each day (UTC), from observations of dimming (--property). Dimming is in percent of full
    light, and the power of a lamp is proportional to it. After --hold without an observation the state of a lamp is
    unknown: its energy is not counted, and the unknown hours are reported.

    \b
    edge-history analyse energy --table history --property http://example.org/dimming --power 60 --plot energy.png
    edge-history analyse energy --table history --property http://example.org/dimming --lamps lamps.csv
    """
    from spark_offload.analyses.energy import energy as analysis
    from spark_offload.analyses.numeric_rows import latest

    if (power is None) == (lamps is None):
        raise click.UsageError("give --power, or --lamps")
    if not options.properties:
        raise click.UsageError("name the property of the dimming observations with --property")

    def found(rows: DataFrame, table: DataFrame) -> DataFrame:
        rated = read_lamps(rows.sparkSession, lamps) if lamps else power or 0.0
        return analysis(rows, rated, hold=hold, start=options.since, end=options.until or latest(table))

    # The state of a lamp at --from follows from an observation up to `hold` earlier.
    run(options, found, ("street", "date"), "energy", before=hold)
