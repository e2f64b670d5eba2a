// The rules with their actions, and the situations that they have found.
import { html } from "../ui.js";
import { may } from "../model/access.js";
import { readDocument, writeDocument } from "../model/documents.js";
import { entries, now } from "../model/live.js";
import { usePolled } from "../model/polled.js";
import { rulePath, rules, switched } from "../model/rules.js";
import { situations } from "../model/situations.js";
import { ago, formatTime, t } from "../model/text.js";
import { useAction } from "./action.js";
import { announce } from "./announcer.js";

const AGAIN = 2000;  // ms

export function Situations() {
  const all = [...situations.value].sort(([, one], [, other]) => other.since - one.since);
  return html`<section class="panel wide" id="situations"><h2>${t("rule.situations", { n: all.length })}</h2>
    ${all.length ? html`<ul class="list">${all.map(([iri, { label, since, about }]) => html`<li key=${iri}><p><span class="mark" data-state="bad">${t("rule.active")}</span> <b dir="auto">${label}</b>
      <time title=${formatTime(since)}>${ago(since, now.value)}</time></p>${about && html`<p><${Observation} iri=${about} /></p>`}</li>`)}</ul>` : html`<p>${t("rule.situations.none")}</p>`}
  </section>`;
}

/** An observation with a link to its device. */
export function Observation({ iri }) {
  const entry = entries.get(iri);
  const address = entry?.device ? `#/device/${encodeURIComponent(entry.device)}?value=${encodeURIComponent(iri)}` : `#/value/${encodeURIComponent(iri)}`;
  return entry ? html`<a href=${address} dir="auto">${entry.label}</a>` : html`<code dir="ltr">${iri}</code>`;
}

export function RuleList() {
  const [found, error, look] = usePolled(rules, AGAIN, may("administer"));
  return html`<section class="panel wide" id="rules"><h2>${t("rule.rules")}</h2><p>${t("rule.text")}</p>
    <p class="problem" role="alert">${error}</p>
    ${found.value && html`<ul class="list">${found.value.map((each) => html`<${Rule} key=${each.file} rule=${each} changed=${look} />`)}</ul>`}
    <a class="button" href="#/rule/">${t("rule.new")}</a></section>`;
}

function Rule({ rule: { file, name, label, enabled, fault, waiting, active, begun, failure, last_begin: last }, changed }) {
  const [act, problem] = useAction();
  const turn = () => act(async () => {
    const { text, tag } = await readDocument(rulePath(name));
    await writeDocument(rulePath(name), switched(text, !enabled), tag);
    announce(t(enabled ? "rule.off.done" : "rule.on.done", { label }));
    changed();
  });
  const state = fault ? ["bad", "rule.fault"] : !enabled ? ["wait", "rule.off"] : active ? ["bad", "rule.active"] : waiting ? ["wait", "rule.waiting"] : ["good", "rule.watches"];
  return html`<li><p><span class="mark" data-state=${state[0]}>${t(state[1])}</span> <b dir="auto">${name ? html`<a href=${`#/rule/${encodeURIComponent(name)}`}>${label}</a>` : file}</b>
      ${active > 1 && html` <small>${t("rule.active.n", { n: active })}</small>`}</p>
    <p><small>${begun ? t("rule.begun", { n: begun, time: ago(Date.parse(last), now.value) }) : t("rule.begun.none")}</small></p>
    <p class="problem" dir="auto">${fault ?? failure}</p>
    ${name && !fault && html`<button type="button" aria-label=${`${t(enabled ? "rule.turn.off" : "rule.turn.on")}: ${label}`} onClick=${turn}>${t(enabled ? "rule.turn.off" : "rule.turn.on")}</button>`}
    ${problem}</li>`;
}
