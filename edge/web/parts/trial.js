// A trial of a rule with the recent values.
import { html, useSignal } from "../ui.js";
import { entries } from "../model/live.js";
import { tryRule } from "../model/rules.js";
import { duration, formatTime, t } from "../model/text.js";
import { readable } from "../model/values.js";
import { useAction } from "./action.js";
import { Observation } from "./rule_list.js";

const DAY = 24;  // hours
const PERIODS = [1, DAY, DAY * 7, DAY * 30];
const SHOWN = 200;

/** `tested` gets each answer, for the marks of an editor. */
export function Trial({ name, text, tested = () => {} }) {
  const hours = useSignal(24), found = useSignal(undefined), busy = useSignal(false);
  const [act, problem] = useAction();
  const attempt = () => act(async () => {
    busy.value = true;
    found.value = undefined;
    try {
      const answer = await tryRule(name, text, hours.value);
      found.value = answer;
      tested(answer);
    } finally {
      busy.value = false;
    }
  });
  const answer = found.value;
  return html`<section class="panel wide" id="trial"><h2>${t("trial.title")}</h2><p>${t("trial.text")}</p>
    <div class="bar"><label class="choice">${t("trial.period")} <select onChange=${(event) => { hours.value = Number(event.target.value); }}>
      ${PERIODS.map((each) => html`<option value=${each} selected=${each === hours.value}>${each < DAY * 2 ? t("trial.hours", { n: each }) : t("trial.days", { n: each / DAY })}</option>`)}</select></label>
      <button type="button" id="try" disabled=${busy.value} onClick=${attempt}>${t("trial.do")}</button></div>
    ${problem}
    <div aria-live="polite" aria-busy=${busy.value}>
      ${busy.value && html`<p>${t("trial.busy")}</p>`}
      ${answer?.faults.map(({ text: fault }) => html`<p class="problem" dir="auto">${fault}</p>`)}
      ${answer?.failure && html`<p class="problem" dir="auto">${t("trial.failed", { n: answer.failures, reason: answer.failure })}</p>`}
      ${answer?.occurrences && html`<p id="verdict"><b>${answer.values ? t("trial.found", { n: answer.count }) : t("trial.no.values")}</b> <small>${t("trial.values", { n: answer.values })}</small></p>
        ${answer.occurrences.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${t("trial.title")}><table><thead><tr><th>${t("trial.began")}</th><th>${t("trial.ended")}</th><th>${t("trial.lasted")}</th><th>${t("trial.what")}</th></tr></thead>
          <tbody>${answer.occurrences.slice(-SHOWN).reverse().map((each) => html`<${Occurrence} key=${`${each.began} ${JSON.stringify(each.solution)}`} occurrence=${each} end=${answer.end} />`)}</tbody></table></div>`}`}
    </div></section>`;
}

function Occurrence({ occurrence: { began, ended, solution }, end }) {
  const { observation, value, ...rest } = solution;
  const entry = entries.get(observation);
  const seconds = ((ended ?? end) - began) / 1e6;
  return html`<tr><td>${formatTime(began / 1000)}</td><td>${ended === null ? t("trial.still") : formatTime(ended / 1000)}</td>
    <td>${seconds < 120 ? `${Math.round(seconds)} s` : duration(seconds)}</td>
    <td>${observation && html`<${Observation} iri=${observation} />`} ${value !== undefined && (entry ? readable(value, entry.unit, entry.reading.peek().datatype, entry.property).filter(Boolean).join(" ") : value)}
      ${Object.entries(rest).filter(([name]) => name !== "time").map(([name, text]) => html` <span dir="auto">${name}: ${text}</span>`)}</td></tr>`;
}
