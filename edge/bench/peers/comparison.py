"""The experiment `peers`: sides in turn, every load, and what became of a side that failed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from edge.bench.experiment import ExperimentError, ExperimentOptions, steps
from edge.bench.peers.cache import default_cache
from edge.bench.peers.ekuiper import Ekuiper
from edge.bench.peers.gateway_side import GatewaySide
from edge.bench.peers.load import Publisher
from edge.bench.peers.measurement import SMALL, Measured, Measurement, Scale
from edge.bench.peers.node_red import NodeRed
from edge.bench.peers.peer_error import PeerError
from edge.bench.peers.report import FIGURES, Cell, LoadKind, PeersReport
from edge.bench.peers.sepa import LEFT_OUT, Sepa
from edge.bench.peers.side import Setting, Side
from edge.bench.readings import mosquitto, mosquitto_program

_DEFAULT: Final = ("gateway", "ekuiper", "ekuiper-blocking", "node-red")
NAMES: Final = (*_DEFAULT, "sepa")
LOADS: Final = tuple(LoadKind(qos, share) for qos in (1, 0) for share in (1, 10))
_SMALL_LOADS: Final = (LoadKind(1, 1), LoadKind(0, 10))


def run(options: ExperimentOptions) -> PeersReport:
    """Measure every side under every load. Raises `ExperimentError` if a program is missing."""
    sides = _sides(options)
    problems = [problem for side in sides if (problem := side.missing())]
    if problems:
        raise ExperimentError("\n".join(problems))
    mosquitto_program()
    report = PeersReport("peers", options.mode, sides=sides)
    if "sepa" not in [side.name for side in sides]:
        report.notes.append(LEFT_OUT)
    able = [side for side in sides if _installed(side, report)]
    scale = SMALL if options.small else Scale()
    measured: dict[Cell, list[Measured]] = {}
    for cell in steps(list(_turns(able, _SMALL_LOADS if options.small else LOADS, options.runs)), "peers"):
        try:
            found = _measure(cell, scale)
        except (PeerError, OSError) as error:
            report.failed(cell.side, f"{cell.load}: {error}")
        else:
            measured.setdefault(cell, []).append(found)
    report.cells = {cell: _median(values) for cell, values in measured.items()}
    return report


def _sides(options: ExperimentOptions) -> list[Side]:
    cache = Path(options.cache) if options.cache else default_cache()
    chosen = dict(_parsed(peer) for peer in options.peers) or dict.fromkeys(_DEFAULT)
    found: list[Side] = []
    for name in NAMES:
        if name not in chosen:
            continue
        path = chosen[name]
        if name == "gateway":
            found.append(GatewaySide())
        elif name == "node-red":
            found.append(NodeRed(cache, path))
        elif name != "sepa":
            # One path is enough for both variants of eKuiper.
            other = chosen.get("ekuiper") or chosen.get("ekuiper-blocking")
            found.append(Ekuiper(cache, path or other, blocking=name == "ekuiper-blocking"))
        elif path is None:
            raise ExperimentError(LEFT_OUT)
        else:
            found.append(Sepa(path))
    return found


def _parsed(peer: str) -> tuple[str, Path | None]:
    name, _, path = peer.partition("=")
    if name not in NAMES:
        raise ExperimentError(f"there is no peer {name!r}; there are {', '.join(NAMES)}")
    return name, Path(path).expanduser() if path else None


def _installed(side: Side, report: PeersReport) -> bool:
    """Install a side. A failure is reported and leaves the other sides alone."""
    try:
        side.install()
    except (PeerError, OSError) as error:
        report.failed(side, f"not installed: {error}")
        return False
    return True


def _turns(sides: Sequence[Side], loads: Sequence[LoadKind], runs: int) -> Iterator[Cell]:
    """Yield the order of measurements: for each load all sides, beginning with another one in each run."""
    for number in range(runs):
        first = number % max(1, len(sides))
        for load in loads:
            for side in [*sides[first:], *sides[:first]]:
                yield Cell(side, load)


def _measure(cell: Cell, scale: Scale) -> Measured:
    """Measure a new process of the side behind a new Mosquitto."""
    with TemporaryDirectory(prefix="edge-bench-") as directory:
        home = Path(directory) / "side"
        home.mkdir()
        with mosquitto(Path(directory), "set_tcp_nodelay true") as port:
            setting = Setting(home, port, cell.load.qos)
            with cell.side.running(setting) as running:
                publisher = Publisher(port, cell.load.qos)
                try:
                    return Measurement(cell.side, running, publisher, cell.load.share).measure(scale)
                finally:
                    publisher.close()


def _median(values: Sequence[Measured]) -> Measured:
    """Return the median of each figure, and the problems of all runs."""
    figures = {name: statistics.median([getattr(value, name) for value in values]) for name in FIGURES}
    problems = [problem for value in values for problem in value.problems]
    return Measured(version=values[0].version, problems=problems, **figures)
