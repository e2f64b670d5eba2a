// Several columns of numbers as lines over one axis.
import uPlot from "uplot";
import { html, useEffect, useRef } from "../ui.js";
import { formatAxis, formatNumber } from "../model/text.js";

const HEIGHT = 260;
const COLOURS = ["--accent", "--wait", "--code-variable", "--code-string", "--bad"];

/** `data` is {x, timed, lines: [{name, values}]}; x is in seconds if `timed`. */
export function Lines({ data }) {
  const place = useRef();
  useEffect(() => {
    const element = place.current;
    const plot = new uPlot(options(data, element), [data.x, ...data.lines.map(({ values }) => values)], element);
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => plot.redraw(false);
    dark.addEventListener("change", repaint);
    return () => {
      dark.removeEventListener("change", repaint);
      resized.disconnect();
      plot.destroy();
    };
  }, [data]);
  return html`<div class="chart" ref=${place} aria-hidden="true"></div>
    <p class="legend">${data.lines.map(({ name }, index) => html`<span><i style=${{ background: `var(${COLOURS[index % COLOURS.length]})` }}></i>${name}</span>`)}</p>`;
}

function options({ timed, x, lines }, element) {
  const colour = (name) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, min, max) => (min === max ? [Math.min(0, min), Math.max(1, max)] : uPlot.rangeNum(min, max, 0.1, true)) }, x: { time: timed, ...(x.length === 1 && { range: () => [x[0] - 1, x[0] + 1] }) } },
    axes: [
      { ...axis, values: timed ? (_, splits, __, ___, step) => formatAxis(splits, step) : (_, splits) => splits.map(formatNumber) },
      { ...axis, size: 64, values: (_, splits) => splits.map(formatNumber) },
    ],
    series: [{}, ...lines.map((_, index) => ({ stroke: colour(COLOURS[index % COLOURS.length]), width: 2, points: { show: x.length < 30 }, spanGaps: true }))],
  };
}
