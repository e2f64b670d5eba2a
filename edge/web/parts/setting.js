// A field for an update that sets a value at its device, without SPARQL.
import { html, useEffect, useSignal } from "../ui.js";
import { fullName, isDiagnostic } from "../model/devices.js";
import { literalOf, setBy, settable, settingUpdate } from "../model/desired.js";
import { entries } from "../model/live.js";
import { compare, t } from "../model/text.js";
import { wordOf } from "../model/values.js";

/** `text` is the update; `usual` is the state of a switch that is chosen first. `change` gets another update. */
export function Setting({ id, label, text, usual, change }) {
  const found = useSignal(undefined);
  useEffect(() => {
    const ids = [...entries.values()].filter((entry) => !entry.blank && !isDiagnostic(entry)).map((entry) => entry.id);
    settable(ids).then((answer) => { found.value = answer; }, (error) => { console.warn(error); found.value = {}; });
  }, []);
  if (!found.value) return null;
  const set = setBy(text), how = set && (found.value[set.observation] ?? { kind: "text" });
  const ids = [...new Set([...Object.keys(found.value), ...(set ? [set.observation] : [])])];
  const choices = ids.map((iri) => ({ iri, name: entries.has(iri) ? fullName(entries.get(iri)) : iri })).sort((one, other) => compare(one.name, other.name));
  const own = !set && text.trim() !== "";
  const choose = (event) => {
    const iri = event.target.value;
    change(iri ? settingUpdate(iri, literalOf(found.value[iri], first(found.value[iri], usual))) : "");
  };
  return html`<label for=${id}>${label}</label><span class="bar"><select id=${id} disabled=${own} onChange=${choose}>
      <option value="" selected=${!set}>${t(own ? "rule.set.own" : choices.length ? "rule.set.none" : "rule.set.nothing")}</option>
      ${choices.map(({ iri, name }) => html`<option value=${iri} selected=${iri === set?.observation}>${name}</option>`)}</select>
    ${set && html`<${Value} id=${`${id}-value`} how=${how} property=${entries.get(set.observation)?.property} literal=${set.literal} change=${(literal) => change(settingUpdate(set.observation, literal))} />`}</span>`;
}

function first({ kind, choices, min }, usual) {
  return kind === "switch" ? usual : kind === "choice" ? choices[0] : kind === "number" ? String(min ?? 0) : "";
}

function Value({ id, how, property, literal, change }) {
  const { kind, choices, min, max, step } = how;
  const value = kind === "switch" || kind === "number" ? literal : textOf(literal);
  const label = t("rule.set.value");
  const enter = (event) => change(literalOf(how, event.target.value));
  if (kind === "switch" || kind === "choice") {
    const all = kind === "switch" ? ["true", "false"] : choices;
    return html`<select id=${id} aria-label=${label} onChange=${enter}>${all.map((each) => html`<option value=${each} selected=${each === value}>${kind === "switch" ? wordOf(each === "true", property) : each}</option>`)}</select>`;
  }
  // An empty number would be no SPARQL: it becomes the update with the next figure.
  return html`<input id=${id} aria-label=${label} type=${kind === "number" ? "number" : "text"} min=${min ?? ""} max=${max ?? ""} step=${step ?? "any"} required value=${value}
    onInput=${(event) => (kind !== "number" || event.target.value !== "") && enter(event)} />`;
}

function textOf(literal) {
  try {
    return JSON.parse(literal);
  } catch {
    return literal;
  }
}
