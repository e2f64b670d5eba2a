// Current observations: the rows of one subscription, kept up to date by its notifications. Independent of the page.

import { SYMBOLS } from "./units.js";

export const QUERY = `PREFIX sosa: <http://www.w3.org/ns/sosa/>
PREFIX qudt: <http://qudt.org/1.1/schema/qudt#>
PREFIX time: <http://www.w3.org/2006/time#>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?observation ?label ?place ?value ?unit ?time WHERE {
  ?observation a sosa:Observation ; sosa:hasResult ?quantity .
  ?quantity a qudt:QuantityValue ; qudt:numericValue ?value .
  OPTIONAL { ?observation rdfs:label ?label }
  OPTIONAL { ?observation sosa:hasFeatureOfInterest ?place }
  OPTIONAL { ?quantity qudt:unit ?unit }
  OPTIONAL { ?quantity time:hasTime ?instant . ?instant time:inXSDDateTimeStamp ?time }
}`;

// Title of the card of observations without a place.
export const NO_PLACE = "No place";

export function localName(iri) {
  const name = iri.replace(/[/#:]+$/, "").split(/[/#]/).pop().split(":").pop() || iri;
  try { return decodeURIComponent(name); } catch { return name; }
}

export function unitSymbol(iri) {
  if (!iri) return "";
  const name = localName(iri);
  return Object.hasOwn(SYMBOLS, name) ? SYMBOLS[name] : name;
}

/** The name of a place without its IRI's path. Different places can have the same name. */
export function placeName(iri) {
  return iri ? localName(iri).replaceAll("_", " ") : NO_PLACE;
}

/** A label without the name of the place under which it stands: "Temperature of Kitchen" is "Temperature" there. */
export function labelAt(label, place) {
  const name = place.toLowerCase(), text = label.replaceAll("_", " "), lower = text.toLowerCase();
  if (name.length < 2 || lower.length !== label.length) return label;
  let rest = "";
  for (const word of [" of ", " at ", " in ", ", ", " – ", " - "]) {
    if (lower.endsWith(word + name)) rest = label.slice(0, -(word + name).length);
  }
  for (const word of [" ", ": ", ", ", " – ", " - "]) {
    if (lower.startsWith(name + word)) rest = label.slice((name + word).length);
  }
  rest = rest.trim();
  return rest ? rest[0].toUpperCase() + rest.slice(1) : label;
}

/** The rows of the subscription, as a bag: a row counts as often as it was added more than removed. */
export class Observations {
  #rows = new Map();
  #age = 0;

  clear() { this.#rows.clear(); }

  get size() { return this.#rows.size; }

  apply(removed, added) {
    for (const binding of removed) {
      const known = this.#rows.get(keyOf(binding));
      if (known && --known.count === 0) this.#rows.delete(keyOf(binding));
    }
    for (const binding of added) {
      const known = this.#rows.get(keyOf(binding));
      if (known) known.count += 1;
      else this.#rows.set(keyOf(binding), { count: 1, age: ++this.#age, binding });
    }
  }

  /** One entry for each observation, the newest of its rows: {id, label, place, value, unit, time}.
   *  `id` and `place` are IRIs, `unit` is a symbol. */
  current() {
    const newest = new Map();
    for (const row of this.#rows.values()) {
      const id = row.binding.observation.value;
      const other = newest.get(id);
      if (!other || newer(row, other)) newest.set(id, row);
    }
    return [...newest.entries()].map(([id, { binding }]) => ({
      id,
      label: binding.label?.value || localName(id),
      place: binding.place?.value ?? "",
      value: binding.value.value,
      unit: unitSymbol(binding.unit?.value),
      time: binding.time?.value,
    }));
  }
}

function newer(row, other) {
  const [mine, its] = [Date.parse(row.binding.time?.value), Date.parse(other.binding.time?.value)];
  return Number.isFinite(mine) && Number.isFinite(its) && mine !== its ? mine > its : row.age > other.age;
}

function keyOf(binding) {
  return JSON.stringify(["observation", "label", "place", "value", "unit", "time"].map((name) => {
    const term = binding[name];
    return term ? [term.type, term.value, term.datatype, term["xml:lang"]] : null;
  }));
}
