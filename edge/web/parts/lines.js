// Several columns of numbers as lines over one axis.
import uPlot from "uplot";
import { html } from "../ui.js";
import { formatNumber } from "../model/text.js";
import { numberAxis } from "./axis.js";
import { axis as plain, colour, Plot, timeAxis } from "./plot.js";

const COLOURS = ["--accent", "--wait", "--code-variable", "--bad", "--quiet", "--ink"];

/** `data` is {x, timed, unit, lines: [{name, values}]}; x is in seconds if `timed`, `unit` is that of the values if they have one. */
export function Lines({ data }) {
  return html`<${Plot} data=${data} made=${() => [options(data), [data.x, ...data.lines.map(({ values }) => values)]]} />
    <p class="legend">${data.lines.map(({ name }, index) => html`<span><i style=${{ background: `var(${COLOURS[index % COLOURS.length]})` }}></i>${name}</span>`)}</p>`;
}

function options({ timed, x, unit = "", lines }) {
  const axis = plain();
  return {
    cursor: { drag: { x: false, y: false } },
    scales: { y: { range: (_, min, max) => (min === max ? [Math.min(0, min), Math.max(1, max)] : uPlot.rangeNum(min, max, 0.1, true)) }, x: { time: timed, ...(x.length === 1 && { range: () => [x[0] - 1, x[0] + 1] }) } },
    axes: [
      timed ? timeAxis() : { ...axis, values: (_, splits) => splits.map(formatNumber) },
      { ...axis, ...numberAxis(unit) },
    ],
    series: [{}, ...lines.map((_, index) => ({ stroke: colour(COLOURS[index % COLOURS.length]), width: 2, points: { show: x.length < 30 }, spanGaps: true }))],
  };
}
