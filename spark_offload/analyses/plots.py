"""Plots of the analyses: one function for each analysis, from its result to a matplotlib figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from spark_offload.analyses.names import short_names

MOST_LINES: Final = 8
"""Maximum series in a panel: more colours are hard to distinguish."""
MOST_BARS: Final = 40
"""Maximum rows of a bar chart or colour chart."""
MOST_PANELS: Final = 6

_WIDTH: Final = 10.0
"""Width of figures in inches."""
_SILENT: Final = "#c0392b"
_QUIET: Final = "#7f8c8d"

Draw = Callable[[pd.DataFrame], Figure]


def save(draw: Draw, found: pd.DataFrame, path: Path) -> None:
    """Plot a result into a file. The suffix selects the format: png, svg or pdf."""
    figure = draw(found) if len(found) else _empty()
    figure.savefig(path, dpi=150)


def downsample(found: pd.DataFrame) -> Figure:
    """Plot means as lines, with bands from minimum to maximum. Each property and unit has a panel."""
    panels = list(_panels(found))
    figure, grid = _figure(len(panels), 3.2)
    for axes, (title, part) in zip(grid, panels, strict=True):
        for name, line in _most(part, "count"):
            colour = None
            for stretch in _stretches(line.sort_values("start")):
                drawn = axes.plot(
                    stretch["start"], stretch["mean"], color=colour, marker=".", markersize=3, linewidth=1.2
                )
                colour = drawn[0].get_color()
                axes.fill_between(
                    stretch["start"], stretch["min"], stretch["max"], color=colour, alpha=0.15, linewidth=0
                )
            # One entry in the legend for each series: its stretches have none.
            axes.plot([], [], color=colour, label=name)
        axes.set_ylabel(title)
        _legend(axes)
    grid[0].set_title(_title("Mean of each window, with minimum and maximum", panels))
    return _dated(figure, grid)


def gaps(found: pd.DataFrame) -> Figure:
    """Plot a row for each series, with a bar for each gap."""
    found = found.assign(until=found["start"] + pd.to_timedelta(found["seconds"], unit="s"))
    names = _series_names(found)
    order = found.groupby(names)["seconds"].sum().sort_values().index[-MOST_BARS:]
    figure, (axes,) = _figure(1, 1.2 + 0.32 * len(order))
    axes.use_sticky_edges = False  # keep a margin between the first bar and the axis
    for row, name in enumerate(order):
        of_it = found[names == name]
        for still, colour in ((False, _QUIET), (True, _SILENT)):
            bars = of_it[of_it["end"].isna() == still]
            axes.barh(row, bars["until"] - bars["start"], left=bars["start"], height=0.6, color=colour)
    for label, colour in (("gap", _QUIET), ("open gap", _SILENT)):
        axes.barh(0, pd.Timedelta(0), left=found["start"].iloc[0], color=colour, label=label)
    axes.set_yticks(range(len(order)), order)
    axes.set_ylim(-0.6, len(order) - 0.4)
    shown = f" (the {len(order)} longest of {names.nunique()})" if names.nunique() > len(order) else ""
    axes.set_title(f"Times without an observation{shown}")
    _legend(axes)
    return _dated(figure, [axes])


def anomalies(found: pd.DataFrame) -> Figure:
    """Plot anomalies as points. A grey bar shows the usual range of the hour: the median plus and minus one spread."""
    panels = list(_panels(found))
    figure, grid = _figure(len(panels), 3.2)
    for axes, (title, part) in zip(grid, panels, strict=True):
        faint = min(0.6, 0.1 + 50 / len(part))  # many opaque bars would hide the points
        middle, spread = part["median"], part["spread"]
        axes.vlines(part["ts"], middle, part["value"], color=_QUIET, linewidth=0.6, alpha=faint)
        axes.vlines(part["ts"], middle - spread, middle + spread, color=_QUIET, linewidth=3, alpha=faint)
        axes.plot([], [], color=_QUIET, linewidth=3, label="usual")
        for name, points in _most(part, "z"):
            axes.plot(points["ts"], points["value"], "o", markersize=4, label=name)
        axes.set_ylabel(title)
        _legend(axes)
    grid[0].set_title(_title("Values far from the usual ones of their hour", panels))
    return _dated(figure, grid)


def places(found: pd.DataFrame) -> Figure:
    """Plot windows from left to right and places from top to bottom; colours show the difference from the mean."""
    panels = list(_panels(found))
    charts = [_chart(part) for _, part in panels]
    figure, grid = _figure(len(panels), max(1.6 + 0.3 * len(chart) for chart in charts), share=False)
    for axes, (title, part), chart in zip(grid, panels, charts, strict=True):
        # `pcolormesh` needs the edges of the cells, one more than there are cells.
        edges = chart.columns.union([chart.columns[-1] + _step(part["start"])])
        far = np.nanmax(np.abs(chart.to_numpy())) or 1.0
        mesh = axes.pcolormesh(edges, range(len(chart) + 1), chart.to_numpy(), cmap="RdBu_r", vmin=-far, vmax=far)
        axes.set_yticks(
            [row + 0.5 for row in range(len(chart))], [short_names(part["feature"])[name] for name in chart.index]
        )
        figure.colorbar(mesh, ax=axes, label="difference", pad=0.01)
        axes.set_title(title, loc="left", fontsize="medium")
    figure.suptitle(_title("Places: difference from the mean of all places", panels))
    return _dated(figure, grid)


def energy(found: pd.DataFrame) -> Figure:
    """Plot the energy of each street and day as stacked bars; a second panel shows the unknown lamp-hours."""
    names = found["street"].fillna("(no street)")
    named = found.assign(street=names.map(short_names(names)), date=pd.to_datetime(found["date"]))
    most = named.groupby("street")["kwh"].sum().sort_values(ascending=False).index[:MOST_LINES]
    named.loc[~named["street"].isin(most), "street"] = "others"
    unknown = bool(named["unknown"].sum() > 0)
    figure, grid = _figure(2 if unknown else 1, 3.2)
    for axes, column in zip(grid, ("kwh", "unknown"), strict=False):
        chart = named.pivot_table(index="date", columns="street", values=column, aggfunc="sum", fill_value=0.0)
        below = np.zeros(len(chart))
        for street in [name for name in (*most, "others") if name in chart]:
            axes.bar(chart.index, chart[street], bottom=below, width=0.8, label=street)
            below += chart[street].to_numpy()
        axes.set_ylim(0, 1.05 * below.max() or 1.0)
        axes.grid(axis="y", alpha=0.25, linewidth=0.5)
        axes.set_axisbelow(True)
    grid[0].set_title("Energy of street lamps for each day (UTC)")
    grid[0].set_ylabel("kWh")
    _legend(grid[0])
    if unknown:
        grid[1].set_ylabel("lamp-hours unknown")
    return _dated(figure, grid)


def _figure(panels: int, height: float, *, share: bool = True) -> tuple[Figure, list[Axes]]:
    # Not through pyplot, which keeps every figure in memory until it is closed.
    figure = Figure(figsize=(_WIDTH, 0.8 + height * panels), layout="constrained")
    grid = figure.subplots(panels, 1, sharex=share, squeeze=False)
    return figure, list(grid[:, 0])


def _empty() -> Figure:
    figure, (axes,) = _figure(1, 1.5)
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing found", ha="center", va="center")
    return figure


def _panels(found: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the axis label and the rows of each panel. The properties with the most rows come first."""
    properties, units = (short_names(found[name].dropna()) for name in ("property", "unit"))
    groups = sorted(found.groupby(["property", "unit"], dropna=False), key=lambda group: -len(group[1]))
    for (what, unit), part in groups[:MOST_PANELS]:
        title = properties.get(what, "(no property)")
        yield (f"{title} ({units[unit]})" if unit in units else title), part


