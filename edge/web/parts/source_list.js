// The devices that adapters read themselves, and the host application of Sparkplug.
import { html } from "../ui.js";
import { deviceName, devices } from "../model/devices.js";
import { sources } from "../model/sources.js";
import { has, t } from "../model/text.js";
import { English } from "./english.js";

/** What the device of an adapter is, and its state, in one text. */
export function Source({ source: { kind, state, reason, missing } }) {
  const key = [`source.${kind}.${state}`, `source.${state}`].find(has);
  const why = missing ? t("source.missing", { names: missing.join(", ") }) : reason && html`<${English}>${reason}<//>`;
  return html`${t(`source.${kind}`)}: ${key ? t(key) : state}${why && html` (${why})`}`;
}

export function Sources({ state }) {
  const found = sources(state), host = state.sparkplug_host;
  if (!found.length && !host) return null;
  return html`<section class="panel wide" id="sources"><h2>${t("source.title")}</h2>
    ${host && html`<p>${t(host.primary ? "source.primary" : "source.host", { id: host.id })} ${t(host.connected ? "source.subscribed" : "source.unsubscribed")} ${t("source.births", { n: host.metrics })}</p>`}
    <dl>${found.map((each) => html`<dt dir="auto">${devices.value.has(each.device)
      ? html`<a href=${`#/device/${encodeURIComponent(each.device)}`}>${deviceName(each.device)}</a>` : each.name}</dt><dd dir="auto"><${Source} source=${each} /></dd>`)}</dl>
  </section>`;
}
