// From an unmapped topic to a device: tick the values, name them, see the observations, save the mapping file.
import { toml } from "@codemirror/legacy-modes/mode/toml";
import { html, useEffect, useRef, useSignal } from "../ui.js";
import { access, may } from "../model/access.js";
import { presentDocument, writeDocument } from "../model/documents.js";
import { messageOf } from "../model/errors.js";
import { lookNow, unmapped } from "../model/health.js";
import { fileName, part, toToml, UNITS, valuesOf } from "../model/mapping_draft.js";
import { mappingFiles, mappingPath, testMapping, unmappedTopic } from "../model/mapping_files.js";
import { usePolled } from "../model/polled.js";
import { compare, formatNumber, formatTime, t } from "../model/text.js";
import { useAction } from "../parts/action.js";
import { Editor } from "../parts/editor.js";
import { FileFault } from "../parts/english.js";
import { MappingPreview, marksOf } from "../parts/mapping_preview.js";
import { useUnsaved } from "../parts/unsaved.js";

const AGAIN = 5000;  // ms

/** `name` is the topic to be mapped; empty: all of them. */
export function Page({ name: topic }) {
  useEffect(() => { document.title = `${t("new.title")} · sepa-edge`; }, []);
  if (!access.value) return html`<h1>${t("new.title")}</h1>`;
  if (!may("administer")) return html`<h1>${t("new.title")}</h1><p class="note">${t("new.forbidden")}</p>`;
  return topic ? html`<${Draft} key=${topic} topic=${topic} />` : html`<${Choice} />`;
}

