// Recent values as a chart: a line, with the range between minimum and maximum behind it. Drag over it to zoom, with a mouse
// or a finger.
import uPlot from "uplot";
import { html } from "../ui.js";
import { wordOf } from "../model/values.js";
import { numberAxis, widthOf } from "./axis.js";
import { axis as plain, colour, Plot, timeAxis } from "./plot.js";

/** `found` is one series of `GET /api/series`, `zoom` is called with the chosen period in milliseconds. */
export function Chart({ found, unit, property, zoom, from, to }) {
  const made = () => [optionsOf(found, unit, property, zoom, [from / 1000, to / 1000]), columnsOf(found, to)];
  return html`<${Plot} data=${found} made=${made} />`;
}

function numberOf(value) {
  return typeof value === "boolean" ? Number(value) : value;
}

function columnsOf({ kind, rows }, to) {
  const states = kind === "number" ? [] : [...new Set(rows.map(({ value }) => value).filter((value) => typeof value === "string"))];
  const y = (value) => (typeof value === "string" ? states.indexOf(value) : numberOf(value));
  const times = rows.map(({ time }) => Date.parse(time) / 1000);
  const columns = [times, rows.map(({ value, mean }) => y(mean ?? value))];
  if (kind === "number") columns.push(rows.map(({ value, max }) => max ?? value), rows.map(({ value, min }) => min ?? value));
  // The last value is valid until now.
  const last = rows.at(-1);
  if (last && last.value !== null && to / 1000 > times.at(-1)) {
    times.push(Math.min(to, Date.now()) / 1000);
    columns.slice(1).forEach((column) => column.push(column.at(-1)));
  }
  return columns;
}

function optionsOf({ kind, rows }, unit, property, zoom, period) {
  const axis = plain();
  const states = [...new Set(rows.map(({ value }) => value).filter((value) => typeof value === "string"))];
  const words = { boolean: [wordOf(false, property), wordOf(true, property)], text: states }[kind === "number" || kind === "boolean" ? kind : "text"];
  const number = kind === "number";
  const stepped = uPlot.paths.stepped({ align: 1 });
  const line = { stroke: colour("--accent"), width: 2, points: { show: rows.length < 2 }, spanGaps: false, ...(!number && { paths: stepped }) };
  const edge = { stroke: "transparent", points: { show: false }, spanGaps: false };
  return {
    cursor: { drag: { x: true, y: false, setScale: false } },
    scales: {
      x: { range: () => period },
      y: number ? {} : { range: () => [-0.2, Math.max(1, (words?.length ?? 2) - 1) + 0.2] },
    },
    axes: [
      timeAxis(),
      {
        ...axis,
        ...(number
          ? numberAxis(unit)
          : { size: widthOf, splits: () => (words ?? []).map((_, index) => index), values: (_, splits) => splits.map((index) => shorten(words[index] ?? "")) }),
      },
    ],
    series: number ? [{}, line, edge, edge] : [{}, line],
    ...(number && { bands: [{ series: [2, 3], fill: colour("--band") }] }),
    hooks: {
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
