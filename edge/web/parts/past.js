// Lines over the last minutes, with their table for screen readers.
import { html } from "../ui.js";
import { formatNumber, formatTime, t } from "../model/text.js";
import { Fold } from "./fold.js";
import { Lines } from "./lines.js";

/** `data` is that of model/engine_history.js, `label` the name of the chart for screen readers. */
export function Past({ data, label }) {
  return data.x.length > 1 && html`<${Lines} data=${data} /><${Fold} text=${t("chart.table")} label=${label}>${() => html`<${Table} data=${data} label=${label} />`}<//>`;
}

/** What the chart shows, the newest first. */
function Table({ data: { x, unit, digits, lines }, label }) {
  const rows = x.map((at, index) => ({ at, values: lines.map(({ values }) => values[index]) })).reverse();
  const name = label ? `${t("chart.table")}: ${label}` : t("chart.table");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${name}><table>
    <thead><tr><th scope="col">${t("chart.time")}</th>${lines.map(({ name }) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ at, values }) => html`<tr key=${at}><td>${formatTime(at * 1000)}</td>${values.map((value) => html`<td>${rounded(value, digits, unit)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** A value of the lines as text; null is a gap. */
export function rounded(value, digits, unit) {
  return value === null ? t("chart.gap") : `${formatNumber(Math.round(value * 10 ** digits) / 10 ** digits)} ${unit}`.trim();
}
