// A dry run of a rule with the recent values.
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
export function DryRun({ name, text, tested = () => {} }) {
  const hours = useSignal(24), found = useSignal(undefined), busy = useSignal(false);
  const [act, problem] = useAction({ alone: true });
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
  return html`<section class="panel wide" id="dry-run"><h2>${t("dryrun.title")}</h2><p>${t("dryrun.text")}</p>
    <div class="bar"><label class="choice">${t("dryrun.period")} <select onChange=${(event) => { hours.value = Number(event.target.value); }}>
      ${PERIODS.map((each) => html`<option value=${each} selected=${each === hours.value}>${each < DAY * 2 ? t("dryrun.hours", { n: each }) : t("dryrun.days", { n: each / DAY })}</option>`)}</select></label>
      <button type="button" id="try" aria-disabled=${busy.value} onClick=${attempt}>${t("dryrun.do")}</button></div>
    ${problem}
    <div aria-live="polite" aria-busy=${busy.value}>
      ${busy.value && html`<p>${t("dryrun.busy")}</p>`}
      ${answer?.faults.map(({ text: fault }) => html`<p class="problem" dir="auto">${fault}</p>`)}
      ${answer?.failure && html`<p class="problem" dir="auto">${t("dryrun.failed", { n: answer.failures, reason: answer.failure })}</p>`}
      ${answer?.occurrences && html`<p id="verdict"><b>${answer.values ? t("dryrun.found", { n: answer.count }) : t("dryrun.no.values")}</b> <small>${t("dryrun.values", { n: answer.values })}</small></p>
        ${answer.occurrences.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${t("dryrun.title")}><table><thead><tr><th>${t("dryrun.began")}</th><th>${t("dryrun.ended")}</th><th>${t("dryrun.lasted")}</th><th>${t("dryrun.what")}</th></tr></thead>
          <tbody>${answer.occurrences.slice(-SHOWN).reverse().map((each) => html`<${Occurrence} key=${`${each.began} ${JSON.stringify(each.solution)}`} occurrence=${each} end=${answer.end} />`)}</tbody></table></div>`}`}
    </div></section>`;
}

function Occurrence({ occurrence: { began, ended, solution }, end }) {
  const { observation, value, ...rest } = solution;
  const entry = entries.get(observation);
  const seconds = ((ended ?? end) - began) / 1e6;
  return html`<tr><td>${formatTime(began / 1000)}</td><td>${ended === null ? t("dryrun.still") : formatTime(ended / 1000)}</td>
    <td>${seconds < 120 ? `${Math.round(seconds)} s` : duration(seconds)}</td>
    <td>${observation && html`<${Observation} iri=${observation} />`} ${value !== undefined && (entry ? readable(value, entry.unit, entry.reading.peek().datatype, entry.property).filter(Boolean).join(" ") : value)}
      ${Object.entries(rest).filter(([name]) => name !== "time").map(([name, text]) => html` <span dir="auto">${name}: ${text}</span>`)}</td></tr>`;
}
