// The curves of the last day, for many values at once: requests are bundled, kept for some minutes, and made for shown
// values only.
import { batch, signal } from "../ui.js";
import { may } from "./access.js";
import { connection } from "./connection.js";
import { series } from "./gateway.js";
import { keepsRecent } from "./health.js";

const AT_ONCE = 20;  // observations in a request
const LONGEST = 2000;  // characters of their IRIs; proxies limit the length of an address
const PAUSE = 100;   // ms in which requests are collected
const VALID = 300e3; // ms
const PERIOD = { from: "-24h", points: 40 };

const NONE = { kind: "number", rows: [], step: null };
const curves = new Map();  // observation IRI -> {found: signal, asked}
let waiting = [];
let running;  // the present series of requests, if there is one
let refused = false;  // the gateway refused a request; asking again would not help

// Another user may log in, so the page stops all requests for the values that this one looked at.
connection.subscribe(({ state }) => {
  if (state !== "locked") return;
  clearTimeout(running?.timer);
  running = undefined;
  waiting = [];
  refused = false;
  curves.clear();
});

/** The last day of an observation: a signal of {kind, rows: [{time, value}], step}, with times in milliseconds, and null for a gap.
 *  `kind` is number, boolean or text. Rows that stand for an interval of `step` milliseconds also have min, max and mean. */
export function lastDay(id) {
  let curve = curves.get(id);
  if (!curve) curves.set(id, curve = { found: signal(NONE), asked: 0 });
  if (may("query") && keepsRecent() && !refused && Date.now() - curve.asked > VALID) {
    curve.asked = Date.now();
    waiting.push(id);
    if (!running) fetchLater(running = {});
  }
  return curve.found;
}

function fetchLater(run) {
  run.timer = setTimeout(fetchWaiting, PAUSE, run);
}

async function fetchWaiting(run) {
  const ids = [];
  for (let length = 0; waiting.length && ids.length < AT_ONCE && (length += waiting[0].length) < LONGEST;) ids.push(waiting.shift());
  if (!ids.length) ids.push(waiting.shift());
  try {
    const all = (await series(ids, PERIOD)).series.map(({ rows, step, ...about }) => ({
      ...about, step: step && step * 1000, rows: rows.map((row) => ({ ...row, time: Date.parse(row.time) })),
    }));
    // A value that was a number and became a text has two series: the one with the newest row comes last.
    all.sort((one, other) => (one.rows.at(-1)?.time ?? 0) - (other.rows.at(-1)?.time ?? 0));
    batch(() => {
      for (const { observation, kind, rows, step } of all) if (curves.has(observation)) curves.get(observation).found.value = { kind, rows, step };
    });
  } catch (error) {
    if (running !== run) return;  // the page was locked meanwhile
    // Not found: none of these values was recorded yet.
    if (error.status !== 404) {
      refused = error.status === 401 || error.status === 403;
      const again = error.status === 429 || error.status === undefined;  // others would fail again
      if (again) for (const id of ids) if (curves.has(id)) curves.get(id).asked = 0;
    }
  }
  if (running !== run) return;
  if (waiting.length > 0 && !refused) return fetchLater(run);
  running = undefined;
  waiting = [];
}
