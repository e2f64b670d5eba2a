// The profile of an application (JSAP): its updates and queries as forms with typed fields.
import { html, signal, useSignal } from "../ui.js";
import { getJson } from "../model/gateway.js";
import { t } from "../model/text.js";
import { useAction } from "./action.js";

const XSD = "http://www.w3.org/2001/XMLSchema#";
const NUMBERS = ["integer", "decimal", "double", "float", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger"].map((name) => XSD + name);
const INPUTS = { [`${XSD}date`]: "date", [`${XSD}time`]: "time" };

/** The chosen profile: {name, text, entries}. It stays while the page is open. */
const profile = signal(undefined);

/** `kind` is query or update; `fill` is called with the text of an entry. */
export function Profile({ kind, fill }) {
  const [act, problem] = useAction();
  const chosen = useSignal("");
  const open = (event) => {
    const [file] = event.target.files;
    if (!file) return;
    act(async () => {
      const given = { name: file.name, text: await file.text() };
      profile.value = { ...given, ...(await ask(given)) };
      chosen.value = "";
    });
  };
  const entries = (profile.value?.entries ?? []).filter((entry) => entry.kind === kind);
  const entry = entries.find(({ name }) => name === chosen.value) ?? entries[0];
  return html`<div class="panel wide" id="profile"><p>${t("profile.text")}</p>
    <label class="choice">${t("profile.file")} <input type="file" accept=".jsap,.json,.yaml,.yml" onChange=${open} /></label>
    ${profile.value && html`<p>${t(`profile.entries.${kind}`, { n: entries.length })} <b dir="auto">${profile.value.name}</b></p>`}
    ${entry && html`<label class="choice">${t("profile.entry")} <select onChange=${(event) => { chosen.value = event.target.value; }}>${entries.map(({ name }) => html`<option value=${name} selected=${name === entry.name}>${name}</option>`)}</select></label>
      <${Fields} key=${`${kind} ${entry.name}`} entry=${entry} fill=${fill} />`}
    ${problem}</div>`;
}

function ask(members) {
  return getJson("/api/profile", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(members) });
}

function Fields({ entry: { kind, name, variables, default_graphs: graphs }, fill }) {
  const [act, problem] = useAction();
  const submit = (event) => {
    event.preventDefault();
    const fields = event.target.elements;
    const given = variables.filter((variable) => fields[`value-${variable.name}`].value !== "");
    const bindings = Object.fromEntries(given.map((variable) => [variable.name, fields[`value-${variable.name}`].value]));
    act(async () => fill((await ask({ name: profile.peek().name, text: profile.peek().text, kind, entry: name, bindings })).sparql));
  };
  return html`<form onSubmit=${submit}><div class="fields">${variables.map((variable) => html`<${Field} variable=${variable} />`)}</div>
    ${graphs && html`<p>${t("profile.graphs", { graphs: graphs.join(", ") })}</p>`}
    <button type="submit">${t("profile.fill")}</button>${problem}</form>`;
}

function Field({ variable: { name, type, datatype, language, default: value } }) {
  const id = `value-${name}`, attributes = { id, name: id, placeholder: value ?? "", required: value === null };
  const what = type === "uri" ? t("profile.uri") : type === "bnode" ? t("profile.bnode") : language ?? (datatype ? datatype.split("#").at(-1) : t("profile.literal"));
  return html`<label for=${id}>${name} <small>${what}</small></label>
    ${datatype === `${XSD}boolean`
    ? html`<select ...${attributes}>${value !== null && html`<option value="">${value}</option>`}<option>true</option><option>false</option></select>`
    : html`<input ...${attributes} type=${INPUTS[datatype] ?? "text"} inputmode=${NUMBERS.includes(datatype) ? "decimal" : type === "uri" ? "url" : "text"} autocomplete="off" spellcheck=${type === "literal"} dir="auto" />`}`;
}
