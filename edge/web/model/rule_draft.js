// A rule (TOML) from the user's entries in the form, and the form of a rule.
import { quoted } from "./mapping_draft.js";

/** Units of durations, in seconds. */
export const UNITS = { seconds: 1, minutes: 60, hours: 3600, days: 86400 };
export const WATCHED = ["observation", "property", "query"];
export const TESTS = ["above", "below", "equals", "silent"];

/** A new rule. Durations are {amount, unit}; `value` is what `equals` compares with, of the kind `kind`. */
export const NEW = {
  label: "", enabled: true, watched: "observation", observation: "", property: "", place: "", test: "above", number: "", value: "true", kind: "boolean",
  silent: { amount: "1", unit: "hours" }, query: "SELECT ?observation ?value {\n  ?observation sosa:hasResult/qudt-1-1:numericValue ?value FILTER(?value > 30)\n}\n", key: "observation",
  lasts: { amount: "0", unit: "minutes" }, update: "", endLasts: { amount: "0", unit: "minutes" }, endUpdate: "",
};

/** The text of a rule. */
export function toToml(draft) {
  const lines = draft.label.trim() ? [`label = ${quoted(draft.label.trim())}`] : [];
  if (!draft.enabled) lines.push("enabled = false");
  const silent = draft.test === "silent";
  if (draft.watched === "query") {
    lines.push(`query = ${block(draft.query)}`);
    const names = draft.key.split(/[\s,?]+/).filter(Boolean);
    if (names.length) lines.push(`key = [${names.map(quoted).join(", ")}]`);
    if (silent) lines.push(`silent = "${toIso(draft.silent)}"`);
  } else {
    if (draft[draft.watched]) lines.push(`${draft.watched} = ${quoted(draft[draft.watched])}`);
    if (draft.watched === "property" && draft.place) lines.push(`place = ${quoted(draft.place)}`);
    if (silent) lines.push(`silent = "${toIso(draft.silent)}"`);
    else if (draft.test === "equals" && draft.kind === "text") lines.push(`equals = ${quoted(draft.value)}`);
    else if (draft.test === "equals") lines.push(...(draft.value === "" ? [] : [`equals = ${draft.value}`]));
    else if (draft.number !== "") lines.push(`${draft.test} = ${draft.number}`);
  }
  if (!silent && Number(draft.lasts.amount)) lines.push(`for = "${toIso(draft.lasts)}"`);
  if (draft.update.trim()) lines.push(`update = ${block(draft.update)}`);
  if (Number(draft.endLasts.amount)) lines.push(`end_for = "${toIso(draft.endLasts)}"`);
  if (draft.endUpdate.trim()) lines.push(`end_update = ${block(draft.endUpdate)}`);
  return `${lines.join("\n")}\n`;
}

/** The form of a rule with these keys; undefined if it has a condition that the form cannot show. */
export function fromKeys(keys) {
  if ("above" in keys && "below" in keys) return undefined;
  const watched = WATCHED.find((each) => each in keys), test = TESTS.find((each) => each in keys);
  const { equals } = keys;
  return {
    ...NEW, ...pick(keys, ["label", "enabled", "observation", "property", "place", "query", "update"]),
    watched: watched ?? NEW.watched,
    test: test ?? NEW.test,
    number: String(keys.above ?? keys.below ?? ""),
    ...(equals !== undefined && { value: String(equals), kind: typeof equals === "boolean" ? "boolean" : typeof equals === "number" ? "number" : "text" }),
    key: keys.key?.join(" ") ?? (watched === "query" ? "" : NEW.key),
    silent: fromIso(keys.silent) ?? NEW.silent,
    lasts: fromIso(keys.for) ?? NEW.lasts,
    endLasts: fromIso(keys.end_for) ?? NEW.endLasts,
    endUpdate: keys.end_update ?? "",
  };
}

/** Whether saving the form would lose something of a text: comments. */
export function hasComments(text) {
  return /^[ \t]*#/m.test(text);
}

function pick(keys, names) {
  return Object.fromEntries(names.filter((name) => name in keys).map((name) => [name, keys[name]]));
}

function toIso({ amount, unit }) {
  return `PT${Math.round(Number(amount) * UNITS[unit] * 1e6) / 1e6}S`;
}

/** A duration of ISO 8601 in the largest unit that it is a multiple of. */
function fromIso(text) {
  const found = /^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:[.,]\d+)?)S)?)?$/.exec(text ?? "");
  if (!found) return undefined;
  const [weeks, days, hours, minutes, seconds] = found.slice(1).map((each) => Number((each ?? "0").replace(",", ".")));
  const total = (weeks * 7 + days) * 86400 + hours * 3600 + minutes * 60 + seconds;
  const unit = Object.keys(UNITS).reverse().find((each) => total && total % UNITS[each] === 0) ?? (total ? "seconds" : "minutes");
  return { amount: String(total / UNITS[unit]), unit };
}

function block(text) {
  const inside = text.trim().replace(/\\/g, "\\\\").replace(/"""/g, '\\"\\"\\"').replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `"""\n${inside}\n"""`;
}
