// A value of the gateway that a page asks for again and again while it is visible.
import { useEffect, useRef, useSignal } from "../ui.js";
import { connection } from "./connection.js";
import { messageOf } from "./errors.js";
import { SessionEnded } from "./gateway.js";

/** `ask` returns a promise; `allowed` tells whether this client may ask. Returns signals with the last value and the
 *  last error, and a function that asks now. */
export function usePolled(ask, milliseconds, allowed = true) {
  const value = useSignal(undefined), error = useSignal("");
  const asked = useRef(0), shown = useRef(0);  // numbers of requests
  const now = async () => {
    if (!allowed || document.hidden || connection.peek().state !== "live") return;
    const number = asked.current += 1;
    // Answers may arrive in another order: an earlier state must not replace a later one.
    const isLater = () => number > shown.current && (shown.current = number, true);
    try {
      const found = await ask();
      if (isLater()) [value.value, error.value] = [found, ""];
    } catch (failure) {
      if (!(failure instanceof SessionEnded) && isLater()) error.value = messageOf(failure);
    }
  };
  useEffect(() => {
    now();
    const timer = setInterval(now, milliseconds);
    return () => clearInterval(timer);
  }, [connection.value.state, allowed]);
  return [value, error, now];
}
