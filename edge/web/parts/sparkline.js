// The last day of a value as a small curve. Without axes: the shape is what it tells.
import { html } from "../ui.js";

const WIDTH = 80, HEIGHT = 24, EDGE = 2;
const DAY = 24 * 3600e3;

export function Sparkline({ rows, now }) {
  const path = pathOf(rows, now);
  return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" aria-hidden="true">${path && html`<path d=${path} />`}</svg>`;
}

function pathOf(rows, now) {
  const numbers = rows.filter(({ value }) => typeof value === "number");
  if (numbers.length < 2) return "";
  const low = Math.min(...numbers.map(({ value }) => value)), high = Math.max(...numbers.map(({ value }) => value));
  const x = (time) => (WIDTH * (1 - Math.min(1, Math.max(0, (now - time) / DAY)))).toFixed(1);
  const y = (value) => (high === low ? HEIGHT / 2 : HEIGHT - EDGE - ((HEIGHT - 2 * EDGE) * (value - low)) / (high - low)).toFixed(1);
  let path = "", pen = "M";
  for (const { time, value } of rows) {
    if (value === null) {
      pen = "M";
    } else {
      path += `${pen}${x(time)} ${y(value)}`;
      pen = "L";
    }
  }
  return path;
}
