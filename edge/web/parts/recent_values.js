// The recent values of one observation: chart, period, the same rows as a table, and all of them as CSV.
import { html, useEffect, useSignal } from "../ui.js";
import { connection } from "../model/connection.js";
import { messageOf } from "../model/errors.js";
import { now } from "../model/live.js";
import { request, series } from "../model/gateway.js";
import { formatTime, t } from "../model/text.js";
import { readable, wordOf } from "../model/values.js";
import { announce } from "./announcer.js";

const HOUR = 3600e3;
const PERIODS = { "1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 7 * 24 * HOUR, "30d": 30 * 24 * HOUR };
const POINTS = 400;
const ROWS = 400;  // of the table
const NUMBER = "#double";  // the datatype of all numbers in an answer
const NEAREST = 60e3;  // ms; the shortest period that the buttons choose
const AGAIN = 30e3;  // ms; how often a chart that ends now is drawn again

let loading;  // the chart library, once a page needs it

function chartModule() {
  return (loading ??= import("./chart.js").catch((error) => {
    loading = undefined;
    throw error;
  }));
}

export function RecentValues({ entry }) {
  const period = useSignal("24h");
  const views = useSignal([]);  // {from, to} in milliseconds: each part of the chart that the user chose from the one before
  const state = useSignal({});
  const asked = Math.floor(now.value / AGAIN);
  const zoomed = views.value.at(-1);
  const repeated = zoomed ? 0 : asked;
  useEffect(() => {
    const to = zoomed?.to ?? Date.now(), from = zoomed?.from ?? to - PERIODS[period.value];
    const attempt = state.asked = {};
    Promise.all([chartModule(), series([entry.id], { from: iso(from), to: iso(to), points: POINTS })]).then(
      ([{ Chart }, { series: all }]) => { if (state.asked === attempt) state.value = { Chart, found: newest(all), from, to }; },
      (error) => { if (state.asked === attempt) state.value = error.status === 404 ? { none: true } : { ...state.peek(), error: error.status ? messageOf(error) : t("chart.failed") }; },
    );
  }, [entry.id, period.value, zoomed, repeated, connection.value.state === "live"]);
  const choose = (name) => {
    views.value = [];
    period.value = name;
  };
  const { Chart, found, from, to, none, error } = state.value;
  const show = (chosen) => {
    views.value = chosen;
    const { from: begin, to: end } = chosen.at(-1) ?? { from: Date.now() - PERIODS[period.value], to: Date.now() };
    announce(t("chart.shown", { from: formatTime(begin), to: formatTime(end) }));
  };
  const save = () => download(entry, from, to).catch((failure) => {
    state.value = { ...state.peek(), error: failure.status ? messageOf(failure) : t("chart.failed") };
  });
  return html`<section class="panel wide" aria-label=${t("chart.title")}>
    <div class="bar" role="group" aria-label=${t("chart.period")}>
      ${Object.keys(PERIODS).map((name) => html`<button type="button" aria-pressed=${!zoomed && period.value === name}
        onClick=${() => choose(name)}>${t(`chart.${name}`)}</button>`)}
      <${Steps} views=${views.value} from=${from} to=${to} show=${show} />
      <button type="button" class="right" disabled=${!found} onClick=${save}>${t("chart.csv")}</button>
    </div>
    ${error && html`<p class="problem" role="alert">${error}</p>`}
    ${none && html`<p class="note">${t("chart.none")}</p>`}
    ${Chart && found && html`<${Chart} found=${found} unit=${entry.unit} property=${entry.property} from=${from} to=${to}
      zoom=${(begin, end) => show([...views.value, { from: begin, to: end }])} />
      <${Table} found=${found} entry=${entry} />`}
  </section>`;
}

/** Buttons that change the shown part of the chart, for users who cannot drag over it. */
function Steps({ views, from, to, show }) {
  const length = to - from, half = length / 2;
  const move = (by) => {
    const end = Math.min(to + by, Date.now());
    show([...views.slice(0, -1), { from: end - length, to: end }]);
  };
  const steps = [
    ["in", length >= 2 * NEAREST, () => show([...views, { from: from + half / 2, to: to - half / 2 }])],
    ["earlier", length > 0, () => move(-half)],
    ["later", length > 0 && views.length > 0 && to < Date.now(), () => move(half)],
    ["out", views.length > 0, () => show(views.slice(0, -1))],
  ];
  // A disabled button would lose the focus of the keyboard.
  return steps.map(([name, possible, act]) => html`<button type="button" aria-disabled=${!possible} onClick=${() => possible && act()}>${t(`chart.${name}`)}</button>`);
}

function Table({ found, entry }) {
  const open = useSignal(false);
  const rows = found.rows.slice(-ROWS).reverse();
  const text = (value) => {
    if (value === null) return t("chart.gap");
    if (typeof value === "boolean") return wordOf(value, entry.property);
    return typeof value === "number" ? readable(String(value), entry.unit, NUMBER, entry.property).filter(Boolean).join(" ") : value;
  };
  const ranges = rows.some(({ min }) => min !== undefined);
  return html`<details open=${open.value} onToggle=${(event) => { open.value = event.target.open; }}>
    <summary>${t("chart.table")}</summary>
    ${open.value && html`<div class="scroll" tabindex="0" role="region" aria-label=${t("chart.table")}><table>
      <thead><tr><th scope="col">${t("chart.time")}</th><th scope="col">${t("chart.value")}</th>
        ${ranges && html`<th scope="col">${t("chart.min")}</th><th scope="col">${t("chart.max")}</th>`}</tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.time}><td>${formatTime(Date.parse(row.time))}</td><td dir="auto">${text(row.value)}</td>
        ${ranges && html`<td>${row.min === undefined ? "" : text(row.min)}</td><td>${row.max === undefined ? "" : text(row.max)}</td>`}</tr>`)}</tbody>
    </table></div>`}
  </details>`;
}

/** A value that was a number and became a text has two series: the one with the newest row. */
function newest(all) {
  return [...all].sort((one, other) => Date.parse(other.rows.at(-1)?.time ?? 0) - Date.parse(one.rows.at(-1)?.time ?? 0))[0];
}

function iso(at) {
  return new Date(at).toISOString();
}

// A link cannot send the token, so the page fetches the file itself.
async function download(entry, from, to) {
  const parameters = new URLSearchParams({ observation: entry.id, from: iso(from), to: iso(to), points: "all", format: "csv" });
  const content = await (await request(`/api/series?${parameters}`)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = `${entry.label.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 80)}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60e3);
}
