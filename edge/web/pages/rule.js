// One rule: a form for its condition and actions, a test with the recent values, and its text.
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html, useEffect, useLayoutEffect, useRef, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { deleteDocument, presentDocument, readDocument, writeDocument } from "../model/documents.js";
import { fullName, placeName } from "../model/devices.js";
import { setBy } from "../model/desired.js";
import { entries, version } from "../model/live.js";
import { fileName } from "../model/mapping_draft.js";
import { fromKeys, hasComments, NEW, TESTS, toToml, UNITS, WATCHED } from "../model/rule_draft.js";
import { answers, fromTemplate, NAMES } from "../model/rule_templates.js";
import { rulePath, rules } from "../model/rules.js";
import { compare, t } from "../model/text.js";
import { BOOLEAN, propertyName, wordOf } from "../model/values.js";
import { useAction } from "../parts/action.js";
import { announce } from "../parts/announcer.js";
import { useConflict } from "../parts/conflict.js";
import { Editor, focusEditor } from "../parts/editor.js";
import { Setting } from "../parts/setting.js";
import { SparqlEditor } from "../parts/sparql_editor.js";
import { DryRun } from "../parts/dry_run.js";
import { useUnsaved } from "../parts/unsaved.js";

/** `name` is that of the rule; empty: a new one. */
export function Page({ name }) {
  const title = name || t("rule.new");
  useEffect(() => { document.title = `${title} · sepa-edge`; }, [title]);
  const loaded = useSignal(name ? undefined : { text: "", tag: null, draft: { ...NEW }, previous: false });
  const [act, problem] = useAction();
  const load = async (said) => {
    const { text, tag } = await readDocument(rulePath(name)), listed = (await rules()).find((each) => each.name === name);
    loaded.value = { times: (loaded.value?.times ?? 0) + 1, focus: Boolean(said), text, tag, draft: listed && !listed.fault && !hasComments(text) ? fromKeys(listed.keys) : undefined, previous: Boolean(listed?.has_previous) };
    if (said) announce(said);
  };
  useEffect(() => { if (name) act(() => load()); }, []);
  if (!access.value) return html`<h1>${title}</h1>`;
  if (!may("administer")) return html`<h1>${title}</h1><p class="note">${t("rule.forbidden")}</p>`;
  return html`<p class="path"><a href="#/automation">${t("automation.title")}</a></p><h1 dir="auto">${title}</h1>${problem}
    ${loaded.value && html`<${Form} key=${loaded.value.times} name=${name} ...${loaded.value} again=${(said) => act(() => load(said))} />`}`;
}

/** `again` loads the rule again, and announces that with a text. `focus`: whether the focus moves to the rule. */
function Form({ name, text: stored, tag, draft: begun, previous, focus, again }) {
  const draft = useSignal(begun ?? { ...NEW }), byHand = useSignal(begun ? undefined : stored);
  const file = useSignal(name || undefined), marks = useSignal(undefined);
  const [act, problem, busy] = useAction({ alone: true });
  const written = () => byHand.value ?? toToml(draft.value), text = written();
  const opened = useRef(text), known = useRef({ id: name, tag }), here = useRef(location.hash);
  const leave = useUnsaved(text !== opened.current);
  const id = file.value ?? fileName(draft.value.label || "rule");
  const change = (changes) => { draft.value = { ...draft.value, ...changes }; };
  const toText = () => (byHand.value === undefined ? document.getElementById("label").focus() : focusEditor());
  useLayoutEffect(() => { if (focus) toText(); }, []);
  const go = (address) => {
    if (location.hash !== here.current) return;  // the user has left meanwhile
    leave();
    location.hash = address;
  };
  const write = (over, done, saved = written()) => guard({
    path: rulePath(id), name: id, text: saved, isNew: !name, again: (present) => act(() => write(present, done)),
    write: () => writeDocument(rulePath(id), saved, over),
    done: (next) => {
      announce(t("new.saved", { name: id }));
      [known.current, opened.current, file.value] = [{ id, tag: next }, saved, id];
      done(saved);
    },
  });
  const latest = useRef(written);
  latest.current = written;
  const toList = () => go("#/automation");
  const unlessChanged = (saved) => latest.current() === saved && toList();  // later changes stay
  const save = (event) => {
    event?.preventDefault();
    const saved = written();
    act(async () => {
      if (known.current.id === id) return write(known.current.tag, unlessChanged, saved);
      const there = (await rules()).some((each) => each.name === id) ? await presentDocument(rulePath(id)) : { tag: null };
      if (there.text === undefined || there.text === saved || confirm(t("rule.replace", { name: id }))) await write(there.tag, unlessChanged, saved);
    });
  };
  const [guard, conflict] = useConflict({
    path: rulePath(id), mine: text, focus: toText,
    take: (theirs) => {
      if (theirs.text === undefined) return toList();
      if (name) return again(t("conflict.taken"));
      go(`#/rule/${encodeURIComponent(id)}`);
    },
  });
  const revert = () => act(async () => {
    byHand.value = (await readDocument(rulePath(name), true)).text;
    await write(known.current.tag, () => again(t("mapping.reverted")));
  });
  const remove = (over) => act(() => guard({
    path: rulePath(name), name, text: undefined, again: remove,
    write: () => deleteDocument(rulePath(name), over),
    done: toList,
  }));
  return html`${!name && byHand.value === undefined && html`<${Templates} chosen=${(chosen) => { draft.value = chosen; }} />`}
    <form id="rule" onSubmit=${save}>
    ${byHand.value === undefined && html`<${Fields} draft=${draft.value} change=${change} save=${save} />`}
    <details class="panel wide" open=${byHand.value !== undefined} id="by-hand"><summary>${t("rule.toml")}</summary>
      <${Editor} mode=${toml} text=${text} label=${t("rule.toml")} change=${(written) => { if (written !== text) byHand.value = written; }} run=${save} marks=${marks.value} />
      ${begun && byHand.value !== undefined && html`<button type="button" onClick=${() => { byHand.value = undefined; }}>${t("new.form")}</button>`}
    </details>
    <${DryRun} name=${id} text=${text} tested=${({ faults }) => { marks.value = faults.filter(({ line }) => line); }} />
    <section class="panel wide">
      ${!name && html`<div class="fields"><label for="file">${t("new.file")}</label>
        <input id="file" required pattern="[A-Za-z0-9][A-Za-z0-9_\\-]*" maxlength="64" value=${id} onInput=${(event) => { file.value = event.target.value; }} autocomplete="off" /></div>`}
      ${problem}${conflict}
      <div class="bar"><button type="submit" id="save" class="primary" aria-disabled=${busy}>${t("new.save")}</button>
        ${previous && html`<button type="button" id="revert" aria-disabled=${busy} onClick=${revert}>${t("mapping.revert")}</button>`}
        ${name && html`<button type="button" class="right danger" id="delete" aria-disabled=${busy} onClick=${() => !busy && confirm(t("rule.delete.sure", { name })) && remove(known.current.tag)}>${t("mapping.delete")}</button>`}</div>
    </section></form>`;
}

