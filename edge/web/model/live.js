// The live values: one entry for each observation. A new value of an entry changes its signal only; the lists of the
// pages are made again if an entry appears, goes, or gets another place, device, property, unit or label.
import { batch, signal } from "../ui.js";
import { connection, subscribe } from "./connection.js";
import { QUERY, VALUES } from "./first_connection.js";
import { deviceOf, localName, readableName } from "./names.js";
import { Observations } from "./observations.js";
import { language } from "./text.js";
import { unitSymbol } from "./values.js";

/** Names of devices: those that users gave (sosa:Platform), and those of mappings (sosa:Sensor). */
const NAMES = (type) => `PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?device ?name WHERE { ?device a sosa:${type} ; rdfs:label ?name }`;

const PAUSE = 50, LONG_PAUSE = 100;  // ms; the page changes once for all notifications within this time
const MANY = 20;  // changes at a time from which the pause is long: drawing takes most of the time

/** Observation IRI -> entry: {key, id, label, place, sensor, device, property, unit, reading}. `unit` is a symbol, the
 *  others are IRIs or ""; `reading` is a signal of {value, datatype, time}, with the time in milliseconds or NaN. A component with the
 *  `key` follows one entry. */
export const entries = new Map();
/** Increases when the entries themselves change, not only their values. */
export const version = signal(0);
/** Names of devices that do not follow from their IRIs: of users, and of mappings (`sensor_label`). By IRI. */
export const names = signal(new Map());
/** Whether the first result has arrived since the page was opened. */
export const known = signal(false);
/** The current time in milliseconds, every 5 seconds. */
export const now = signal(Date.now());

const labels = { Platform: new Map(), Sensor: new Map() };  // by type: device IRI -> its labels, by text and language
const observations = new Observations();
let changed = new Set();
let created = 0;
let timer;
let pause = PAUSE;

function begin() {
  changed = new Set(entries.keys());
  observations.clear();
}

function change(removed, added) {
  for (const id of observations.apply(removed, added)) changed.add(id);
  if (!known.peek()) return publish();
  // A timer also runs in a hidden tab, unlike requestAnimationFrame.
  timer ??= setTimeout(publish, pause);
}

function publish() {
  timer = undefined;
  const ids = changed;
  changed = new Set();
  pause = ids.size < MANY ? PAUSE : LONG_PAUSE;
  let moved = !known.peek();
  batch(() => {
    for (const id of ids) moved = publishOne(id) || moved;
    known.value = true;
    if (moved) version.value += 1;
  });
}

function publishOne(id) {
  const row = observations.newest(id);
  const before = entries.get(id);
  if (!row) return entries.delete(id);
  const reading = { value: row.value.value, datatype: row.value.datatype, time: Date.parse(row.time?.value) };
  const sensor = row.sensor?.value ?? "";
  const about = {
    id,
    blank: row.observation.type === "bnode" || row.sensor?.type === "bnode",
    label: row.label?.value || localName(id),
    place: row.place?.value ?? "",
    sensor,
    device: deviceOf(sensor),
    property: row.property?.value ?? "",
    unit: unitSymbol(row.unit?.value),
  };
  if (before && Object.keys(about).every((name) => before[name] === about[name])) {
    const last = before.reading.peek();
    if (last.value !== reading.value || !Object.is(last.time, reading.time) || last.datatype !== reading.datatype) {
      before.reading.value = reading;
    }
    return false;
  }
  entries.set(id, { ...about, key: `${++created} ${id}`, reading: signal(reading) });
  return true;
}

/** Forget everything, because the user may no longer see it. */
export function forgetAll() {
  clearTimeout(timer);
  timer = undefined;
  changed.clear();
  observations.clear();
  entries.clear();
  batch(() => {
    known.value = false;
    for (const type of Object.keys(labels)) beginNames(type);
    version.value += 1;
  });
}

function beginNames(type) {
  labels[type].clear();
  publishNames();
}

function changeNames(type, removed, added) {
  const known = labels[type];
  for (const { device, name } of removed) known.get(device.value)?.delete(labelKey(name));
  for (const { device, name } of added) {
    if (!known.has(device.value)) known.set(device.value, new Map());
    known.get(device.value).set(labelKey(name), name);
  }
  publishNames();
}

function publishNames() {
  const next = new Map();
  for (const [device, all] of [...labels.Sensor, ...labels.Platform]) {  // the name of a user replaces that of a mapping
    const visible = [...all.values()].filter(({ value }) => /[\p{L}\p{N}\p{P}\p{S}]/u.test(value));
    const best = visible.find((each) => each["xml:lang"]?.startsWith(language)) ?? visible.find((each) => !each["xml:lang"]) ?? visible[0];
    if (best && best.value !== readableName(device)) next.set(device, best.value);
  }
  const before = names.peek();
  const same = next.size === before.size && [...next].every(([device, name]) => before.get(device) === name);
  if (!same) names.value = next;
}

/** Whether a user gave the device its name. */
export function isRenamed(device) {
  return names.value.has(device) && labels.Platform.get(device)?.size > 0;
}

function labelKey(name) {
  return `${name.value}@${name["xml:lang"] ?? ""}`;
}

subscribe(VALUES, QUERY, { begin, change });
for (const type of Object.keys(labels)) {
  subscribe(`devices ${type}`, NAMES(type), {
    begin: () => beginNames(type),
    change: (removed, added) => changeNames(type, removed, added),
  });
}
connection.subscribe(({ state }) => state === "locked" && forgetAll());
setInterval(() => { now.value = Date.now(); }, 5000);
