// A value of the gateway that a page asks for again and again while it is visible.
import { useEffect, useSignal } from "../ui.js";
import { connection } from "./connection.js";
import { SessionEnded } from "./gateway.js";

/** `ask` returns a promise; `allowed` tells whether this client may ask. Returns signals with the last value and the
 *  last error, and a function that asks now. */
export function usePolled(ask, milliseconds, allowed = true) {
  const value = useSignal(undefined), error = useSignal("");
  const now = async () => {
    if (!allowed || document.hidden || connection.peek().state !== "live") return;
    try {
      value.value = await ask();
      error.value = "";
    } catch (failure) {
      if (!(failure instanceof SessionEnded)) error.value = failure.message;
    }
  };
  useEffect(() => {
    now();
    const timer = setInterval(now, milliseconds);
    return () => clearInterval(timer);
  }, [connection.value.state, allowed]);
  return [value, error, now];
}