function Templates({ chosen }) {
  const choose = (each) => {
    const label = t(`template.${each}`);
    chosen(fromTemplate(each, label));
    announce(t(answers(each) ? "template.done.answers" : "template.done", { label }));
    document.getElementById("label").focus();
  };
  return html`<section class="panel wide" id="templates"><h2>${t("template.title")}</h2><p>${t("template.text")}</p>
    <div class="bar">${NAMES.map((each) => html`<button type="button" onClick=${() => choose(each)}>${t(`template.${each}`)}</button>`)}</div></section>`;
}

function Fields({ draft, change, save }) {
  const set = (key) => (event) => change({ [key]: event.target.value });
  const tests = draft.watched === "query" ? ["", "silent"] : TESTS;
  return html`<section class="panel wide"><h2>${t("rule.when")}</h2>
      <div class="fields">
        <label for="label">${t("rule.label")}</label><input id="label" maxlength="200" value=${draft.label} onInput=${set("label")} autocomplete="off" />
        <label for="watched">${t("rule.watched")}</label><select id="watched" onChange=${(event) => change({ watched: event.target.value, ...(event.target.value === "query" && draft.test !== "silent" && { test: "" }), ...(event.target.value !== "query" && !draft.test && { test: "above" }) })}>
          ${WATCHED.map((each) => html`<option value=${each} selected=${each === draft.watched}>${t(`rule.watched.${each}`)}</option>`)}</select>
        ${draft.watched === "observation" && html`<${ObservationChoice} chosen=${draft.observation} change=${change} />`}
        ${draft.watched === "property" && html`<${KindChoice} draft=${draft} set=${set} />`}
      </div>
      ${draft.watched === "query" && html`<p>${t("rule.query.text")}</p><${SparqlEditor} text=${draft.query} label=${t("rule.watched.query")} change=${(query) => change({ query })} run=${save} />
        <div class="fields"><label for="key">${t("rule.key")}</label><input id="key" value=${draft.key} onInput=${set("key")} autocomplete="off" aria-describedby="key-help" /></div><p id="key-help"><small>${t("rule.key.help")}</small></p>`}
      <div class="fields"><label for="test">${t("rule.test")}</label><span class="bar"><select id="test" onChange=${set("test")}>
          ${tests.map((each) => html`<option value=${each} selected=${each === draft.test}>${each ? t(`rule.test.${each}`) : t("rule.test.row")}</option>`)}</select>
          <${Compared} draft=${draft} change=${change} set=${set} /></span>
        ${draft.test !== "silent" && html`<label for="lasts">${t("rule.lasts")}</label><${Duration} id="lasts" value=${draft.lasts} change=${(lasts) => change({ lasts })} />`}
      </div></section>
    <section class="panel wide"><h2>${t("rule.then")}</h2><p>${t("rule.then.text")}</p>
      <div class="fields"><${Setting} id="set" label=${t("rule.set")} text=${draft.update} usual="true" change=${(update) => change({ update })} />
        <${Setting} id="end-set" label=${t("rule.end.set")} text=${draft.endUpdate} usual="false" change=${(endUpdate) => change({ endUpdate })} /></div>
      <details open=${Boolean(draft.update.trim()) && !setBy(draft.update)}><summary>${t("rule.update")}</summary><p>${t("rule.update.text")}</p>
        <${SparqlEditor} text=${draft.update} label=${t("rule.update")} change=${(update) => change({ update })} run=${save} /></details>
      <div class="fields"><label for="end-lasts">${t("rule.end.lasts")}</label><${Duration} id="end-lasts" value=${draft.endLasts} change=${(endLasts) => change({ endLasts })} /></div>
      <details open=${Boolean(draft.endUpdate.trim()) && !setBy(draft.endUpdate)}><summary>${t("rule.end.update")}</summary>
        <${SparqlEditor} text=${draft.endUpdate} label=${t("rule.end.update")} change=${(endUpdate) => change({ endUpdate })} run=${save} /></details></section>`;
}

