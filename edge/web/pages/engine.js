// Mode and cost of the processing of updates (the management console of the SEPA paper, Figure 14).
import { html, signal, useEffect, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { connection } from "../model/connection.js";
import { limitUse, PHASES, phaseTimes, rates } from "../model/engine_history.js";
import { messageOf } from "../model/errors.js";
import { getJson } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { formatNumber, t } from "../model/text.js";
import { Past, rounded } from "../parts/past.js";
import { Limits, Subscribed } from "../parts/subscribed.js";

const AGAIN = 2000;  // ms
const PERIOD = 300;  // seconds in the charts
const MODES = ["sequential", "parallel"];

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
      <${Chart} id="uses" title=${t("engine.uses")} text=${t("engine.uses.text")} data=${limitUse(past.value)} />
      <${Chart} id="times" title=${t("engine.phases")} text=${t("engine.times.text")} data=${phaseTimes(past.value)} />
      <${Phases} phases=${state.phases} />`}`;
}

function Figures({ state, rates: data }) {
  const last = ({ values }) => (values.length === 0 || values.at(-1) === null ? "–" : rounded(values.at(-1), data.digits, ""));
  const facts = [
    [t("engine.updates"), last(data.lines[0])], [t("engine.notifications"), last(data.lines[1])],
    [t("engine.subscriptions"), formatNumber(state.subscriptions)], [t("engine.spus"), formatNumber(state.spus)],
    [t("engine.waiting"), formatNumber(state.pending_updates)], [t("engine.total"), formatNumber(state.updates)],
  ];
  return html`<section class="panel wide"><h2>${t("engine.now")}</h2>
    <dl class="figures">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    <${Past} data=${data} label=${t("engine.now")} />
  </section>`;
}

function Chart({ id, title, text, data }) {
  return html`<section class="panel wide" id=${id}><h2>${title}</h2><p>${text}</p><${Past} data=${data} label=${title} /></section>`;
}

function Mode({ state, changed }) {
  const problem = useSignal("");
  const choose = async (processing) => {
    problem.value = "";
    try {
      await getJson("/api/engine", { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ processing }) });
      changed();
    } catch (error) {
      problem.value = messageOf(error);
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
  return html`<section class="panel wide"><h2>${t("engine.figures")}</h2><p>${t("engine.phases.text")}</p>
    <div class="scroll" tabindex="0" role="region" aria-label=${t("engine.figures")}><table>
      <thead><tr><th scope="col">${t("engine.phase")}</th>${["mean", "sigma", "min", "max"].map((each) => html`<th scope="col">${t(`engine.${each}`)}</th>`)}</tr></thead>
      <tbody>${[...PHASES, "t_total"].map((name) => html`<tr><th scope="row">${t(`engine.${name}`)}</th>${["mean_ms", "sigma_ms", "min_ms", "max_ms"].map((each) => html`<td>${cell(phases[name]?.[each])}</td>`)}</tr>`)}</tbody>
    </table></div>
  </section>`;
}
