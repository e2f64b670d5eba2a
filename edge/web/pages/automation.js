// Rules, and delayed updates: those that wait, what became of the others, and new ones.
import { html, useEffect, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { messageOf } from "../model/errors.js";
import { getJson, request } from "../model/gateway.js";
import { now } from "../model/live.js";
import { usePolled } from "../model/polled.js";
import { UNITS } from "../model/rule_draft.js";
import { situations } from "../model/situations.js";
import { ago, formatTime, t } from "../model/text.js";
import { announce } from "../parts/announcer.js";
import { RuleList, Situations } from "../parts/rule_list.js";
import { placeIn, SparqlEditor } from "../parts/sparql_editor.js";

const AGAIN = 2000;  // ms
const MOST = 200;
const OF_RULES = "sepa://rule/";  // the gateway's own
const FIRST = 'DELETE { <urn:example:lamp> <urn:example:state> ?old }\nINSERT { <urn:example:lamp> <urn:example:state> "off" }\nWHERE  { <urn:example:lamp> <urn:example:state> ?old FILTER(?old != "off") }\n';

export function Page() {
  useEffect(() => { document.title = `${t("automation.title")} · sepa-edge`; }, []);
  const allowed = may("update") || may("administer");
  const [found, error, look] = usePolled(async () => (await getJson(`/timers?limit=${MOST}`)).timers, AGAIN, allowed);
  if (!access.value) return html`<h1>${t("automation.title")}</h1>`;
  if (!allowed) return html`<h1>${t("automation.title")}</h1><p class="note">${t("automation.forbidden")}</p>`;
  const all = found.value ?? [], pending = all.filter(({ state }) => state === "pending"), over = all.filter(({ state }) => state !== "pending");
  return html`<h1>${t("automation.title")}</h1>
    ${(may("administer") || situations.value.size > 0) && html`<${Situations} />`}
    ${may("administer") && html`<${RuleList} />`}
    <h2>${t("automation.timers")}</h2>
    <p>${t("automation.text")}</p>
    <p class="problem" role="alert">${error}</p>
    ${may("update") && html`<${Create} created=${look} />`}
    ${found.value && html`<section class="panel wide" id="pending"><h2>${t("automation.pending", { n: pending.length })}</h2>
      ${pending.length ? html`<ul class="list">${pending.map((each) => html`<${Pending} key=${keyOf(each)} timer=${each} changed=${look} />`)}</ul>` : html`<p>${t("automation.none")}</p>`}
    </section>
    <section class="panel wide" id="over"><h2>${t("automation.over")}</h2>
      ${over.length ? html`<ul class="list">${over.map((each) => html`<${Over} key=${keyOf(each)} timer=${each} />`)}</ul>` : html`<p>${t("automation.over.none")}</p>`}
    </section>`}`;
}

function keyOf({ id, client, scheduled }) {
  return `${client ?? ""} ${id} ${scheduled}`;
}

function Pending({ timer: { id, client, at, sparql }, changed }) {
  const problem = useSignal("");
  const cancel = async () => {
    try {
      await request(`/timers/${encodeURIComponent(id)}${client || id.startsWith(OF_RULES) ? `?client=${encodeURIComponent(client ?? "")}` : ""}`, { method: "DELETE" });
      announce(t("automation.cancelled", { id }));
      changed();
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  return html`<li><p><b dir="auto">${id}</b> <${When} at=${at} />${client && html` <small>${client}</small>`}</p>
    <details><summary>${t("automation.sparql")}</summary><pre tabindex="0" dir="ltr">${sparql}</pre></details>
    <button type="button" onClick=${cancel} aria-label=${t("automation.cancel.of", { id })}>${t("automation.cancel")}</button>
    <p class="problem" role="alert">${problem}</p></li>`;
}

function Over({ timer: { id, client, state, finished, added, removed, error_description: reason } }) {
  const text = { done: () => t("console.done", { added, removed }), failed: () => reason }[state]?.() ?? t(`automation.state.${state}.text`);
  return html`<li><p><span class="mark" data-state=${state === "failed" || state === "missed" ? "bad" : "good"}>${t(`automation.state.${state}`)}</span>
    <b dir="auto">${id}</b> <${When} at=${finished} />${client && html` <small>${client}</small>`}</p>
    <p class=${state === "failed" ? "problem" : ""} dir="auto">${text}</p></li>`;
}

function When({ at }) {
  const milliseconds = at / 1000;
  return html`<time title=${formatTime(milliseconds)}>${ago(milliseconds, now.value)}</time>`;
}

function Create({ created }) {
  const text = useSignal(FIRST), problem = useSignal(""), marks = useSignal(undefined), done = useSignal("");
  const kind = useSignal("delay");
  const save = async (event) => {
    event?.preventDefault();
    const { id, amount, unit, moment } = document.getElementById("create").elements;
    problem.value = done.value = "";
    const when = kind.value === "delay"
      ? { delay: `PT${Number(amount.value) * UNITS[unit.value]}S` }
      : { at: new Date(moment.value).toISOString() };
    try {
      const body = new URLSearchParams({ update: text.value, ...when, ...(id.value.trim() && { id: id.value.trim() }) });
      const { scheduled } = await (await request("/update", { method: "POST", body })).json();
      done.value = t(scheduled.replaced ? "automation.replaced" : "automation.created", { id: scheduled.id, time: formatTime(scheduled.at / 1000) });
      marks.value = undefined;
      created();
    } catch (error) {
      marks.value = placeIn(error.message);
      problem.value = error instanceof RangeError ? t("automation.moment.missing") : messageOf(error);
    }
  };
  return html`<details class="panel wide" id="new"><summary>${t("automation.new")}</summary>
    <form id="create" class="rows" onSubmit=${save}>
      <label for="timer-id">${t("automation.id")}</label>
      <input id="timer-id" name="id" maxlength="200" autocomplete="off" aria-describedby="timer-id-help" />
      <p id="timer-id-help">${t("automation.id.help")}</p>
      <fieldset><legend>${t("automation.when")}</legend>
        <label><input type="radio" name="kind" checked=${kind.value === "delay"} onChange=${() => { kind.value = "delay"; }} /> ${t("automation.delay")}</label>
        <input name="amount" type="number" min="0" step="any" defaultValue="30" required=${kind.value === "delay"} disabled=${kind.value !== "delay"} aria-label=${t("automation.amount")} />
        <select name="unit" disabled=${kind.value !== "delay"} aria-label=${t("automation.unit")}>${Object.keys(UNITS).map((unit) => html`<option value=${unit} selected=${unit === "minutes"}>${t(`automation.${unit}`)}</option>`)}</select>
        <label><input type="radio" name="kind" checked=${kind.value === "at"} onChange=${() => { kind.value = "at"; }} /> ${t("automation.at")}</label>
        <input name="moment" type="datetime-local" step="1" required=${kind.value === "at"} disabled=${kind.value !== "at"} aria-label=${t("automation.moment")} />
      </fieldset>
      <${SparqlEditor} text=${text.value} label=${t("console.text.update")} change=${(value) => { text.value = value; }} run=${save} marks=${marks.value} />
      <button type="submit">${t("automation.schedule")}</button>
      <p class="problem" role="alert" dir="auto">${problem}</p><p role="status">${done}</p>
    </form>
  </details>`;
}
