// Health, problems, and the figures behind them.
import { html, useEffect, useSignal } from "../ui.js";
import { may } from "../model/access.js";
import { messageOf } from "../model/errors.js";
import { request } from "../model/gateway.js";
import { badValues, health, lookNow, unmapped } from "../model/health.js";
import { duration, formatBytes, formatNumber, formatTime, has, t } from "../model/text.js";
import { English, FileFault } from "../parts/english.js";
import { Maintenance } from "../parts/maintenance.js";
import { Sources } from "../parts/source_list.js";
import { Strip } from "../parts/strip.js";

export function Page() {
  useEffect(() => {
    document.title = `${t("system.title")} · sepa-edge`;
    lookNow();
  }, []);
  const state = health.value;
  return html`<h1>${t("system.title")}</h1>
    <${Strip} />
    ${state && !state.fault && html`<${Gateway} state=${state} /><${Sources} state=${state} />`}
    ${unmapped.value && html`<${Topics} topics=${unmapped.value} />`}
    ${badValues.value && html`<${BadValues} values=${badValues.value} />`}
    ${may("administer") && html`<${Maintenance} />`}
    <${Resources} />`;
}

function Gateway({ state }) {
  const last = state.last_restart;
  const facts = [
    [t("system.version"), state.version],
    state.uptime_seconds !== undefined && [t("system.uptime"), duration(state.uptime_seconds)],
    last?.reason && [t("system.start", { n: last.starts }), startText(last)],
    state.pending_updates !== undefined && [t("system.updates"), formatNumber(state.pending_updates)],
    state.pending_timers !== undefined && [t("system.timers"), formatNumber(state.pending_timers)],
    state.recent?.bytes !== undefined && [t("system.recent"), formatBytes(state.recent.bytes)],
    state.outbox?.state && [t("system.outbox"), `${t(`shipping.${state.outbox.state}`)} ${state.outbox.reason}`.trim()],
  ].filter(Boolean);
  const mappings = Array.isArray(state.mapping_faults) ? state.mapping_faults : [];
  const faults = [...Object.entries(state.query_faults ?? {}).map((each) => each.join(": ")), ...(state.announce_fault ? [{ title: t("strip.announce"), reason: state.announce_fault }] : [])];
  return html`<section class="panel wide"><h2>${t("system.gateway")}</h2>
    <dl>${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    ${mappings.map((fault) => html`<${FileFault} ...${fault} />`)}
    ${faults.map((fault) => html`<p class="problem" dir="auto">${fault.title && `${fault.title}: `}<${English}>${fault.reason ?? fault}<//></p>`)}
  </section>`;
}

/** Why the gateway was started. A newer gateway may have reasons that the catalogue does not know. */
function startText({ reason, detail, upgraded_from: upgraded, text }) {
  if (!has(`start.${reason}`)) return text;
  return [detail ? `${t(`start.${reason}`)} (${detail})` : t(`start.${reason}`), upgraded && t("start.upgraded", { version: upgraded })].filter(Boolean).join("; ");
}

function Topics({ topics }) {
  return html`<section class="panel wide"><h2>${t("system.unmapped")}</h2>
    <p>${topics.length ? t("system.unmapped.text") : t("system.unmapped.none")}</p>
    <${Messages} title=${t("system.unmapped")} columns=${["topic", "count", "last_payload", "last_seen"]} rows=${topics} />
  </section>`;
}

function BadValues({ values }) {
  return html`<section class="panel wide"><h2>${t("system.bad")}</h2>
    <p>${values.length ? t("system.bad.text") : t("system.bad.none")}</p>
    <${Messages} title=${t("system.bad")} columns=${["topic", "reason", "mapping", "count", "last_payload", "last_seen"]} rows=${values} />
  </section>`;
}

const CELLS = {
  count: (number) => formatNumber(number),
  last_payload: (text) => html`<code dir="ltr">${text}</code>`,
  reason: (text) => html`<${English}>${text}<//>`,
  last_seen: (time) => formatTime(Date.parse(time)),
};

function Messages({ title, columns, rows }) {
  if (!rows.length) return null;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${title}><table>
    <thead><tr>${columns.map((name) => html`<th scope="col">${t(`column.${name}`)}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${columns.map((name) => html`<td dir="auto">${(CELLS[name] ?? String)(row[name])}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

const RESOURCES = ["/health", "/metrics", "/api/endpoints", "/api/unmapped", "/api/bad-values", "/api/openapi.json"];

// A link cannot send the token, so the page fetches guarded paths itself and shows the answers below the links.
function Resources() {
  const answer = useSignal("");
  const view = async (event) => {
    event.preventDefault();
    try {
      answer.value = await (await request(event.target.getAttribute("href"))).text();
    } catch (error) {
      answer.value = messageOf(error);
    }
  };
  return html`<section class="panel wide"><h2>${t("system.resources")}</h2>
    <p class="links">${RESOURCES.map((path) => html`<a href=${path} onClick=${view}>${path}</a>`)}</p>
    ${answer.value && html`<pre id="view" tabindex="0" dir="ltr">${answer}</pre>`}
  </section>`;
}
