// Queries, updates and live subscriptions, with their results and their cost.
import { html, signal, useEffect, useRef, useSignal } from "../ui.js";
import { access, may, mayEverything } from "../model/access.js";
import { connection } from "../model/connection.js";
import { messageOf } from "../model/errors.js";
import { getJson, request, SessionEnded } from "../model/gateway.js";
import { LiveQuery } from "../model/live_query.js";
import { ask, columnsOfNumbers } from "../model/query_result.js";
import { formatNumber, formatTime, t } from "../model/text.js";
import { announce } from "../parts/announcer.js";
import { Bindings } from "../parts/bindings.js";
import { Explanation } from "../parts/explanation.js";
import { Fold } from "../parts/fold.js";
import { Lines } from "../parts/lines.js";
import { Profile } from "../parts/profile.js";
import { Publication } from "../parts/publication.js";
import { placeIn, SparqlEditor } from "../parts/sparql_editor.js";

const KEY = "sepa-edge.console";
const LONGEST = 100_000;  // characters that the browser keeps of a text
const TABS = ["query", "update", "subscribe"];
const VALUES = `PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>

SELECT ?observation ?value
WHERE {
  ?observation sosa:hasResult/qudt:numericValue ?value
}
`;
const FIRST = { query: VALUES, subscribe: VALUES, update: 'INSERT DATA {\n  <urn:example:lamp> <urn:example:state> "on"\n}\n' };

/** The texts of the tabs stay until the user clears the data of the browser. */
const texts = signal({ ...FIRST, ...kept() });
const chosen = signal("query");
/** What the last run of each tab gave: {result}, {done}, {live} or {problem, marks}. */
const outcomes = signal({});
const running = signal(undefined);

function kept() {
  try { return JSON.parse(localStorage.getItem(KEY)); } catch { return {}; }
}

function write(text) {
  texts.value = { ...texts.peek(), [chosen.peek()]: text };
  const short = Object.entries(texts.peek()).filter(([, each]) => each.length <= LONGEST);
  try { localStorage.setItem(KEY, JSON.stringify(Object.fromEntries(short))); } catch { /* the browser keeps nothing */ }
}

function put(tab, outcome) {
  outcomes.peek()[tab]?.live?.close();
  outcomes.value = { ...outcomes.peek(), [tab]: outcome };
}

// Another user may come, who may not see the results of this one.
connection.subscribe(({ state }) => {
  if (state !== "locked") return;
  running.peek()?.stop.abort();
  TABS.forEach((tab) => put(tab, {}));
});

async function run(tab) {
  if (running.peek()) return;
  const sparql = texts.peek()[tab];
  if (tab === "subscribe") return put(tab, { live: new LiveQuery(sparql) });
  const stop = new AbortController();
  running.value = { tab, stop };
  try {
    if (tab === "query") {
      const result = await ask(sparql, stop.signal);
      put(tab, { result });
      announce(summary(result));
    } else {
      const began = performance.now();
      const done = await (await request("/update", { method: "POST", headers: { "Content-Type": "application/sparql-update" }, body: sparql, signal: stop.signal })).json();
      put(tab, { done: { ...done, milliseconds: performance.now() - began } });
    }
  } catch (error) {
    if (error instanceof SessionEnded) return;
    put(tab, error.name === "AbortError" ? {} : failure(error));
  } finally {
    running.value = undefined;
  }
}

async function explain(tab) {
  try {
    const found = await getJson("/explain", { method: "POST", headers: { "Content-Type": "application/sparql-query" }, body: texts.peek()[tab] });
    outcomes.value = { ...outcomes.peek(), [tab]: { ...outcomes.peek()[tab], explanation: found, problem: undefined, marks: undefined } };
  } catch (error) {
    if (!(error instanceof SessionEnded)) put(tab, failure(error));
  }
}

/** The reason, and the place in the text that it names. */
function failure(error) {
  return { problem: error.status ? messageOf(error) : t("chart.failed"), marks: placeIn(error.message) };
}

function summary({ kind, boolean, rows, milliseconds }) {
  const time = t("console.time", { ms: formatNumber(Math.round(milliseconds)) });
  if (kind === "boolean") return `${boolean} · ${time}`;
  return kind === "rows" ? `${t("console.rows", { n: rows.length })} · ${time}` : time;
}

