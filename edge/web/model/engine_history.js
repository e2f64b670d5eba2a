// What changed between the answers of the engine: the lines of its charts. Each function gets the answers of
// `/api/engine` with their times in seconds, and returns {timed, x, unit, digits, lines: [{name, values}]}. A restart of the
// gateway begins again.
import { t } from "./text.js";

export const PHASES = ["t_update", "t_lutt", "t_booster", "t_notify"];

function history(past, unit, digits, names, valuesOf) {
  const pairs = past.slice(1).map((after, index) => valuesOf(past[index], after));
  const lines = names.map((name, index) => ({ name, values: pairs.map((values) => values[index]) }));
  return { timed: true, x: past.slice(1).map(({ at }) => at), unit, digits, lines };
}

/** Updates and notifications a second, and waiting updates. */
export function rates(past) {
  const names = ["updates", "notifications", "waiting"].map((name) => t(`engine.${name}`));
  return history(past, "", 1, names, (before, after) => {
    const rate = (name) => (after[name] < before[name] ? null : (after[name] - before[name]) / (after.at - before.at));
    return [rate("updates"), rate("notifications"), after.pending_updates];
  });
}

/** Mean time of each phase in the updates between two answers, in milliseconds; null without updates. */
export function phaseTimes(past) {
  return history(past, "ms", 3, PHASES.map((name) => t(`engine.${name}`)), (before, after) => PHASES.map((name) => {
    const updates = after.updates - before.updates;
    const total = after.phases[name].mean_ms * after.updates - before.phases[name].mean_ms * before.updates;
    return updates > 0 ? Math.max(0, total / updates) : null;  // the difference of rounded numbers may be below zero
  }));
}

/** How much of each limit is in use, in percent. */
export function limitUse(past) {
  const settings = past.at(-1)?.limits.map(({ setting }) => setting) ?? [];
  return history(past, "%", 2, settings.map((setting) => t(`limits.${setting}`)), (_, { limits }) => settings.map((setting) => {
    const { used, limit } = limits.find((each) => each.setting === setting) ?? {};
    return limit ? (100 * used) / limit : null;
  }));
}
