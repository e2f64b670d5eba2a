"""`edge bench`: the benchmark of the SUB Engine on this machine."""

from __future__ import annotations

from typing import Final, Literal

import click

from edge.bench.experiment import INDICATORS, ExperimentError, ExperimentOptions
from edge.bench.experiments import ATTACKS, BOTH_MODES, EXPERIMENTS, experiment
from edge.cli.exit_codes import misused, refused

_EPILOG: Final = "\n".join(
    [
        "\b",
        "Experiments:",
        *(f"  {name:<12} {meaning}" for name, meaning in EXPERIMENTS.items()),
        "",
        "\b",
        "Attacks of the fairness experiment:",
        *(f"  {name:<14} {meaning}" for name, meaning in ATTACKS.items()),
        "",
        "\b",
        "Indicators (members of --json; times are sums over the updates of a run):",
        *(f"  {name:<14} {meaning}" for name, meaning in INDICATORS.items()),
        "",
        "\b",
        "--json prints one object with `experiment`, `mode` and all indicators, null where an experiment does not",
        "measure one; experiments other than lamp and road have their own figures in the member `figures`.",
        "",
        "\b",
        "Exit codes:",
        "  0  measured",
        "  1  cannot run here, or what was measured is wrong: standard error says why",
        "  2  wrong command line",
    ]
)

_RUNS: Final = {"peers": 1, "work": 3}
"""Default number of runs where it is not 5."""


@click.command(epilog=_EPILOG)
@click.argument("name", metavar="EXPERIMENT", type=click.Choice(list(EXPERIMENTS)))
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    help="Runs; the figures are their medians.  [default: 5; work: 3; peers: 1, about 15 minutes]",
)
@click.option(
    "--mode",
    type=click.Choice(["sequential", "parallel"]),
    default="sequential",
    show_default=True,
    help=f"How the engine processes updates ({', '.join(BOTH_MODES)}).",
)
@click.option(
    "--durability",
    type=click.Choice(["memory", "commit"]),
    default="memory",
    show_default=True,
    help="Whether each update is on disk before its notifications. With memory the journal is in memory; a gateway "
    "process (latency) flushes its journal once a second. `readings` and `soak` always commit; `wear` measures both.",
)
@click.option("--small", is_flag=True, help="A small city and short runs: a smoke test, not for figures.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True, max=10_000),
    default=20.0,
    show_default=True,
    help="How long soak runs. It needs 8 to warm up, and 3 more for a verdict.",
)
@click.option(
    "--attack",
    "attacks",
    multiple=True,
    type=click.Choice(list(ATTACKS)),
    help="Attack of the fairness experiment; may repeat.  [default: all, about 40 seconds each]",
)
@click.option(
    "--peer",
    "peers",
    metavar="NAME[=DIRECTORY]",
    multiple=True,
    help="Side of the peers experiment: gateway, ekuiper, ekuiper-blocking (disableBufferFullDiscard), node-red, sepa; "
    "may repeat. With a directory, the program installed there is used.  [default: all but sepa]",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False),
    default="",
    help="Where peers installs the programs that it builds or downloads.  [default: ~/.cache/sepa-edge/peers]",
)
@click.option("--record", is_flag=True, help="Record the counts of work instead of comparing them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def bench(
    name: str,
    runs: int | None,
    mode: Literal["sequential", "parallel"],
    durability: str,
    small: bool,
    minutes: float,
    attacks: tuple[str, ...],
    peers: tuple[str, ...],
    cache: str,
    record: bool,
    as_json: bool,
) -> None:
    """Measure the engine with the benchmark of the SPS Architecture, and with further experiments.

    The knowledge base is a city of 310 roads with 9,500 lamp posts, 334 K triples. For comparison, a bare
    Oxigraph store executes the same updates in the same run. A running gateway is not affected. Use an idle machine.

    \b
    edge bench lamp
    edge bench road --durability commit --json
    edge bench soak --minutes 60
    edge bench fairness --attack updates --attack timers
    edge bench peers --peer gateway --peer ekuiper
    edge bench work
    """
    if mode == "parallel" and name not in BOTH_MODES:
        raise misused(f"{name} has no parallel mode; {', '.join(BOTH_MODES)} have one")
    runs = runs or _RUNS.get(name, 5)
    options = ExperimentOptions(runs, mode, durability == "commit", small, minutes, attacks, peers, cache, record)
    try:
        report = experiment(name)(options)
    except ExperimentError as error:
        raise refused(str(error)) from None
    click.echo(report.to_json() if as_json else report.to_text())
    if report.failure:
        raise refused(report.failure)
