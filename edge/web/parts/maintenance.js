// Examination, log, shipping, backup and settings of the gateway, for administrators.
import { html, useSignal } from "../ui.js";
import { loadFindings, textsOf } from "../model/findings.js";
import { getJson, request } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { formatBytes, formatNumber, formatTime, has, isolated, t } from "../model/text.js";
import { useAction } from "./action.js";
import { announce } from "./announcer.js";
import { English } from "./english.js";
import { Fold } from "./fold.js";
import { Restore } from "./restore.js";
import { SystemUpdate } from "./system_update.js";

const AGAIN = 3000;  // ms
const LINES = 300;
const LEVELS = ["debug", "info", "warning", "error"];
const MARKS = { ok: "good", problem: "bad" };
const OWN = ["time", "level", "logger", "event"];

export function Maintenance() {
  return html`<${Doctor} /><${Log} /><${Shipping} /><${Backup} /><${SystemUpdate} /><${Settings} />`;
}

function Doctor() {
  const found = useSignal(undefined), busy = useSignal(false);
  const [act, problem] = useAction({ alone: true });
  const examine = (options) => act(async () => {
    busy.value = true;
    try {
      [{ findings: found.value }] = await Promise.all([getJson("/api/doctor", options), loadFindings()]);
    } finally {
      busy.value = false;
    }
    announce(t("doctor.done", { n: bad(found.value).length }));
  });
  const fix = () => examine({ method: "POST", headers: { "Content-Type": "application/json" }, body: '{"fix": true}' });
  const findings = found.value ?? [];
  return html`<section class="panel wide" id="doctor" aria-busy=${busy.value}><h2>${t("doctor.title")}</h2><p>${t("doctor.text")}</p>
    <div class="bar"><button type="button" aria-disabled=${busy.value} onClick=${() => examine()}>${t(busy.value ? "doctor.busy" : "doctor.do")}</button>
      ${findings.some(({ fixable, fixed }) => fixable === "yes" && !fixed) && html`<button type="button" aria-disabled=${busy.value} onClick=${fix}>${t("doctor.fix")}</button>`}</div>
    ${problem}
    ${found.value && html`<ul class="list">${[...bad(findings), ...findings.filter(({ state }) => state === "ok")].map((each) => html`<${Finding} finding=${each} />`)}</ul>`}
  </section>`;
}

function bad(findings) {
  const order = ["problem", "warning", "unknown"];
  return order.flatMap((wanted) => findings.filter(({ state }) => state === wanted));
}

function Finding({ finding }) {
  const { check, state, what, why, remedy, fixed } = textsOf(finding);
  return html`<li><p><span class="mark" data-state=${MARKS[state]}>${t(`doctor.${state}`)}</span> <b>${has(`doctor.check.${check}`) ? t(`doctor.check.${check}`) : check}</b> ${what}</p>
    ${why && html`<p>${why}</p>`}${remedy && html`<p>${t("doctor.remedy", { remedy })}</p>`}${fixed && html`<p>${t("doctor.fixed", { fixed })}</p>`}</li>`;
}

function Log() {
  const level = useSignal("info"), text = useSignal("");
  const query = () => `/api/log?${new URLSearchParams({ level: level.peek(), text: text.peek(), limit: LINES })}`;
  const [found, error, look] = usePolled(() => getJson(query()), AGAIN);
  const lines = [...(found.value?.lines ?? [])].reverse();
  return html`<section class="panel wide" id="log"><h2>${t("log.title")}</h2>
    <div class="bar"><label class="choice">${t("log.level")} <select onChange=${(event) => { level.value = event.target.value; look(); }}>${LEVELS.map((each) => html`<option value=${each} selected=${each === level.value}>${t(`log.${each}`)}</option>`)}</select></label>
      <label class="choice">${t("log.filter")} <input type="search" maxlength="200" onInput=${(event) => { text.value = event.target.value; look(); }} /></label></div>
    <p class="problem" role="alert">${error}</p>
    ${found.value && !lines.length && html`<p>${t("log.none")}</p>`}
    <ol class="log" tabindex="0" aria-label=${t("log.title")}>${lines.map((line) => html`<${Line} key=${`${line.time} ${line.event}`} line=${line} />`)}</ol>
  </section>`;
}

