// The last day of a value as a small picture: a curve of numbers, a band of the times in which a state was true, coloured
// bands of named states. Without axes: the shape is what it tells.
import { html } from "../ui.js";
import { colourOf, periods, statesOf } from "../model/states.js";

const WIDTH = 80, HEIGHT = 24, EDGE = 2, BAND = 10;
const DAY = 24 * 3600e3;

/** `step` is the interval of the rows in milliseconds, or null. */
export function Sparkline({ kind, rows, step, now }) {
  const x = (time) => WIDTH * (1 - Math.min(1, Math.max(0, (now - time) / DAY)));
  if (kind === "boolean" || kind === "text") return html`<${Bands} rows=${rows} step=${step} x=${x} now=${now} />`;
  const path = pathOf(rows, x);
  return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true">${path && html`<path d=${path} />`}</svg>`;
}

function Bands({ rows, step, x, now }) {
  const states = statesOf(rows);
  const paths = states.map(() => "");
  for (const { from, to, value, share } of periods(rows, now, step)) {
    const gap = typeof value === "string" ? 1 : 0;  // two names can have one colour
    const left = x(from), width = Math.max(1, x(to) - left - gap);  // a short one is still seen
    // False is a line, so that the band is what is true.
    const height = value === false ? EDGE : EDGE + (BAND - EDGE) * share;
    paths[states.indexOf(value)] += `M${left.toFixed(1)} ${((HEIGHT + BAND) / 2 - height).toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`;
  }
  return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true">${paths.map((path, index) => html`<path
    d=${path} style=${{ fill: `var(${colourOf(states[index])})`, stroke: "none" }} />`)}</svg>`;
}

function pathOf(rows, x) {
  const numbers = rows.filter(({ value }) => typeof value === "number");
  if (numbers.length < 2) return "";
  const low = Math.min(...numbers.map(({ value }) => value)), high = Math.max(...numbers.map(({ value }) => value));
  const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - low)) / (high - low)).toFixed(1);
  let path = "", pen = "M";
  for (const { time, value } of rows) {
    if (value === null) {
      pen = "M";
    } else {
      path += `${pen}${x(time).toFixed(1)} ${y(value)}`;
      pen = "L";
    }
  }
  return path;
}
