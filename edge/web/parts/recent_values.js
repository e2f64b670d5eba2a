// The recent values of one observation: chart, period, the same rows as a table, and all of them as CSV.
import { html, useEffect, useSignal } from "../ui.js";
import { connection } from "../model/connection.js";
import { now } from "../model/live.js";
import { request, series } from "../model/gateway.js";
import { formatNumber, formatTime, t } from "../model/text.js";
import { wordOf } from "../model/values.js";

const HOUR = 3600e3;
const PERIODS = { "1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR, "7d": 7 * 24 * HOUR, "30d": 30 * 24 * HOUR };
const POINTS = 400;
const ROWS = 400;  // of the table
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
  const zoomed = useSignal(undefined);  // {from, to} in milliseconds
  const state = useSignal({});
  const asked = Math.floor(now.value / AGAIN);
  const repeated = zoomed.value ? 0 : asked;
  useEffect(() => {
    const to = zoomed.value?.to ?? Date.now(), from = zoomed.value?.from ?? to - PERIODS[period.value];
    const attempt = state.asked = {};
    Promise.all([chartModule(), series([entry.id], { from: iso(from), to: iso(to), points: POINTS })]).then(
      ([{ Chart }, { series: all }]) => { if (state.asked === attempt) state.value = { Chart, found: newest(all), from, to }; },
      (error) => { if (state.asked === attempt) state.value = error.status === 404 ? { none: true } : { ...state.peek(), error: error.status ? error.message : t("chart.failed") }; },
    );
  }, [entry.id, period.value, zoomed.value, repeated, connection.value.state === "live"]);
  const choose = (name) => {
    zoomed.value = undefined;
    period.value = name;
  };
  const { Chart, found, from, to, none, error } = state.value;
  const save = () => download(entry, from, to).catch((failure) => {
    state.value = { ...state.peek(), error: failure.status ? failure.message : t("chart.failed") };
  });
  return html`<section class="panel wide" aria-label=${t("chart.title")}>
    <div class="bar" role="group" aria-label=${t("chart.period")}>
      ${Object.keys(PERIODS).map((name) => html`<button type="button" aria-pressed=${!zoomed.value && period.value === name}
        onClick=${() => choose(name)}>${t(`chart.${name}`)}</button>`)}
      ${zoomed.value && html`<button type="button" onClick=${() => { zoomed.value = undefined; }}>${t("chart.whole")}</button>`}
      <button type="button" class="right" disabled=${!found} onClick=${save}>${t("chart.csv")}</button>
    </div>
    ${error && html`<p class="problem" role="alert">${error}</p>`}
    ${none && html`<p class="note">${t("chart.none")}</p>`}
    ${Chart && found && html`<${Chart} found=${found} unit=${entry.unit} property=${entry.property} from=${from} to=${to}
      zoom=${(begin, end) => { zoomed.value = { from: begin, to: end }; }} />
      <${Table} found=${found} entry=${entry} />`}
  </section>`;
}

function Table({ found, entry }) {
  const open = useSignal(false);
  const rows = found.rows.slice(-ROWS).reverse();
  const text = (value) => {
    if (value === null) return t("chart.gap");
    if (typeof value === "boolean") return wordOf(value, entry.property);
    return typeof value === "number" ? `${formatNumber(value)} ${entry.unit}`.trim() : value;
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
