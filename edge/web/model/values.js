// Values for people: a number with its unit, a word for true and false.
import { SYMBOLS } from "../units.js";
import { localName } from "./names.js";
import { duration, formatNumber, has, t } from "./text.js";

const NUMERIC = /#(integer|decimal|double|float|long|int|short|byte|unsigned\w+|nonNegativeInteger|positiveInteger|nonPositiveInteger|negativeInteger)$/;
export const BOOLEAN = "http://www.w3.org/2001/XMLSchema#boolean";

export function unitSymbol(iri) {
  if (!iri) return "";
  const name = localName(iri);
  return Object.hasOwn(SYMBOLS, name) ? SYMBOLS[name] : name;
}

/** Value and unit as they are shown. Large numbers of bytes and seconds are hard to read, so they get larger units. */
export function readable(value, unit, datatype, property) {
  if (datatype === BOOLEAN) return [wordOf(value === "true" || value === "1", property), ""];
  const number = NUMERIC.test(datatype) ? Number(value) : NaN;
  // A double would not have all digits of a long integer.
  if (value.trim() === "" || !Number.isFinite(number) || (Number.isInteger(number) && !Number.isSafeInteger(number))) return [value, unit];
  if (unit === "B" && Math.abs(number) >= 1000) {
    const power = Math.min(4, Math.floor(Math.log10(Math.abs(number)) / 3));
    return [formatNumber(Number((number / 1000 ** power).toPrecision(3))), ["", "k", "M", "G", "T"][power] + "B"];
  }
  if (unit === "s" && number >= 120) return [duration(number), ""];
  return [formatNumber(number), unit];
}

// Properties whose two states have words of their own, by the last part of their IRIs.
const WORDS = {
  on: ["state", "power", "switch", "relay", "light", "output", "plug", "heating", "running"],
  open: ["open", "door", "window", "opening", "garage_door", "cover"],
  contact: ["contact"],  // Zigbee: true is a closed contact
  detected: ["occupancy", "presence", "motion", "vibration", "tamper", "moving", "sound"],
  alarm: ["smoke", "gas", "carbon_monoxide", "water_leak", "moisture", "problem", "safety"],
  online: ["available", "connectivity", "online", "connected", "reachable"],
  low: ["battery_low"],
  locked: ["lock", "locked"],
};

/** The word for a boolean value of a property. */
export function wordOf(value, property) {
  const name = localName(property).toLowerCase();
  const kind = Object.keys(WORDS).find((each) => WORDS[each].includes(name)) ?? "yes";
  return t(`word.${kind}.${value}`);
}

/** The name of a property: from the catalogue, or the end of its IRI. */
export function propertyName(property) {
  const name = localName(property);
  return has(`property.${name.toLowerCase()}`) ? t(`property.${name.toLowerCase()}`) : name.replaceAll("_", " ");
}
