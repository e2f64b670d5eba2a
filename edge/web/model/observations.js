// Current observations: the rows of one subscription, kept up to date by its notifications. Independent of the page.

const VARIABLES = ["value", "time", "label", "place", "sensor", "property", "unit"];

/** The rows of the subscription, as a bag: a row counts as often as it was added more than removed. */
export class Observations {
  #rows = new Map();  // observation IRI -> its rows, nearly always one
  #age = 0;

  clear() { this.#rows.clear(); }

  /** Apply the rows of a notification. Returns the IRIs of the observations that they concern. */
  apply(removed, added) {
    const touched = new Set();
    for (const binding of removed) {
      const id = binding.observation.value;
      const rows = this.#rows.get(id);
      const known = rows?.findIndex((row) => same(row.binding, binding)) ?? -1;
      touched.add(id);
      if (known >= 0 && --rows[known].count === 0) rows.splice(known, 1);
    }
    for (const binding of added) {
      const id = binding.observation.value;
      let rows = this.#rows.get(id);
      if (!rows) this.#rows.set(id, rows = []);
      const known = rows.find((row) => same(row.binding, binding));
      touched.add(id);
      if (known) known.count += 1;
      else rows.push({ count: 1, age: ++this.#age, binding });
    }
    for (const id of touched) if (this.#rows.get(id)?.length === 0) this.#rows.delete(id);
    return touched;
  }

  /** The newest row of an observation, by variable; undefined if the observation has none. */
  newest(id) {
    const rows = this.#rows.get(id);
    return rows?.reduce((one, other) => (newer(other, one) ? other : one)).binding;
  }
}

function newer(row, other) {
  const [mine, its] = [Date.parse(row.binding.time?.value), Date.parse(other.binding.time?.value)];
  return Number.isFinite(mine) && Number.isFinite(its) && mine !== its ? mine > its : row.age > other.age;
}

function same(one, other) {
  return VARIABLES.every((name) => sameTerm(one[name], other[name]));
}

function sameTerm(one, other) {
  if (one === undefined || other === undefined) return one === other;
  return one.value === other.value && one.datatype === other.datatype && one.type === other.type
    && one["xml:lang"] === other["xml:lang"];
}