def _most(part: pd.DataFrame, weight: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the names and rows of the series with the greatest sum of `weight`."""
    names = _series_names(part)
    order = part[weight].abs().groupby(names).sum().sort_values(ascending=False, kind="stable").index
    for name in order[:MOST_LINES]:
        yield name, part[names == name]
    if len(order) > MOST_LINES:
        yield f"… {len(order) - MOST_LINES} more not shown", part.iloc[:0]


def _series_names(part: pd.DataFrame) -> pd.Series[str]:
    return part["series"].map(short_names(part["series"], parts=2))


def _chart(part: pd.DataFrame) -> pd.DataFrame:
    """Return differences by place and window, including empty windows without any observation."""
    chart = part.pivot(index="feature", columns="start", values="difference")
    windows = pd.date_range(chart.columns[0], chart.columns[-1], freq=_step(chart.columns))
    return chart.loc[chart.mean(axis=1).sort_values().index[-MOST_BARS:]].reindex(columns=windows)


def _step(starts: pd.Series[pd.Timestamp] | pd.Index[pd.Timestamp]) -> pd.Timedelta:
    """Return the length of the windows: the smallest distance between two starts."""
    steps = pd.Series(sorted(set(starts))).diff().dropna()
    return steps.min() if len(steps) else pd.Timedelta(hours=1)


def _stretches(line: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Split a series into runs of adjacent windows: a line across a gap would suggest values in it."""
    broken = line["start"].diff() > _step(line["start"]) * 1.5
    for _, stretch in line.groupby(broken.cumsum()):
        yield stretch


def _title(title: str, panels: list[tuple[str, pd.DataFrame]]) -> str:
    return f"{title} (of the {MOST_PANELS} properties with the most rows)" if len(panels) == MOST_PANELS else title


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    axes.grid(visible=True, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)


def _dated(figure: Figure, grid: list[Axes]) -> Figure:
    for axes in grid:
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    grid[-1].set_xlabel("UTC")
    return figure
