// A mapping (TOML) from the sample of a message and from the user's entries about its values.
import { SYMBOLS } from "../units.js";

const DEPTH = 6, MOST = 60;  // of the values in a payload
const NUMBER = /^\s*[-+]?\d+([.,]\d+)?\s*$/;
// Members whose names tell their unit.
const USUAL = [
  [/temp/i, "DegreeCelsius"], [/hum|moist|battery|percent/i, "Percent"], [/press/i, "Hectopascal"], [/volt/i, "Volt"], [/lux|illum/i, "Lux"],
  [/power|watt/i, "Watt"], [/energy|kwh/i, "KilowattHour"], [/current|amp/i, "Ampere"],
];

/** Names of units that a mapping can use, with their symbols. */
export const UNITS = Object.entries(SYMBOLS).filter(([name, symbol]) => symbol && /^[A-Z][A-Za-z]*[a-z][A-Za-z]*$/.test(name));

/** The values of a payload: [{path, name, sample, kind, unit, chosen}]; `kind` is number, boolean or string. A payload
 *  that is not a JSON object or list is one value without a path. undefined: the payload needs a mapping by hand. */
export function valuesOf(payload) {
  let document;
  try {
    document = JSON.parse(payload);
  } catch {
    document = undefined;
  }
  if (typeof document !== "object" || document === null) {
    const text = payload.trim();
    const kind = /^(on|off|true|false)$/i.test(text) ? "boolean" : /\d/.test(text) ? "number" : "string";
    return [{ path: undefined, name: "", sample: text, kind, unit: "", chosen: true }];
  }
  // SenML (RFC 8428) has its own kind of payload.
  if (Array.isArray(document) && document.some((each) => each && ("n" in each || "bn" in each))) return undefined;
  const found = [];
  leaves(document, "", "", 0, found);
  return found;
}

function leaves(value, path, name, depth, found) {
  if (found.length >= MOST || depth > DEPTH) return;
  if (Array.isArray(value)) {
    value.forEach((each, index) => leaves(each, `${path}[${index}]`, `${name}_${index}`.replace(/^_/, ""), depth + 1, found));
  } else if (typeof value === "object" && value !== null) {
    for (const [member, each] of Object.entries(value)) {
      const plain = /^[A-Za-z_][A-Za-z0-9_]*$/.test(member);
      // Paths have no escapes, so a name with both kinds of quotes cannot be in one.
      const quote = ['"', "'"].find((each) => !member.includes(each));
      if (!quote) continue;
      const next = plain ? (path ? `${path}.${member}` : member) : `${path}[${quote}${member}${quote}]`;
      leaves(each, next, name ? `${name}_${member}` : member, depth + 1, found);
    }
  } else if (value !== null) {
    const kind = typeof value === "string" && !NUMBER.test(value) ? "string" : typeof value === "boolean" ? "boolean" : "number";
    const unit = kind === "number" ? USUAL.find(([pattern]) => pattern.test(name))?.[1] ?? "" : "";
    found.push({ path, name, sample: String(value), kind, unit, chosen: kind !== "string" });
  }
}

/** The mapping of a device: `values` as above, with the names that the user gave them. */
export function toToml({ topic, device, place, values }) {
  const chosen = values.filter((each) => each.chosen);
  const text = chosen.length === 1 && chosen[0].path === undefined;
  const base = `edge:device:${part(device)}`;
  const lines = ["[[mapping]]", `topic = ${quoted(braces(topic))}`];
  if (!text) lines.push('payload = "json"');
  lines.push(`sensor = ${quoted(base)}`);
  if (place.trim()) lines.push(`location = ${quoted(`edge:place:${part(place)}`)}`);
  const keys = (value) => [
    `observation = ${quoted(`${base}/${part(value.name || "value")}`)}`,
    `label = ${quoted(braces(readable(value.name) || device))}`,
    `property = ${quoted(`edge:property:${part(value.name || "value")}`)}`,
    ...(value.kind === "number" ? (value.unit ? [`unit = ${quoted(`unit:${value.unit}`)}`] : []) : [`datatype = ${quoted(value.kind)}`]),
  ];
  if (text) lines.push(...keys(chosen[0]));
  else lines.push("readings = [", ...chosen.map((value) => `  { path = ${quoted(value.path)}, ${keys(value).join(", ")} },`), "]");
  return `${lines.join("\n")}\n`;
}

/** A name as the last part of an IRI. */
export function part(name) {
  return name.trim().replace(/\s+/g, "_").replace(/[^\p{L}\p{N}_.-]/gu, (each) => encodeURIComponent(each).replace(/'/g, "%27"));
}

/** A name for the file of a device. */
export function fileName(device) {
  return device.normalize("NFKD").replace(/[^A-Za-z0-9]+/g, "-").replace(/^-+|-+$/g, "").toLowerCase().slice(0, 64) || "device";
}

function readable(name) {
  const text = name.replaceAll("_", " ").trim();
  return text && text[0].toUpperCase() + text.slice(1);
}

function braces(text) {
  return text.replace(/[{}]/g, "$&$&");
}

/** A text in TOML. */
export function quoted(text) {
  return JSON.stringify(text).replace(/\x7f/g, "\\u007f");
}
