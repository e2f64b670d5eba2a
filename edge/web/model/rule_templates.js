// Templates of rules: situations that most homes and machine rooms have.
import { entries } from "./live.js";
import { localName } from "./names.js";
import { NEW } from "./rule_draft.js";

const MINUTES = (amount) => ({ amount: String(amount), unit: "minutes" });
const STATE = (value) => ({ test: "equals", kind: "boolean", value });

/** Name -> the properties that it watches, the best one first; whether it is about one value or all; the other fields. */
const TEMPLATES = {
  warm: { of: ["temperature", "device_temperature", "soil_temperature"], all: true, test: "above", number: "28", lasts: MINUTES(10) },
  cold: { of: ["temperature", "device_temperature", "soil_temperature"], all: true, test: "below", number: "5", lasts: MINUTES(10) },
  damp: { of: ["humidity", "soil_moisture"], test: "above", number: "65", lasts: MINUTES(5), endLasts: MINUTES(10), answers: true },
  light: { of: ["occupancy", "presence", "motion"], ...STATE("true"), endLasts: MINUTES(2), answers: true },
  open: { of: ["contact", "opening"], all: true, ...STATE("false"), lasts: MINUTES(10) },
  leak: { of: ["water_leak", "leak", "smoke", "gas", "carbon_monoxide"], all: true, ...STATE("true") },
  battery: { of: ["battery"], all: true, test: "below", number: "15" },
  offline: { of: ["available"], all: true, ...STATE("false"), lasts: MINUTES(10) },
  silent: { of: ["temperature", "humidity", "power"], all: true, test: "silent", silent: { amount: "6", unit: "hours" } },
};

export const NAMES = Object.keys(TEMPLATES);

/** Whether a template sets a value when the situation begins, and another when it ends. */
export function answers(name) {
  return Boolean(TEMPLATES[name].answers);
}

/** The form of a template with this label: about the values that the gateway has. */
export function fromTemplate(name, label) {
  const { of, all, answers: _, ...fields } = TEMPLATES[name];
  const found = [...entries.values()].filter(({ blank, property }) => !blank && property);
  const best = of.map((wanted) => found.find(({ property }) => localName(property).toLowerCase() === wanted)).find(Boolean);
  const watched = all ? { watched: "property", property: best?.property ?? "" } : { watched: "observation", observation: best?.id ?? "" };
  return { ...NEW, ...watched, ...fields, label };
}
