// The state of the gateway as its strip and its System page show it, asked for while the page is visible.
import { effect, signal } from "../ui.js";
import { access, may } from "./access.js";
import { connection, reconnect } from "./connection.js";
import { getJson, SessionEnded } from "./gateway.js";
import { loadTexts } from "./text.js";

const OFTEN = 10e3, SELDOM = 60e3, PATIENCE = 8e3;  // ms

/** Response of `/health`. */
export const health = signal(undefined);
/** Topics without a mapping, and values that were refused; undefined if this client may not see them. */
export const unmapped = signal(undefined);
export const badValues = signal(undefined);

async function ask(path, into) {
  try {
    into.value = await getJson(path, { signal: AbortSignal.timeout(PATIENCE) });
  } catch (error) {
    if (error instanceof SessionEnded) return;
    // A gateway that is not ready answers with status 503 and the reason. After other errors the next attempt tells more.
    if (error.status === 503 && into === health) {
      const before = health.peek(), fault = await textOf(error);
      if (health.peek() === before) health.value = { ...before, fault };
    }
    if (error.name === "TimeoutError") reconnect();
  }
}

/** The error with its kind, the texts of which the first view does not have. */
async function textOf(error) {
  try {
    const [{ messageOf }] = await Promise.all([import("./errors.js"), loadTexts()]);
    return messageOf(error);
  } catch {
    return error.message;  // the files did not arrive
  }
}

function look(seldom) {
  if (document.hidden || connection.peek().state !== "live") return;
  ask("/health", health);
  if (seldom && may("administer")) {
    ask("/api/unmapped", unmapped);
    ask("/api/bad-values", badValues);
  }
}

/** Whether the gateway records recent values (`recent.enabled`). */
export function keepsRecent() {
  return health.value?.recent !== undefined;
}

/** Ask again now, after something was changed. */
export function lookNow() {
  look(true);
}

setInterval(() => look(false), OFTEN);
setInterval(() => look(true), SELDOM);
document.addEventListener("visibilitychange", () => look(true));
effect(() => {
  if (access.value) look(true);
  else health.value = unmapped.value = badValues.value = undefined;
});