export function Page() {
  useEffect(() => { document.title = `${t("console.title")} · sepa-edge`; }, []);
  // A subscription ends with the page, as the user sees nothing of it any more.
  useEffect(() => () => put("subscribe", {}), []);
  const allowed = TABS.filter(may);
  if (!access.value) return html`<h1>${t("console.title")}</h1>`;
  if (!allowed.length) return html`<h1>${t("console.title")}</h1><p class="note">${t("console.forbidden")}</p>`;
  const tab = allowed.includes(chosen.value) ? chosen.value : allowed[0];
  chosen.value = tab;
  return html`<h1>${t("console.title")}</h1>
    <${Tabs} all=${allowed} tab=${tab} />
    <div role="tabpanel" id="panel" aria-labelledby=${`tab-${tab}`}>
      <${SparqlEditor} key=${tab} text=${texts.value[tab]} label=${t(`console.text.${tab}`)} change=${write} run=${() => run(tab)} marks=${outcomes.value[tab]?.marks} />
      <${Buttons} tab=${tab} />
      <${Fold} text=${t("profile.title")}>${() => html`<${Profile} kind=${tab === "update" ? "update" : "query"} fill=${(text) => { write(text); announce(t("profile.filled")); }} />`}<//>
      ${tab === "subscribe" && mayEverything() && html`<${Fold} text=${t("publication.title")}>${() => html`<${Publication} sparql=${() => texts.peek().subscribe} load=${write} />`}<//>`}
      <${Outcome} tab=${tab} />
    </div>`;
}

function Tabs({ all, tab }) {
  const list = useRef();
  const move = (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    chosen.value = all[(all.indexOf(tab) + by + all.length) % all.length];
    list.current.querySelector(`#tab-${chosen.value}`).focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${t("console.kind")} ref=${list} onKeyDown=${move}>
    ${all.map((each) => html`<button type="button" role="tab" id=${`tab-${each}`} aria-selected=${each === tab} aria-controls="panel"
      tabindex=${each === tab ? 0 : -1} onClick=${() => { chosen.value = each; }}>${t(`console.${each}`)}</button>`)}
  </div>`;
}

function Buttons({ tab }) {
  const live = outcomes.value[tab]?.live;
  const follows = live && ["connecting", "live", "lost"].includes(live.state.value);
  return html`<div class="bar">
    ${running.value
      ? html`<button type="button" id="stop" onClick=${() => running.peek().stop.abort()}>${t("console.stop")}</button>`
      : html`<button type="button" id="run" class="primary" onClick=${() => run(tab)} title="Ctrl-Enter">${t(`console.run.${tab}`)}</button>`}
    ${follows && html`<button type="button" id="end" onClick=${() => live.close()}>${t("console.end")}</button>`}
    ${tab !== "update" && may("administer") && html`<button type="button" id="explain" onClick=${() => explain(tab)}>${t("console.explain")}</button>`}
    <button type="button" class="right" onClick=${() => write(FIRST[tab])}>${t("console.example")}</button>
  </div>`;
}

function Outcome({ tab }) {
  const { result, done, live, explanation, problem } = outcomes.value[tab] ?? {};
  return html`<p class="problem" role="alert" id="problem" dir="auto">${problem}</p>
    ${explanation && html`<${Explanation} found=${explanation} />`}
    ${result && html`<${Result} result=${result} />`}
    ${done && html`<p id="done" role="status">${t("console.done", { added: done.added, removed: done.removed })} · ${t("console.time", { ms: formatNumber(Math.round(done.milliseconds)) })}</p>`}
    ${live && html`<${Live} live=${live} />`}`;
}

function Result({ result }) {
  const view = useSignal("table");
  if (result.kind !== "rows") {
    return html`<p>${summary(result)}</p>${result.kind === "graph" && html`<pre id="text" tabindex="0" dir="ltr">${result.text}</pre>`}`;
  }
  const numbers = columnsOfNumbers(result);
  const views = ["table", ...(numbers ? ["chart"] : []), "json"];
  const shown = views.includes(view.value) ? view.value : "table";
  return html`<div class="bar"><span id="summary">${summary(result)}</span>
      <span class="right" role="group" aria-label=${t("console.view")}>${views.map((each) => html`<button type="button" aria-pressed=${each === shown}
        onClick=${() => { view.value = each; }}>${t(`console.view.${each}`)}</button>`)}</span></div>
    ${shown === "table" && html`<${Bindings} columns=${result.columns} rows=${result.rows} label=${t("console.result")} />`}
    ${shown === "chart" && html`<${Lines} data=${numbers} />`}
    ${shown === "json" && html`<pre id="text" tabindex="0" dir="ltr">${indented(result.text)}</pre>`}`;
}

function indented(text) {
  return text.length > LONGEST ? text : JSON.stringify(JSON.parse(text), null, 2);
}

function Live({ live }) {
  const rows = live.rows.value, changes = live.changes.value;
  return html`<p class="problem" role="alert">${live.error}</p>
    <p><span class="mark" data-state=${live.state.value === "live" ? "good" : "wait"} id="live-state">${t(`console.state.${live.state.value}`)}</span> ${t("console.rows", { n: rows.length })}</p>
    <${Bindings} columns=${live.columns.value} rows=${rows} label=${t("console.result")} />
    <h2>${t("console.changes")}</h2>
    <ol class="changes" tabindex="0" aria-label=${t("console.changes")}>${changes.map((each) => html`<${Change} key=${each.key} change=${each} columns=${live.columns.value} />`)}</ol>`;
}

function Change({ change: { at, sequence, added, removed }, columns }) {
  const line = (row) => columns.filter((name) => row[name]).map((name) => `${name} ${row[name].value}`).join(", ");
  return html`<li><time>${formatTime(at)}</time> <small>#${sequence}</small>
    <ul>${removed.rows.map((row) => html`<li class="removed" dir="auto"><b aria-label=${t("console.removed")}>−</b> ${line(row)}</li>`)}
      ${added.rows.map((row) => html`<li class="added" dir="auto"><b aria-label=${t("console.added")}>+</b> ${line(row)}</li>`)}
      ${added.total + removed.total > added.rows.length + removed.rows.length && html`<li>${t("console.more.rows", { n: added.total + removed.total - added.rows.length - removed.rows.length })}</li>`}</ul></li>`;
}
