// A mapping file in an editor: errors at their lines, a test with a message, the version before.
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html, useEffect, useRef, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { deleteDocument, readDocument, writeDocument } from "../model/documents.js";
import { badValues, lookNow, unmapped } from "../model/health.js";
import { mappingFiles, mappingPath } from "../model/mapping_files.js";
import { t } from "../model/text.js";
import { useAction } from "../parts/action.js";
import { announce } from "../parts/announcer.js";
import { useConflict } from "../parts/conflict.js";
import { Editor, focusEditor } from "../parts/editor.js";
import { MappingPreview, marksOf } from "../parts/mapping_preview.js";
import { NextMessage } from "../parts/next_message.js";
import { useUnsaved } from "../parts/unsaved.js";

const FIRST = '[[mapping]]\ntopic = "greenhouse/{bed}/temperature"\nobservation = "edge:{bed}-temperature"\nunit = "unit:DegreeCelsius"\nlabel = "Temperature of {bed}"\n';

// The text that the user wrote while a new file was being saved, {name, text}: the page of that file continues with it.
let unsaved;

/** `name` is that of the file; empty: a new one. */
export function Page({ name }) {
  const title = name ? `${name}.toml` : t("mapping.new");
  useEffect(() => { document.title = `${title} · sepa-edge`; }, [title]);
  const text = useSignal(!name ? FIRST : unsaved?.name === name ? unsaved.text : undefined), stored = useSignal(name ? undefined : "");
  const previous = useSignal(false), written = useSignal(name), marks = useSignal(undefined);
  const recent = [...(unmapped.value ?? []), ...(badValues.value ?? [])];
  const topic = useSignal(name ? "" : "greenhouse/bed1/temperature"), payload = useSignal("21.5");
  const hex = useSignal(undefined);  // of a message that is not text
  const long = useSignal(false);  // the newest message is not shown
  const leave = useUnsaved(text.value !== undefined && text.value !== (name ? stored.value : FIRST));
  const choose = (written) => {
    topic.value = written;
    hex.value = undefined;
    long.value = false;
    payload.value = recent.find((each) => each.topic === written)?.last_payload ?? payload.value;
  };
  const take = (message) => {
    topic.value = message.topic;
    long.value = message.payload === null && message.hex === null;
    if (long.value) return;
    hex.value = message.payload === null ? message.hex : undefined;
    payload.value = message.payload ?? message.hex;
  };
  const [act, problem, busy] = useAction({ alone: true }), [look, unread] = useAction();
  const tag = useRef(name ? undefined : null);  // of the stored text
  const here = useRef(location.hash);
  const reading = useRef(undefined);
  const load = async () => {
    const found = await readDocument(mappingPath(name));
    [stored.value, tag.current] = [found.text, found.tag];
    text.value ??= stored.value;  // the user's later changes stay
    topic.value ||= /^\s*topic\s*=\s*["']([^"']*)/m.exec(stored.value)?.[1] ?? "";
    previous.value = (await mappingFiles()).some((each) => each.name === name && each.has_previous);
  };
  const read = () => (reading.current ??= load().catch((error) => { reading.current = undefined; throw error; }));
  useEffect(() => {
    unsaved = undefined;
    if (name) look(read);
  }, []);
  const go = (address) => {
    if (location.hash !== here.current) return;  // the user has left meanwhile
    leave();
    location.hash = address;
  };
  const write = async (over, done = t("new.saved", { name: `${written.value}.toml` })) => {
    if (stored.value === undefined) await read();  // the user was faster
    const saved = text.value, file = written.value, path = mappingPath(file);
    await guard({
      path, name: `${file}.toml`, text: saved, isNew: !name, again: save,
      write: () => writeDocument(path, saved, over === undefined ? tag.current : over),
      done: (next) => {
        announce(done);
        lookNow();
        if (name) [previous.value, stored.value, tag.current] = [true, saved, next];
        else {
          if (text.value !== saved) unsaved = { name: file, text: text.value };
          go(pageOf(file));
        }
      },
    });
  };
  const save = (over) => act(() => write(over));
  const [guard, conflict] = useConflict({
    path: mappingPath(written.value), mine: text.value, focus: focusEditor,
    take: (theirs) => {
      if (theirs.text === undefined) return go("#/new");
      if (!name) return go(pageOf(written.value));
      [stored.value, tag.current] = [theirs.text, theirs.tag];
      text.value = theirs.text;
      announce(t("conflict.taken"));
    },
  });
  const revert = () => act(async () => {
    text.value = (await readDocument(mappingPath(name), true)).text;
    await write(tag.current, t("mapping.reverted"));
  });
  const remove = (over) => act(() => guard({
    path: mappingPath(name), name: `${name}.toml`, text: undefined, again: remove,
    write: () => deleteDocument(mappingPath(name), over),
    done: () => go("#/new"),
  }));
  if (!access.value) return html`<h1>${title}</h1>`;
  if (!may("administer")) return html`<h1>${title}</h1><p class="note">${t("new.forbidden")}</p>`;
  return html`<p class="path"><a href="#/new">${t("new.title")}</a></p><h1>${title}</h1>
    ${!name && html`<div class="fields"><label for="file">${t("new.file")}</label><input id="file" value=${written.value} maxlength="64" autocomplete="off" onInput=${(event) => { written.value = event.target.value; }} /></div>`}
    ${text.value !== undefined && html`
      <${Editor} mode=${toml} text=${text.value} label=${t("mapping.text")} change=${(value) => { text.value = value; }} run=${() => save()} marks=${marks.value} />
      <div class="bar">
        <button type="button" id="save" class="primary" aria-disabled=${busy} disabled=${text.value === stored.value} onClick=${() => save()}>${t("new.save")}</button>
        ${previous.value && html`<button type="button" id="revert" aria-disabled=${busy} onClick=${revert}>${t("mapping.revert")}</button>`}
        ${name && stored.value !== undefined && html`<button type="button" class="right danger" id="delete" aria-disabled=${busy} onClick=${() => !busy && confirm(t("mapping.delete.sure", { name: `${name}.toml` })) && remove(tag.current)}>${t("mapping.delete")}</button>`}
      </div>`}
    <div id="problem">${problem}${unread}</div>
    ${conflict}
    ${text.value !== undefined && html`<section class="panel wide"><h2>${t("mapping.test")}</h2>
      <div class="fields"><label for="topic">${t("column.topic")}</label><input id="topic" value=${topic.value} list="topics" onInput=${(event) => choose(event.target.value)} />
      <datalist id="topics">${recent.map((each) => html`<option value=${each.topic}></option>`)}</datalist>
      <label for="payload">${t("mapping.payload")}</label><textarea id="payload" rows="3" dir="ltr" value=${payload.value} onInput=${(event) => { payload.value = event.target.value; hex.value = undefined; }}></textarea></div>
      <${NextMessage} topic=${topic.value} take=${take} />
      ${long.value && html`<p role="status" id="long">${t("new.long")}</p>`}
      <${MappingPreview} message=${{ topic: topic.value, payload: payload.value, hex: hex.value }} name=${name || "new"} text=${text.value} tested=${({ faults, warnings }) => { marks.value = marksOf([...faults, ...warnings]); }} />
    </section>`}`;
}

function pageOf(name) {
  return `#/mapping/${encodeURIComponent(name)}`;
}