function ObservationChoice({ chosen, change }) {
  version.value;
  const all = [...entries.values()].filter(({ blank }) => !blank).map((entry) => ({ entry, name: fullName(entry) })).sort((one, other) => compare(one.name, other.name));
  const choose = (event) => {
    const entry = entries.get(event.target.value);
    const { value, datatype } = entry?.reading.peek() ?? {};
    const kind = datatype === BOOLEAN ? "boolean" : value !== undefined && value.trim() !== "" && Number.isFinite(Number(value)) ? "number" : "text";
    change({ observation: event.target.value, kind, ...(entry && { value: kind === "boolean" ? "true" : value, test: kind === "number" ? "above" : "equals" }) });
  };
  return html`<label for="observation">${t("rule.value")}</label><select id="observation" required onChange=${choose}>
    <option value="" selected=${!chosen}>${t("rule.choose")}</option>
    ${chosen && !entries.has(chosen) && html`<option value=${chosen} selected>${chosen}</option>`}
    ${all.map(({ entry, name }) => html`<option value=${entry.id} selected=${entry.id === chosen}>${name}</option>`)}</select>`;
}

function KindChoice({ draft, set }) {
  version.value;
  const kinds = new Set(), places = new Set();
  for (const { property, place } of entries.values()) {
    if (property) kinds.add(property);
    if (place && (!draft.property || property === draft.property)) places.add(place);
  }
  const options = (all, chosen, name) => [...new Set([...all, ...(chosen ? [chosen] : [])])].sort((one, other) => compare(name(one), name(other))).map((each) => html`<option value=${each} selected=${each === chosen}>${name(each)}</option>`);
  return html`<label for="property">${t("rule.kind")}</label><select id="property" required onChange=${set("property")}><option value="" selected=${!draft.property}>${t("rule.choose")}</option>${options(kinds, draft.property, propertyName)}</select>
    <label for="place">${t("rule.place")}</label><select id="place" onChange=${set("place")}><option value="" selected=${!draft.place}>${t("rule.everywhere")}</option>${options(places, draft.place, placeName)}</select>`;
}

function Compared({ draft, change, set }) {
  if (draft.test === "silent") return html`<${Duration} id="silent" value=${draft.silent} change=${(silent) => change({ silent })} />`;
  if (draft.test === "above" || draft.test === "below") return html`<input id="number" type="number" step="any" required aria-label=${t("rule.number")} value=${draft.number} onInput=${set("number")} />`;
  if (draft.test !== "equals") return null;
  const property = entries.get(draft.observation)?.property ?? draft.property;
  return html`<select aria-label=${t("rule.kind.of")} onChange=${(event) => change({ kind: event.target.value, value: { boolean: "true", number: "0", text: "" }[event.target.value] })}>
      ${["boolean", "number", "text"].map((each) => html`<option value=${each} selected=${each === draft.kind}>${t(`rule.kind.${each}`)}</option>`)}</select>
    ${draft.kind === "boolean"
      ? html`<select id="compared" aria-label=${t("rule.state")} onChange=${set("value")}>${["true", "false"].map((each) => html`<option value=${each} selected=${each === draft.value}>${wordOf(each === "true", property)}</option>`)}</select>`
      : html`<input id="compared" type=${draft.kind === "number" ? "number" : "text"} step="any" required aria-label=${t("rule.state")} value=${draft.value} onInput=${set("value")} />`}`;
}

function Duration({ id, value, change }) {
  return html`<span class="bar"><input id=${id} type="number" min="0" step="any" required value=${value.amount} onInput=${(event) => change({ ...value, amount: event.target.value })} />
    <select aria-label=${t("automation.unit")} onChange=${(event) => change({ ...value, unit: event.target.value })}>${Object.keys(UNITS).map((unit) => html`<option value=${unit} selected=${unit === value.unit}>${t(`automation.${unit}`)}</option>`)}</select></span>`;
}
