// The rights of a client, as fields of a form.
import { html, useSignal } from "../ui.js";
import { t } from "../model/text.js";

const ACTIONS = ["query", "subscribe", "update", "administer"];
const LISTS = ["read", "write", "publish", "receive"];
const PRIORITIES = ["high", "normal", "low"];

/** Rights for frequent kinds of clients. */
export const PRESETS = {
  reader: { actions: ["query", "subscribe"], read: null, write: [], publish: [], receive: null, priority: "normal" },
  sensor: { actions: [], read: [], write: [], publish: ["room/#"], receive: [], priority: "normal" },
  application: { actions: ["query", "subscribe", "update"], read: null, write: null, publish: null, receive: null, priority: "normal" },
  operator: { actions: ACTIONS, read: null, write: null, publish: null, receive: null, priority: "normal" },
};

export function Rights({ rights }) {
  return html`<fieldset><legend>${t("rights.actions")}</legend>${ACTIONS.map((action) => html`<label><input type="checkbox" name="action" value=${action} defaultChecked=${rights.actions.includes(action)} /> ${t(`rights.${action}`)}</label>`)}</fieldset>
    ${LISTS.map((name) => html`<${List} name=${name} names=${rights[name]} />`)}
    <fieldset><legend>${t("rights.priority")}</legend>
      <select name="priority" aria-label=${t("rights.priority")}>${PRIORITIES.map((each) => html`<option value=${each} selected=${each === rights.priority}>${t(`rights.${each}`)}</option>`)}</select></fieldset>`;
}

function List({ name, names }) {
  const kind = useSignal(names === null ? "all" : names.length ? "some" : "none");
  const topics = name === "publish" || name === "receive";
  return html`<fieldset><legend>${t(`rights.${name}`)}</legend>
    ${["all", "none", "some"].map((each) => html`<label><input type="radio" name=${name} value=${each} checked=${kind.value === each} onChange=${() => { kind.value = each; }} /> ${t(topics ? `rights.topics.${each}` : `rights.graphs.${each}`)}</label>`)}
    ${kind.value === "some" && html`<textarea name=${`${name}-list`} rows="3" spellcheck="false" aria-label=${t(`rights.${name}`)} defaultValue=${shown(names ?? [], topics)}></textarea>`}
  </fieldset>`;
}

function shown(names, topics) {
  return names.map((each) => (topics ? each : each || "default")).join("\n");
}

/** The rights that the fields of a form describe. */
export function rightsOf(form) {
  const fields = new FormData(form);
  const list = (name) => {
    if (fields.get(name) !== "some") return fields.get(name) === "all" ? null : [];
    const lines = fields.get(`${name}-list`).split("\n").map((line) => line.trim()).filter(Boolean);
    return name === "publish" || name === "receive" ? lines : lines.map((line) => (line === "default" ? "" : line));
  };
  return { actions: fields.getAll("action"), ...Object.fromEntries(LISTS.map((name) => [name, list(name)])), priority: fields.get("priority") };
}

/** Rights in a few words. */
export function summary(rights) {
  const actions = ACTIONS.filter((each) => rights.actions.includes(each)).map((each) => t(`rights.${each}`));
  const limits = LISTS.filter((name) => rights[name]?.length).map((name) => `${t(`rights.${name}`)}: ${shown(rights[name], name === "publish" || name === "receive").replaceAll("\n", ", ")}`);
  return [actions.join(", ") || t("rights.nothing"), ...limits].join(" · ");
}
