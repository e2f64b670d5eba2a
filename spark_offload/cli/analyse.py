"""`edge-history analyse`: what gateway owners want to know of the history, a subcommand each."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_offload.cli.analysing import Asked, common, read_lamps, run
from spark_offload.cli.kinds import Length

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@click.group(invoke_without_command=True)
@click.pass_context
def analyse(ctx: click.Context) -> None:
    """Analyse the history. Each analysis is a subcommand; `edge-history analyse NAME --help` has an example.

    Values are those of observations with a number. Series are observations of the live graph (whose versions the
    history has), or else sensors. All times are UTC.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@analyse.command()
@click.option("--window", type=Length(), default="1h", show_default=True, help="Length of the windows.")
@click.option("--hold", type=Length(), help="Weigh the mean by time; a value holds until the next, at most so long.")
@common
def downsample(asked: Asked, window: timedelta, hold: timedelta | None) -> None:
    """Down-sample: few numbers a window.

    Least, mean and greatest value of each series, and how many there are. Windows are aligned: days begin at midnight,
    weeks on Mondays.

    \b
    edge-history analyse downsample --table history --window 15m --from 2026-01-01 --plot day.png
    """
    from spark_offload.analyses.downsample import downsample as analysis

    run(asked, lambda rows, _: analysis(rows, window, hold=hold), ("series", "property", "unit", "start"), "downsample")


@analyse.command()
@click.option("--longer", type=Length(), help="Than this. By default: than --factor usual intervals.")
@click.option("--factor", type=click.FloatRange(1), default=5.0, show_default=True, help="Usual intervals.")
@common
def gaps(asked: Asked, longer: timedelta | None, factor: float) -> None:
    """Find gaps, and sensors that are silent.

    That is: no observation for longer than usual, or than --longer. The usual interval of a series is the median of
    its intervals. No end: silent until --to, or else until the last
    observation of the whole history. What is stored only when it changes may be silent and well.

    \b
    edge-history analyse gaps --table history --from 2026-01-01
    edge-history analyse gaps --table history --longer 1h --plot gaps.svg
    """
    from spark_offload.analyses.gaps import gaps as analysis
    from spark_offload.analyses.measured import latest

    def found(rows: DataFrame, table: DataFrame) -> DataFrame:
        return analysis(rows, longer=longer, factor=factor, end=asked.until or latest(table))

    run(asked, found, ("series", "property", "start"), "gaps")


@analyse.command()
@click.option("--threshold", type=click.FloatRange(0), default=3.5, show_default=True, help="Of the robust z-score.")
@click.option("--least", type=click.IntRange(2), default=10, show_default=True, help="Fewer observations are no base.")
@click.option("--zone", default="UTC", show_default=True, help="Whose hours: an IANA time zone, as Europe/Rome.")
@common
def anomalies(asked: Asked, threshold: float, least: int, zone: str) -> None:
    """Find values that are far from usual.

    That is: from those of the same series at the same hour of the day. The score is the distance from the median,
    divided by the spread: 1.4826 times the median of such distances.

    \b
    edge-history analyse anomalies --table history --property http://example.org/temperature --zone Europe/Rome
    """
    from zoneinfo import available_timezones

    from spark_offload.analyses.anomalies import anomalies as analysis

    if zone not in available_timezones():
        raise click.BadParameter(f"{zone!r} is no time zone; write one like Europe/Rome", param_hint="--zone")
    run(
        asked,
        lambda rows, _: analysis(rows, threshold=threshold, least=least, zone=zone),
        ("series", "property", "unit", "ts"),
        "anomalies",
    )


@analyse.command()
@click.option("--window", type=Length(), default="1d", show_default=True, help="Length of the windows.")
@common
def places(asked: Asked, window: timedelta) -> None:
    """Compare places.

    They are features of interest; compared is the same property in the same window. The mean of each, its difference
    from the mean of all places, and its rank; each place counts once.

    \b
    edge-history analyse places --table history --window 1w --property http://example.org/noise --plot places.png
    """
    from spark_offload.analyses.places import places as analysis

    run(asked, lambda rows, _: analysis(rows, window), ("property", "unit", "start", "rank", "feature"), "places")


@analyse.command()
@click.option("--power", type=click.FloatRange(0, min_open=True), help="Of each lamp, in watts.")
@click.option(
    "--lamps",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="CSV with a header: sensor,watts and, where it is not the feature of interest, street.",
)
@click.option(
    "--hold", type=Length(), default="25h", show_default=True, help="So long a lamp stays as it was last seen."
)
@common
def energy(asked: Asked, power: float | None, lamps: Path | None, hold: timedelta) -> None:
    """Energy of streets, by their lamps.

    It is told for each day (UTC), from observations of dimming (--property). A lamp's dimming is in percent of full
    light, and its power proportional to it. A lamp not heard of for longer than
    --hold is unknown: what it takes is not counted, and for how long is told.

    \b
    edge-history analyse energy --table history --property http://example.org/dimming --power 60 --plot energy.png
    edge-history analyse energy --table history --property http://example.org/dimming --lamps lamps.csv
    """
    from spark_offload.analyses.energy import energy as analysis
    from spark_offload.analyses.measured import latest

    if (power is None) == (lamps is None):
        raise click.UsageError("give --power, or --lamps")
    if not asked.properties:
        raise click.UsageError("say with --property which observations are of dimming")

    def found(rows: DataFrame, table: DataFrame) -> DataFrame:
        rated = read_lamps(rows.sparkSession, lamps) if lamps else power or 0.0
        return analysis(rows, rated, hold=hold, start=asked.since, end=asked.until or latest(table))

    run(asked, found, ("street", "date"), "energy", before=hold)