function Line({ line }) {
  const facts = Object.entries(line).filter(([name]) => !OWN.includes(name) && name !== "traceback");
  return html`<li data-level=${line.level}><time>${formatTime(Date.parse(line.time))}</time> <b lang="en">${line.event}</b> <span dir="auto" lang="en">${facts.map(([name, value]) => `${name}=${isolated(String(value))}`).join(" ")}</span>
    ${line.traceback && html`<details><summary>${t("log.traceback")}</summary><pre tabindex="0" dir="ltr">${line.traceback}</pre></details>`}</li>`;
}

function Shipping() {
  const [found, error, look] = usePolled(() => getJson("/api/outbox"), AGAIN);
  const busy = useSignal(false), done = useSignal("");
  const [act, problem] = useAction({ alone: true });
  const ship = () => act(async () => {
    busy.value = true;
    done.value = "";
    try {
      const { observations, failure } = await getJson("/api/outbox", { method: "POST" });
      done.value = t("shipping.done", { n: observations });
      if (failure) throw new Error(failure);
    } finally {
      busy.value = false;
      look();
    }
  });
  const state = found.value;
  if (!state?.state) return null;
  const facts = [
    [t("shipping.state"), t(`shipping.${state.state}`)],
    state.to && [t("shipping.to"), state.to],
    [t("shipping.waiting"), `${formatNumber(state.observations)} (${formatBytes(state.bytes)})`],
    state.oldest && [t("shipping.oldest"), formatTime(state.oldest / 1000)],
    state.acknowledged_at && [t("shipping.acknowledged"), formatTime(state.acknowledged_at / 1000)],
    state.dropped > 0 && [t("shipping.dropped"), formatNumber(state.dropped)],
  ].filter(Boolean);
  return html`<section class="panel wide" id="shipping"><h2>${t("shipping.title")}</h2><p>${t("shipping.text")}</p>
    <dl>${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    <p class="problem" role="alert">${error}</p><p class="problem" dir="auto"><${English}>${state.reason}<//></p>
    ${state.state !== "off" && html`<button type="button" aria-disabled=${busy.value} onClick=${ship}>${t("shipping.do")}</button>`}
    ${problem}<p role="status">${done}</p></section>`;
}

function Backup() {
  const busy = useSignal(false);
  const [act, problem] = useAction({ alone: true });
  const download = () => act(async () => {
    busy.value = true;
    try {
      const answer = await request("/api/backup");
      const [, name] = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition"));
      save(await answer.blob(), name);
      announce(t("backup.done", { name }));
    } finally {
      busy.value = false;
    }
  });
  return html`<section class="panel wide" id="backup"><h2>${t("backup.title")}</h2><p>${t("backup.text")}</p>
    <button type="button" aria-disabled=${busy.value} onClick=${download}>${t(busy.value ? "backup.busy" : "backup.do")}</button>${problem}
    <${Restore} /></section>`;
}

function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

function Settings() {
  return html`<section class="panel wide" id="settings"><h2>${t("settings.title")}</h2><p>${t("settings.text")}</p>
    <${Fold} text=${t("settings.show")} label="">${() => html`<${Values} />`}<//></section>`;
}

function Values() {
  const [found, error] = usePolled(async () => (await request("/api/settings")).text(), 60000);
  const changed = useSignal(true);
  const text = found.value ?? "", shown = changed.value ? differing(text) : text.trim();
  return html`<label class="choice"><input type="checkbox" checked=${changed.value} onChange=${(event) => { changed.value = event.target.checked; }} /> ${t("settings.changed")}</label>
    <p class="problem" role="alert">${error}</p><pre tabindex="0" dir="ltr">${shown || t("settings.none")}</pre>`;
}

/** The lines of a TOML document that name their origin, below the names of their tables. */
function differing(toml) {
  const tables = toml.split(/^(?=\[)/m).map((table) => {
    const set = table.split("\n").filter((line) => line.includes("  # "));
    const [head] = /^\[.*/.exec(table) ?? [];
    return set.length ? [head, ...set].filter(Boolean).join("\n") : "";
  });
  return tables.filter(Boolean).join("\n\n");
}
