// Continuous queries: the gateway publishes their results over MQTT.
import { html, useSignal } from "../ui.js";
import { getJson, request } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { t } from "../model/text.js";
import { useAction } from "./action.js";
import { announce } from "./announcer.js";

const AGAIN = 5000;  // ms

/** `sparql` returns the text to publish; `load` is called with the text of a query that the user wants to see. */
export function Publication({ sparql, load }) {
  const [found, error, look] = usePolled(() => getJson("/api/queries"), AGAIN);
  const [act, problem] = useAction();
  const done = useSignal("");
  const publish = (event) => {
    event.preventDefault();
    const name = event.target.elements.name.value.trim();
    done.value = "";
    act(async () => {
      await request(path(name), { method: "PUT", headers: { "Content-Type": "application/sparql-query" }, body: sparql() });
      done.value = t("publication.done", { name });
      look();
    });
  };
  const end = (name) => act(async () => {
    await request(path(name), { method: "DELETE" });
    announce(t("publication.ended", { name }));
    look();
  });
  const show = (name) => act(async () => load(await (await request(path(name))).text()));
  const queries = found.value ?? [];
  return html`<div class="panel wide" id="publication"><p>${t("publication.text")}</p>
    <form class="bar" onSubmit=${publish}><label class="choice">${t("publication.name")} <input name="name" required maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9_\\-]*" autocomplete="off" /></label>
      <button type="submit">${t("publication.do")}</button></form>
    ${problem}<p class="problem" role="alert">${error}</p><p role="status">${done}</p>
    <ul class="list">${queries.map(({ file, name, topic, fault }) => html`<li key=${file}><p><b dir="auto">${name ?? file}</b> ${topic ? html`<code dir="ltr">${topic}</code>` : t("publication.closed")}</p>
      <p class="problem" dir="auto">${fault}</p>
      ${name && html`<div class="bar"><button type="button" aria-label=${`${t("publication.show")}: ${name}`} onClick=${() => show(name)}>${t("publication.show")}</button>
        <button type="button" aria-label=${`${t("publication.end")}: ${name}`} onClick=${() => end(name)}>${t("publication.end")}</button></div>`}</li>`)}</ul></div>`;
}

function path(name) {
  return `/api/queries/${encodeURIComponent(name)}`;
}
