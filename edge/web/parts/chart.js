// Recent values as a chart: numbers as a line, with the range between minimum and maximum behind it; states as bands, each
// state in its own row. Drag over it to zoom, with a mouse or a finger.
import uPlot from "uplot";
import { html } from "../ui.js";
import { colourOf, periods, statesOf } from "../model/states.js";
import { wordOf } from "../model/values.js";
import { numberAxis, widthOf } from "./axis.js";
import { axis as plain, colour, Plot, timeAxis } from "./plot.js";

/** `found` is one series of `GET /api/series`, `zoom` is called with the chosen period in milliseconds. */
export function Chart({ found, unit, property, zoom, from, to }) {
  const made = () => [optionsOf(found, unit, property, zoom, [from / 1000, to / 1000]), columnsOf(found, to)];
  return html`<${Plot} data=${found} made=${made} />`;
}

function columnsOf({ kind, rows }, to) {
  const times = rows.map(({ time }) => Date.parse(time) / 1000);
  const y = kind === "number" ? ({ value, mean }) => mean ?? value : ({ value }) => (value === null ? null : 0);  // bands are drawn by `bandsOf`
  const columns = [times, rows.map(y)];
  if (kind === "number") columns.push(rows.map(({ value, max }) => max ?? value), rows.map(({ value, min }) => min ?? value));
  // The last value is valid until now.
  const last = rows.at(-1);
  if (last && last.value !== null && to / 1000 > times.at(-1)) {
    times.push(Math.min(to, Date.now()) / 1000);
    columns.slice(1).forEach((column) => column.push(column.at(-1)));
  }
  return columns;
}

function optionsOf({ kind, rows, step }, unit, property, zoom, period) {
  const axis = plain();
  const number = kind === "number";
  const line = { stroke: colour("--accent"), width: 2, points: { show: rows.length < 2 }, spanGaps: false };
  const edge = { stroke: "transparent", points: { show: false }, spanGaps: false };
  const { words, draw } = number ? {} : bandsOf(rows, step && step * 1000, property, period);
  return {
    cursor: { drag: { x: true, y: false, setScale: false }, points: { show: number } },
    scales: {
      x: { range: () => period },
      y: number ? {} : { range: () => [-0.6, Math.max(1, words.length - 1) + 0.6] },
    },
    axes: [
      timeAxis(),
      {
        ...axis,
        ...(number ? numberAxis(unit) : { size: widthOf, splits: () => words.map((_, index) => index), values: (_, splits) => splits.map((index) => shorten(words[index])) }),
      },
    ],
    series: number ? [{}, line, edge, edge] : [{}, edge],
    ...(number && { bands: [{ series: [2, 3], fill: colour("--band") }] }),
    hooks: {
      ...(draw && { draw: [draw] }),
      ready: [selectByTouch],
      setSelect: [(plot) => {
        const { left, width } = plot.select;
        if (width < 5) return;
        const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        zoom(from * 1000, to * 1000);
      }],
    },
  };
}

const ROWS = 12;  // of states; more would be too narrow to read
const THICK = 0.5, THIN = 0.1;  // of a row

/** The names of the rows, and what draws the bands. The last row has all states for which there is no room. */
function bandsOf(rows, step, property, period) {
  const states = statesOf(rows), shown = states.slice(0, states.length > ROWS ? ROWS - 1 : ROWS);
  const words = shown.map((state) => (typeof state === "boolean" ? wordOf(state, property) : state));
  if (shown.length < states.length) words.push("…");
  const places = new Map(states.map((state, index) => [state, Math.min(index, words.length - 1)]));
  const end = Math.min(period[1] * 1000, Date.now());
  const all = periods(rows.map((row) => ({ ...row, time: Date.parse(row.time) })), end, step);
  const draw = ({ ctx, bbox, valToPos }) => {
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const paint = (from, to, value, thick) => {
      const row = places.get(value);
      const [left, right] = [from, to].map((at) => valToPos(at / 1000, "x", true));
      const [top, bottom] = [row + thick / 2, row - thick / 2].map((at) => valToPos(at, "y", true));
      const gap = typeof value === "string" ? devicePixelRatio : 0;  // two names can have one colour
      ctx.fillStyle = colour(colourOf(value))();
      ctx.fillRect(left, top, Math.max(devicePixelRatio, right - left - gap), bottom - top);  // a short one is still seen
    };
    for (const { from, to, value, share } of all) {
      paint(from, to, value, value === false ? THIN : THIN + (THICK - THIN) * share);
      if (share < 1) paint(from, to, false, THIN);
    }
    ctx.restore();
  };
  return { words, draw };
}

/** uPlot follows a mouse only. A finger selects with a horizontal drag; a vertical one scrolls the page. */
function selectByTouch(plot) {
  const area = plot.over;
  let begin;
  const at = (event) => Math.min(Math.max(event.clientX - area.getBoundingClientRect().left, 0), area.clientWidth);
  const select = (event, done) => {
    const [left, right] = [begin, at(event)].sort((one, other) => one - other);
    plot.setSelect({ left, width: right - left, top: 0, height: area.clientHeight }, done);
  };
  area.style.touchAction = "pan-y pinch-zoom";
  area.addEventListener("pointerdown", (event) => { begin = event.pointerType === "mouse" || !event.isPrimary ? undefined : at(event); });
  area.addEventListener("pointermove", (event) => { if (begin !== undefined) select(event, false); });
  area.addEventListener("pointerup", (event) => {
    if (begin !== undefined) select(event, true);
    begin = undefined;
  });
  // The browser takes the gesture: it scrolls, or enlarges the page.
  area.addEventListener("pointercancel", () => {
    begin = undefined;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  });
}

function shorten(text) {
  return text.length > 12 ? `${text.slice(0, 11)}…` : text;
}
