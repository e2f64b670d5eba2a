// Names for people: of IRIs, places, devices, and of values within them.
import { t } from "./text.js";

const MOST = 2e4;
const names = new Map();  // of IRIs; thousands of values ask for them again and again

export function localName(iri) {
  if (!names.has(iri)) {
    if (names.size > MOST) names.clear();
    names.set(iri, endOf(iri));
  }
  return names.get(iri);
}

function endOf(iri) {
  // In a urn, names such as those of Zigbee2MQTT may have slashes: urn:…:place:living/lamp.
  const end = iri.startsWith("urn:") ? /:/ : /[/#:]/;
  const name = iri.replace(/[/#:]+$/, "").split(end).pop() || iri;
  try { return decodeURIComponent(name); } catch { return name; }
}

/** The name of a place or device without its IRI's path. Different ones can have the same name. */
export function readableName(iri, missing = t("place.none")) {
  return iri ? localName(iri).replaceAll("_", " ") : missing;
}

/** The device of a sensor: Tasmota names the parts of a device, `urn:…:plug1/ENERGY`. Other sensors are devices. */
export function deviceOf(sensor) {
  return sensor.replace(/^(urn:sepa-edge:tasmota:[^/]+)\/.*/s, "$1");
}

/** A label without the name of the card it stands on: "Temperature of Kitchen" is "Temperature" in the kitchen, and "Kitchen"
 *  among the temperatures. Identifiers in it are readable: "wind_avg" is "wind avg". What stands in brackets at its end stays. */
export function labelAt(label, name) {
  const brackets = / \([^()]*\)$/.exec(label)?.[0] ?? "";
  const text = label.replaceAll("_", " ");
  if (!brackets) return without(text, name);
  const short = text.slice(0, -brackets.length);
  const rest = without(short, name);
  return rest === short ? without(text, name) : rest + text.slice(-brackets.length);
}

/** In the names of devices, slashes divide what blanks divide in their labels. */
function comparable(text) {
  return text.toLowerCase().replaceAll("_", " ").replaceAll("/", " ");
}

function without(label, name) {
  const end = comparable(name), lower = comparable(label);
  if (end.length < 2 || lower.length !== label.length) return label;
  let rest = "";
  for (const word of [" of ", " at ", " in ", ", ", " – ", " - "]) {
    if (lower.endsWith(word + end)) rest = label.slice(0, -(word + end).length);
  }
  for (const word of [" ", " of ", " at ", " in ", ": ", ", ", " – ", " - "]) {
    if (lower.startsWith(end + word)) rest = label.slice((end + word).length);
  }
  rest = rest.trim();
  return rest ? rest[0].toUpperCase() + rest.slice(1) : label;
}
