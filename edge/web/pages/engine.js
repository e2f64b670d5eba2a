// How the engine processes updates, and what they cost (the management console of the SEPA paper, Figure 14).
import { html, signal, useEffect, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { connection } from "../model/connection.js";
import { getJson } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { formatNumber, formatTime, t } from "../model/text.js";
import { Fold } from "../parts/fold.js";
import { Lines } from "../parts/lines.js";
import { Limits, Subscribed } from "../parts/subscribed.js";

const AGAIN = 2000;  // ms
const PERIOD = 300;  // seconds in the chart
const MODES = ["sequential", "parallel"];
const PHASES = ["t_update", "t_lutt", "t_booster", "t_notify", "t_total"];

/** Answers of the last five minutes, with their times in seconds. They stay while the application is open. */
const past = signal([]);

// Another user may come, who may not see them.
connection.subscribe(({ state }) => { if (state === "locked") past.value = []; });

export function Page() {
  useEffect(() => { document.title = `${t("engine.title")} · sepa-edge`; }, []);
  const [found, error, look] = usePolled(() => getJson("/api/engine"), AGAIN, may("administer"));
  useEffect(() => {
    const at = Date.now() / 1000;
    if (found.value) past.value = [...past.peek().filter((each) => each.at > at - PERIOD), { at, ...found.value }];
  }, [found.value]);
  if (!access.value) return html`<h1>${t("engine.title")}</h1>`;
  if (!may("administer")) return html`<h1>${t("engine.title")}</h1><p class="note">${t("engine.forbidden")}</p>`;
  const state = found.value;
  return html`<h1>${t("engine.title")}</h1>
    <p class="problem" role="alert">${error}</p>
    ${state && html`<${Figures} state=${state} rates=${rates(past.value)} />
      <${Mode} state=${state} changed=${look} />
      <${Subscribed} />
      <${Limits} limits=${state.limits} />
      <${Phases} phases=${state.phases} />`}`;
}

/** Updates and notifications a second between each two answers. A restart of the gateway begins again. */
function rates(past) {
  const points = past.slice(1).map((each, index) => {
    const before = past[index], seconds = each.at - before.at;
    const rate = (name) => (each[name] < before[name] ? null : (each[name] - before[name]) / seconds);
    return { at: each.at, updates: rate("updates"), notifications: rate("notifications"), waiting: each.pending_updates };
  });
  const line = (name) => ({ name: t(`engine.${name}`), values: points.map((point) => point[name]) });
  return { timed: true, x: points.map(({ at }) => at), lines: ["updates", "notifications", "waiting"].map(line) };
}

function Figures({ state, rates: data }) {
  const last = ({ values }) => (values.at(-1) === undefined || values.at(-1) === null ? "–" : formatNumber(Math.round(values.at(-1) * 10) / 10));
  const facts = [
    [t("engine.updates"), last(data.lines[0])], [t("engine.notifications"), last(data.lines[1])],
    [t("engine.subscriptions"), formatNumber(state.subscriptions)], [t("engine.spus"), formatNumber(state.spus)],
    [t("engine.waiting"), formatNumber(state.pending_updates)], [t("engine.total"), formatNumber(state.updates)],
  ];
  return html`<section class="panel wide"><h2>${t("engine.now")}</h2>
    <dl class="figures">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${data.x.length > 1 && html`<${Lines} data=${data} />
      <${Fold} text=${t("chart.table")} label="">${() => html`<${Rates} data=${data} />`}<//>`}
  </section>`;
}

/** What the chart shows, the newest first. */
function Rates({ data: { x, lines } }) {
  const cell = (value) => (value === null ? t("chart.gap") : formatNumber(Math.round(value * 10) / 10));
  const rows = x.map((at, index) => ({ at, values: lines.map(({ values }) => values[index]) })).reverse();
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t("chart.table")}><table>
    <thead><tr><th scope="col">${t("chart.time")}</th>${lines.map(({ name }) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ at, values }) => html`<tr key=${at}><td>${formatTime(at * 1000)}</td>${values.map((value) => html`<td>${cell(value)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function Mode({ state, changed }) {
  const problem = useSignal("");
  const choose = async (processing) => {
    problem.value = "";
    try {
      await getJson("/api/engine", { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ processing }) });
      changed();
    } catch (error) {
      problem.value = error.message;
    }
  };
  const current = state.processing;
  return html`<section class="panel wide" id="mode"><h2>${t("engine.mode")}</h2>
    <div class="bar" role="group" aria-label=${t("engine.mode")}>${MODES.map((mode) => html`<button type="button" aria-pressed=${mode === current} onClick=${() => choose(mode)}>${t(`engine.${mode}`)}</button>`)}</div>
    <p>${t(`engine.${current}.text`, { n: state.spu_workers })} ${t("engine.mode.until")}</p>
    <p class="problem" role="alert">${problem}</p>
  </section>`;
}

function Phases({ phases }) {
  const cell = (number) => (number === undefined ? "" : formatNumber(number));
  return html`<section class="panel wide"><h2>${t("engine.phases")}</h2><p>${t("engine.phases.text")}</p>
    <div class="scroll" tabindex="0" role="region" aria-label=${t("engine.phases")}><table>
      <thead><tr><th scope="col">${t("engine.phase")}</th>${["mean", "sigma", "min", "max"].map((each) => html`<th scope="col">${t(`engine.${each}`)}</th>`)}</tr></thead>
      <tbody>${PHASES.map((name) => html`<tr><th scope="row">${t(`engine.${name}`)}</th>${["mean_ms", "sigma_ms", "min_ms", "max_ms"].map((each) => html`<td>${cell(phases[name]?.[each])}</td>`)}</tr>`)}</tbody>
    </table></div>
  </section>`;
}