function Choice() {
  const [files, error] = usePolled(mappingFiles, AGAIN);
  useEffect(() => { lookNow(); }, []);
  const topics = unmapped.value ?? [];
  return html`<h1>${t("new.title")}</h1>
    <section class="panel wide" id="topics"><h2>${t("system.unmapped")}</h2>
      <p>${topics.length ? t("new.text") : t("new.none")}</p>
      <ul class="list">${topics.map(({ topic, last_payload: payload, count, last_seen: seen }) => html`<li key=${topic}>
        <p><b dir="auto">${topic}</b> <small>${t("new.messages", { n: count })}, ${formatTime(Date.parse(seen))}</small></p>
        <p><code dir="ltr">${payload}</code></p>
        <a class="button" href=${`#/new/${encodeURIComponent(topic)}`}>${t("new.map")}</a></li>`)}</ul>
    </section>
    <section class="panel wide" id="files"><h2>${t("mapping.files")}</h2>
      <p class="problem" role="alert">${error}</p>
      <p>${files.value?.length ? "" : t("mapping.none")}</p>
      <ul class="list">${files.value?.map(({ file, name, fault, faults }) => html`<li key=${file}>
        <p>${name ? html`<a href=${`#/mapping/${encodeURIComponent(name)}`}>${file}</a>` : file}</p>
        ${fault && html`<${FileFault} reason=${fault} faults=${faults} />`}</li>`)}</ul>
      <a class="button" href="#/mapping/">${t("mapping.new")}</a>
    </section>`;
}

function Draft({ topic }) {
  const sample = useSignal(undefined), problem = useSignal("");
  useEffect(() => {
    unmappedTopic(topic).then((found) => { sample.value = found; }, (error) => { problem.value = messageOf(error); });
  }, []);
  return html`<p class="path"><a href="#/new">${t("new.title")}</a></p><h1 dir="auto">${topic}</h1>
    <p class="problem" role="alert">${problem}</p>
    ${sample.value && html`<${Form} sample=${sample.value} />`}`;
}

function Form({ sample }) {
  const { topic, payload, hex } = sample;
  const message = payload === null ? { topic, hex: hex ?? "" } : { topic, payload };
  const device = useSignal(topic.split("/").filter(Boolean).at(-1)?.replaceAll("_", " ") ?? topic), place = useSignal("");
  const values = useSignal(payload === null ? undefined : valuesOf(payload));
  const byHand = useSignal(undefined);  // the text, once the user writes it
  const file = useSignal(undefined), saved = useSignal(false), problem = useSignal(""), marks = useSignal(undefined);
  const name = file.value ?? fileName(device.value);
  // SenML and bytes need more than names: the gateway suggests a mapping.
  useEffect(() => {
    if (!values.value) testMapping(message, "new").then(({ suggestion }) => { byHand.value ??= opened.current = suggestion ?? ""; }, (error) => { problem.value = messageOf(error); });
  }, []);
  const chosen = values.value?.some((each) => each.chosen);
  const text = byHand.value ?? (chosen ? toToml({ topic, device: device.value, place: place.value, values: values.value }) : "");
  const opened = useRef(text);
  useUnsaved(!saved.value && text !== opened.current);
  const change = (index, changes) => { values.value = values.value.map((each, at) => (at === index ? { ...each, ...changes } : each)); };
  const [act, refused, busy] = useAction({ alone: true });
  const save = (event) => {
    event.preventDefault();
    problem.value = "";
    act(async () => {
      const there = (await mappingFiles()).some((each) => each.name === name) ? await presentDocument(mappingPath(name)) : { tag: null };
      if (there.text !== undefined && there.text !== text && !confirm(t("new.replace", { name }))) return;
      await writeDocument(mappingPath(name), text, there.tag);
      saved.value = true;
      lookNow();
    });
  };
  if (saved.value) {
    return html`<section class="panel wide" id="saved" role="status"><h2>${t("new.saved", { name: `${name}.toml` })}</h2><p>${t("new.saved.text")}</p>
      <p><a href=${values.value ? `#/device/${encodeURIComponent(`urn:sepa-edge:device:${part(device.value)}`)}` : "#/"}>${t("new.open")}</a> · <a href=${`#/mapping/${name}`}>${t("new.edit")}</a> · <a href="#/new">${t("new.more")}</a></p></section>`;
  }
  return html`<form class="new" onSubmit=${save}>
    <section class="panel wide"><h2>${t("new.message")}</h2><pre tabindex="0" dir="ltr">${payload ?? hex ?? t("new.long")}</pre></section>
    ${values.value && byHand.value === undefined && html`<section class="panel wide">
      <h2>${t("new.device")}</h2>
      <div class="fields"><label for="device">${t("new.device.name")}</label><input id="device" required maxlength="100" value=${device.value} onInput=${(event) => { device.value = event.target.value; }} autocomplete="off" />
      <label for="place">${t("new.place")}</label><input id="place" maxlength="100" value=${place.value} onInput=${(event) => { place.value = event.target.value; }} autocomplete="off" placeholder=${t("new.place.example")} /></div>
      <h2>${t("new.values")}</h2>
      <ul class="list" id="values">${values.value.map((each, index) => html`<${Value} key=${each.path} value=${each} index=${index} change=${change} />`)}</ul>
    </section>`}
    <section class="panel wide"><${MappingPreview} message=${message} name=${name} text=${text} tested=${({ faults, warnings }) => { marks.value = marksOf([...faults, ...warnings]); }} /></section>
    <details class="panel wide" open=${!values.value}><summary>${t("new.toml")}</summary>
      <${Editor} mode=${toml} text=${text} label=${t("mapping.text")} change=${(written) => { if (written !== text) byHand.value = written; }} run=${() => {}} marks=${marks.value} />
      ${values.value && byHand.value !== undefined && html`<button type="button" onClick=${() => { byHand.value = undefined; }}>${t("new.form")}</button>`}
    </details>
    <section class="panel wide"><div class="fields"><label for="file">${t("new.file")}</label>
      <input id="file" required pattern="[A-Za-z0-9][A-Za-z0-9_\\-]*" maxlength="64" value=${name} onInput=${(event) => { file.value = event.target.value; }} autocomplete="off" /></div>
      <p class="problem" role="alert" dir="auto">${problem}</p>${refused}
      <button type="submit" id="save" aria-disabled=${busy} disabled=${!text.trim()}>${t("new.save")}</button></section>
  </form>`;
}

function Value({ value: { path, name, sample, kind, unit, chosen }, index, change }) {
  const id = `value-${index}`;
  const units = [...UNITS].sort(([, one], [, other]) => compare(one, other));
  return html`<li class="choice-of-value"><label><input type="checkbox" checked=${chosen} onChange=${(event) => change(index, { chosen: event.target.checked })} />
      <code dir="ltr">${path ?? t("new.whole")}</code></label>
    <code class="sample" dir="ltr">${kind === "number" && Number.isFinite(Number(sample)) ? formatNumber(Number(sample)) : sample.slice(0, 100)}</code>
    ${path !== undefined && html`<input aria-label=${t("new.value.name")} value=${name} disabled=${!chosen} maxlength="100" id=${id} onInput=${(event) => change(index, { name: event.target.value })} />`}
    ${kind === "number" && html`<select aria-label=${t("new.unit")} disabled=${!chosen} onChange=${(event) => change(index, { unit: event.target.value })}>
      <option value="" selected=${!unit}>${t("new.unit.none")}</option>
      ${units.map(([each, symbol]) => html`<option value=${each} selected=${each === unit}>${symbol} (${each})</option>`)}</select>`}
  </li>`;
}
