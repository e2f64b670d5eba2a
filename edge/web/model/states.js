// Values that are states, true and false or names: which ones there are, their colours, and when each was valid.

const COLOURS = ["--accent", "--wait", "--code-variable", "--bad", "--quiet", "--ink"];
const MINUTE = 60e3;  // ms; the interval of stored aggregates
const EXACT = 10;  // ms; of the times of the gateway

/** The states of rows [{value}]: false and true, or the names in the order in which they appeared. */
export function statesOf(rows) {
  const found = new Set(rows.map(({ value }) => value).filter((value) => value !== null));
  return [false, true].some((each) => found.has(each)) ? [false, true] : [...found];
}

/** The name of a CSS variable with the colour of a state. A name has the same colour everywhere; two can share one. */
export function colourOf(state) {
  if (typeof state === "boolean") return state ? "--accent" : "--quiet";
  let hash = 0;
  for (let index = 0; index < state.length; index += 1) hash = (31 * hash + state.charCodeAt(index)) >>> 0;
  return COLOURS[hash % COLOURS.length];
}

/** [{from, to, value, share}]: when each state was valid, of rows [{time, value}] with null for a gap. A state is valid until
 *  the next row, the last one until `end`; times in milliseconds. Equal states that follow each other are one.
 *  A row with {min, max, mean} stands for an interval of `step` (null: of stored aggregates). If the value was true and false
 *  in it, the interval is true with `share`, the part of its samples that were true; the last value follows it. */
export function periods(rows, end, step = null) {
  const found = [];
  const add = (from, to, value, share) => {
    const last = found.at(-1);
    if (last?.value === value && last.share === share && last.to === from) last.to = to;
    else found.push({ from, to, value, share });
  };
  rows.forEach(({ time, value, min, max, mean }, index) => {
    const to = Math.max(time, rows[index + 1]?.time ?? end);
    if (value === null) return;
    const both = min === false && max === true;
    const border = both ? Math.min(time + (step ?? MINUTE), to) : time;
    const rest = !both || to > border + EXACT;
    if (both) add(time, rest ? border : to, true, mean);
    if (rest) add(border, to, value, 1);
  });
  return found;
}
