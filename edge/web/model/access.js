// The rights of this client. The page sends no requests that the gateway would refuse.
import { effect, signal } from "../ui.js";
import { connection } from "./connection.js";
import { getJson } from "./gateway.js";

/** Response of `/api/access`; undefined until the gateway has answered. */
export const access = signal(undefined);

/** Whether this client may do something: query, update, subscribe or administer. */
export function may(action) {
  return access.value?.actions.includes(action) ?? false;
}

/** Whether this client may do everything: all actions, graphs and topics. */
export function mayEverything() {
  return ["query", "update", "subscribe", "administer"].every(may) && ["read", "write", "publish", "receive"].every((name) => access.value[name] === null);
}

effect(() => {
  const { state } = connection.value;
  if (state === "locked") access.value = undefined;
  if (state === "live") getJson("/api/access").then((found) => { access.value = found; }, (error) => console.warn(error));
});
