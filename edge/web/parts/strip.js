// State of the gateway in one line. Normal states are short; problems are marked and link to the page with details.
import { html } from "../ui.js";
import { connection } from "../model/connection.js";
import { badValues, health, unmapped } from "../model/health.js";
import { situations } from "../model/situations.js";
import { formatNumber, t } from "../model/text.js";

const MANY = 1000;  // waiting updates

export function Strip() {
  const state = connection.value.state === "live" ? health.value : undefined;
  if (!state) return null;
  const parts = Object.entries(state.parts ?? {}).filter(([, what]) => what !== "moves").map(([name]) => name);
  const chips = [
    state.fault ? ["bad", state.fault] : parts.length ? ["bad", t("strip.parts", { parts: parts.join(", ") })] : ["good", t("strip.gateway")],
    state.mqtt && (state.mqtt === "connected" ? ["good", t("strip.broker")] : ["bad", t("strip.broker.lost")]),
    state.storage && ["bad", t("strip.storage")],
    state.engine && ["bad", t("strip.engine")],
    state.pending_updates > 0 && [state.pending_updates > MANY ? "wait" : "good", t("strip.backlog", { n: state.pending_updates })],
    count(unmapped.value) && ["wait", t("strip.unmapped", { n: count(unmapped.value) })],
    count(badValues.value) && ["wait", t("strip.bad", { n: count(badValues.value) })],
    count(state.mapping_faults) && ["bad", t("strip.mappings", { n: count(state.mapping_faults) })],
    count(state.query_faults) && ["bad", t("strip.queries", { n: count(state.query_faults) })],
    state.announce_fault && ["bad", t("strip.announce")],
    count(state.rule_faults) && ["bad", t("strip.rules", { n: count(state.rule_faults) }), "automation"],
    situations.value.size > 0 && ["wait", t("strip.situations", { n: situations.value.size }), "automation"],
    troubled(state.outbox) && ["wait", t("strip.outbox")],
    troubled(state.recent) && ["wait", t("strip.recent")],
    state.disk && state.disk.free < state.disk.total * 0.1 && ["wait", t("strip.disk", { percent: formatNumber(Math.round((100 * state.disk.free) / state.disk.total)) })],
    state.clock && state.clock !== "synchronized" && ["wait", t("strip.clock")],
  ].filter(Boolean);
  return html`<p id="strip" aria-label=${t("strip.title")}>${chips.map(([kind, text, page = "system"]) => html`<a class="chip" data-state=${kind} href=${`#/${page}`}>
    <span class="dot" aria-hidden="true"></span>${text}</a>`)}</p>`;
}

function count(what) {
  if (typeof what === "number") return what;
  return Array.isArray(what) ? what.length : Object.keys(what ?? {}).length;
}

function troubled(part) {
  return (typeof part === "string" ? part : part?.state) === "fails";
}
