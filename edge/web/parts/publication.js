// Continuous queries: the gateway publishes their results over MQTT.
import { html, useRef, useSignal } from "../ui.js";
import { deleteDocument, readDocument, writeDocument } from "../model/documents.js";
import { getJson } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { t } from "../model/text.js";
import { useAction } from "./action.js";
import { announce } from "./announcer.js";
import { useConflict } from "./conflict.js";
import { focusEditor } from "./editor.js";

const AGAIN = 5000;  // ms
const TYPE = "application/sparql-query";

/** `sparql` returns the text to publish; `load` is called with the text of a query that the user wants to see. */
export function Publication({ sparql, load }) {
  const [found, error, look] = usePolled(() => getJson("/api/queries"), AGAIN);
  const [act, problem, busy] = useAction({ alone: true });
  const done = useSignal("");
  const tags = useRef(new Map());  // of the queries that the user has seen or published here, by name
  const open = (name, text, tag) => {
    tags.current.set(name, tag);
    load(text);
  };
  const [guard, conflict] = useConflict({
    mine: sparql(), focus: focusEditor,
    take: ({ name, text, tag }) => {
      if (text === undefined) return tags.current.delete(name);
      open(name, text, tag);
      announce(t("conflict.taken"));
    },
  });
  const publish = (name, tag = tags.current.get(name) ?? null) => act(() => {
    const text = sparql();
    done.value = "";
    return guard({
      path: path(name), name, text, isNew: !tags.current.has(name), again: (present) => publish(name, present),
      write: () => writeDocument(path(name), text, tag, TYPE),
      done: (next) => {
        tags.current.set(name, next);
        done.value = t("publication.done", { name });
        look();
      },
    });
  });
  const remove = (name, tag) => guard({
    path: path(name), name, text: undefined, again: (present) => act(() => remove(name, present)),
    write: () => deleteDocument(path(name), tag),
    done: () => {
      tags.current.delete(name);
      announce(t("publication.ended", { name }));
      look();
    },
  });
  const end = (name) => act(async () => {
    const tag = tags.current.get(name) ?? (await readDocument(path(name))).tag;
    if (confirm(t("publication.end.sure", { name }))) await remove(name, tag);
  });
  const show = (name) => act(async () => {
    const { text, tag } = await readDocument(path(name));
    open(name, text, tag);
  });
  const submit = (event) => {
    event.preventDefault();
    publish(event.target.elements.name.value.trim());
  };
  const queries = found.value ?? [];
  return html`<div class="panel wide" id="publication"><p>${t("publication.text")}</p>
    <form class="bar" onSubmit=${submit}><label class="choice">${t("publication.name")} <input name="name" required maxlength="64" pattern="[A-Za-z0-9][A-Za-z0-9_\\-]*" autocomplete="off" /></label>
      <button type="submit" aria-disabled=${busy}>${t("publication.do")}</button></form>
    ${problem}${conflict}<p class="problem" role="alert">${error}</p><p role="status">${done}</p>
    <ul class="list">${queries.map(({ file, name, topic, fault }) => html`<li key=${file}><p><b dir="auto">${name ?? file}</b> ${topic ? html`<code dir="ltr">${topic}</code>` : t("publication.closed")}</p>
      <p class="problem" dir="auto">${fault}</p>
      ${name && html`<div class="bar"><button type="button" aria-disabled=${busy} aria-label=${`${t("publication.show")}: ${name}`} onClick=${() => show(name)}>${t("publication.show")}</button>
        <button type="button" aria-disabled=${busy} aria-label=${`${t("publication.end")}: ${name}`} onClick=${() => end(name)}>${t("publication.end")}</button></div>`}</li>`)}</ul></div>`;
}

function path(name) {
  return `/api/queries/${encodeURIComponent(name)}`;
}
