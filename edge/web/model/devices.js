// What the values say about devices: their places, and whether they need attention.
import { computed } from "../ui.js";
import { entries, names, now, version } from "./live.js";
import { localName, readableName } from "./names.js";
import { isolated } from "./text.js";

const LOW_BATTERY = 15;  // per cent
const SILENT = 24 * 3600e3;  // ms without any value of a device
const MONTH = 30 * SILENT;

const DIAGNOSTIC = new Set([
  "available", "battery", "battery_low", "battery_ok", "linkquality", "link_quality", "rssi", "snr", "signal", "wifi_signal",
  "uptime", "name", "model", "manufacturer", "firmware", "update", "update_available", "connectivity", "ip", "ssid", "mac", "loadavg", "heap", "vcc",
]);

/** Whether a value is about the device itself, not about what it senses. */
export function isDiagnostic(entry) {
  return DIAGNOSTIC.has(localName(entry.property).toLowerCase());
}

const ABOUT = ["manufacturer", "model", "firmware"];

/** Description of a device, which is not among its values: {manufacturer, model, firmware}, each an entry or undefined. */
export function about(members) {
  return Object.fromEntries(ABOUT.map((name) => [name, members.find((entry) => localName(entry.property).toLowerCase() === name)]));
}

/** IRI of the device -> its entries. Observations without a sensor are not in it. */
export const devices = computed(() => {
  version.value;
  const found = new Map();
  for (const entry of entries.values()) {
    if (!entry.device) continue;
    if (!found.has(entry.device)) found.set(entry.device, []);
    found.get(entry.device).push(entry);
  }
  return found;
});

/** IRI of the device -> IRI of its place: the first one that is not the device. */
const places = computed(() => {
  const found = new Map();
  for (const [device, members] of devices.value) {
    const place = members.find((entry) => entry.place && entry.place !== device && entry.place !== entry.sensor)?.place;
    if (place) found.set(device, place);
  }
  return found;
});

/** The place of an entry. What a device says about itself belongs to the place of its other values. */
export function placeOf(entry) {
  const own = entry.place === "" || entry.place === entry.device || entry.place === entry.sensor;
  return (own && places.value.get(entry.device)) || entry.place;
}

/** The name of a device: the one that a user or a mapping gave it, or the end of its IRI. */
export function deviceName(device) {
  return names.value.get(device) ?? readableName(device);
}

/** IRI of a place -> name of the only device in it, after which the place is called: `urn:…:place:ID` of `urn:…:ID`. */
const placeNames = computed(() => {
  const found = new Map();
  if (!names.value.size) return found;
  version.value;
  for (const entry of entries.values()) {
    const place = placeOf(entry), name = names.value.get(entry.device);
    const called = name !== undefined && localName(place) === localName(entry.device) && (!found.has(place) || found.get(place) === name);
    found.set(place, called ? name : undefined);
  }
  return found;
});

/** The name of a place: of its device, if the place is called after it, or the end of its IRI. */
export function placeName(place) {
  return placeNames.value.get(place) ?? readableName(place);
}

/** The place, the device and the label of an entry: its name among all values. */
export function fullName(entry) {
  const place = placeOf(entry);
  return [place && placeName(place), entry.device && deviceName(entry.device), entry.label].filter(Boolean).map(isolated).join(" › ");
}

/** IRI of the device -> {offline, silentSince, battery}, for those that need attention. Looks every five seconds. */
export const troubles = computed(() => {
  const found = new Map();
  for (const [device, members] of devices.value) {
    const trouble = troubleOf(members, now.value);
    if (trouble) found.set(device, trouble);
  }
  return found;
});

/** Values that have not come for a month. What a device says about itself may be that old. */
export function unheard(members, at) {
  return members.filter((entry) => at - entry.reading.peek().time > MONTH && !isDiagnostic(entry));
}

/** Those of them whose messages still come, without them: perhaps no mapping gives them any more. A value with a topic of its
 *  own may be sent when it changes only. `topics`: IRI -> topic of these and of the other members. */
export function leftBehind(old, members, topics, at) {
  const sent = new Set(members.filter((entry) => at - entry.reading.peek().time < SILENT).map(({ id }) => topics.get(id)));
  return old.filter(({ id }) => topics.has(id) && sent.has(topics.get(id)));
}

function troubleOf(members, at) {
  let offline = false, battery, newest = -Infinity;
  for (const entry of members) {
    const name = localName(entry.property).toLowerCase(), { value, time } = entry.reading.peek();
    if (Number.isFinite(time)) newest = Math.max(newest, time);
    if (name === "available" && ["false", "0", "offline"].includes(value.toLowerCase())) offline = true;
    if (name === "battery" && entry.unit === "%" && value !== "" && Number(value) <= LOW_BATTERY) battery = Number(value);
    if (name === "battery_low" && (value === "true" || value === "1")) battery ??= "low";
    if (name === "battery_ok" && value !== "" && (value === "false" || Number(value) === 0)) battery ??= "low";  // rtl_433
  }
  const silentSince = Number.isFinite(newest) && at - newest > SILENT ? newest : undefined;
  return offline || silentSince !== undefined || battery !== undefined ? { offline, silentSince, battery } : undefined;
}
