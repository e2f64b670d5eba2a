// Values that are states, true and false or names: which ones there are, their colours, and when each was valid.

const COLOURS = ["--accent", "--wait", "--code-variable", "--bad", "--quiet", "--ink"];

/** The states of rows [{value}]: false and true, or the names in the order in which they appeared. */
export function statesOf(rows) {
  const found = new Set(rows.map(({ value }) => value).filter((value) => value !== null));
  return [false, true].some((each) => found.has(each)) ? [false, true] : [...found];
}

/** The name of a CSS variable with the colour of a state. */
export function colourOf(state, index) {
  return state === false ? "--quiet" : COLOURS[state === true ? 0 : index % COLOURS.length];
}

/** [{from, to, value}]: when each state was valid, of rows [{time, value}] with null for a gap. A state is valid until the
 *  next row, the last one until `end`; times in milliseconds. Equal states that follow each other are one. */
export function periods(rows, end) {
  const found = [];
  rows.forEach(({ time, value }, index) => {
    const to = Math.max(time, rows[index + 1]?.time ?? end);
    if (value === null) return;
    const last = found.at(-1);
    if (last?.value === value && last.to === time) last.to = to;
    else found.push({ from: time, to, value });
  });
  return found;
}
