// The subscribed queries that cost most, with their clients; and how much of each limit is in use.
import { html, useSignal } from "../ui.js";
import { getJson } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { formatBytes, formatNumber, t } from "../model/text.js";

const AGAIN = 5000;  // ms
const MOST = 50;
const ORDERS = ["subscriptions", "bytes", "notifications", "seconds"];

export function Subscribed() {
  const order = useSignal(ORDERS[0]);
  const [found, error, look] = usePolled(() => getJson(`/api/subscriptions?limit=${MOST}&order=${order.peek()}`), AGAIN);
  const choose = (name) => { order.value = name; look(); };
  const state = found.value;
  return html`<section class="panel wide" id="subscribed"><h2>${t("subscribed.title")}</h2>
    <p class="problem" role="alert">${error}</p>
    ${state && (state.queries.length ? html`
      <div class="bar" role="group" aria-label=${t("subscribed.order")}>${ORDERS.map((name) => html`<button type="button" aria-pressed=${name === order.value} onClick=${() => choose(name)}>${t(`subscribed.by.${name}`)}</button>`)}</div>
      ${state.spus > state.queries.length && html`<p>${t("subscribed.first", { n: state.queries.length, all: state.spus })}</p>`}
      <ul class="list">${state.queries.map((query) => html`<${Query} key=${`${query.sparql} ${Object.keys(query.clients)}`} query=${query} />`)}</ul>`
    : html`<p>${t("subscribed.none")}</p>`)}
  </section>`;
}

function Query({ query: { sparql, kept, reason, subscriptions, clients, rows, bytes, notifications, evaluations } }) {
  const who = Object.entries(clients).map(([client, n]) => (n > 1 ? `${client || t("subscribed.gateway")} (${formatNumber(n)})` : client || t("subscribed.gateway")));
  const facts = [
    t("subscribed.count", { n: subscriptions }), rows && t("subscribed.rows", { n: rows }), bytes && formatBytes(bytes), t("subscribed.notified", { n: notifications }),
    evaluations && t("subscribed.evaluated", { n: evaluations.count, ms: formatNumber(Math.round(evaluations.seconds / Math.max(1, evaluations.count) * 1e4) / 10) }),
  ].filter(Boolean);
  return html`<li><details><summary><code dir="ltr">${brief(sparql)}</code></summary><pre tabindex="0" dir="ltr">${sparql}</pre></details>
    <p><span class="mark" data-state=${kept === "incremental" ? "good" : "poor"}>${t(`subscribed.${kept}`)}</span> ${facts.join(" · ")}</p>
    ${reason && html`<p>${t("subscribed.reason", { reason })}</p>`}
    <p><small dir="auto">${who.join(", ")}</small></p></li>`;
}

/** The text of a query on one line, without its prefixes. */
function brief(sparql) {
  const text = sparql.replace(/^\s*(PREFIX\s+\S*\s*<[^>]*>|BASE\s*<[^>]*>|#.*$)/gim, "").replace(/\s+/g, " ").trim();
  return text.length > 120 ? `${text.slice(0, 119)}…` : text || sparql.slice(0, 120);
}

export function Limits({ limits }) {
  const amount = (setting, value) => (/bytes$/.test(setting) ? formatBytes(value) : formatNumber(value));
  return html`<section class="panel wide" id="limits"><h2>${t("limits.title")}</h2><p>${t("limits.text")}</p>
    <dl class="uses">${limits.map(({ setting, used, limit, client }) => html`<div><dt>${t(`limits.${setting}`)} <small>${setting}</small></dt>
      <dd><meter min="0" max=${limit} high=${limit * 0.8} value=${used} aria-label=${t(`limits.${setting}`)}></meter>
        ${t("limits.of", { used: amount(setting, used), limit: amount(setting, limit) })}${client && html` <small dir="auto">${client}</small>`}</dd></div>`)}</dl>
  </section>`;
}
