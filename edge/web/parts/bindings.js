// Rows of a SPARQL result as a table.
import { html } from "../ui.js";
import { t } from "../model/text.js";
import { Term } from "./term.js";

const MOST = 1000;

/** `rows` are {row, key, count, fresh}, or with `key` undefined plain ones. */
export function Bindings({ columns, rows, label }) {
  const shown = rows.slice(0, MOST);
  const repeated = shown.some(({ count }) => count > 1);
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map((name) => html`<th scope="col">${name}</th>`)}${repeated && html`<th scope="col">${t("console.times")}</th>`}</tr></thead>
    <tbody>${shown.map(({ key, row, count, fresh }, index) => html`<tr key=${key ?? index} class=${fresh ? "changed" : ""}>
      ${columns.map((name) => html`<td><${Term} term=${row[name]} /></td>`)}${repeated && html`<td>${count}</td>`}</tr>`)}</tbody>
  </table></div>
  ${rows.length > MOST && html`<p>${t("console.more", { shown: MOST, n: rows.length })}</p>`}`;
}
