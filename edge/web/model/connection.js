// The WebSocket connection of the page: its subscriptions, and their renewal after a loss.
import { signal } from "../ui.js";
import { first, socketAddress, subscription, VALUES } from "./first_connection.js";
import { endSession, renewed, signOut } from "./gateway.js";

const FIRST_WAIT = 500;   // ms before the first new attempt to connect; doubles
const LONGEST_WAIT = 15000;

/** `state`: connecting, live, lost (with `wait` in ms until the next attempt) or locked (with the gateway's `error`). */
export const connection = signal({ state: "connecting" });

const subscriptions = new Map();  // alias -> {sparql, begin, change}
let wait = FIRST_WAIT;
let current;  // the newest attempt to connect; events of earlier ones are ignored
let timer;  // of the next attempt
let untaken = first;

/** Subscribe from the next connection on. `begin` is called before the first result of each connection; `change`
 *  with the removed and the added bindings of each notification. */
export function subscribe(alias, sparql, { begin, change }) {
  subscriptions.set(alias, { sparql, begin, change });
}

/** Connect, and again after each loss. */
export async function connect() {
  const lost = connection.peek().state === "lost" || connection.peek().state === "live";
  connection.value = { state: lost ? "lost" : "connecting" };
  clearTimeout(timer);
  const attempt = current = {};
  let begun;
  try {
    begun = await takeFirst() ?? { socket: new WebSocket(await socketAddress()), waiting: [] };
    if (current !== attempt) return begun.socket.close();
  } catch (error) {
    console.warn(error);
    if (current === attempt) connectLater();
    return;
  }
  const { socket, waiting, asked } = begun;
  attempt.close = () => socket.close();
  socket.onmessage = (event) => current === attempt && receive(JSON.parse(event.data));
  socket.onclose = () => current === attempt && connectLater();
  const open = () => {
    for (const [alias, { sparql }] of subscriptions) if (alias !== asked) socket.send(subscription(alias, sparql));
  };
  if (socket.readyState === WebSocket.OPEN) open();
  else socket.onopen = open;
  waiting.forEach(socket.onmessage);
}

/** The connection that began with the page, once. */
async function takeFirst() {
  const begun = untaken;
  untaken = undefined;
  const found = await begun;
  // If it is open, it has subscribed to the values.
  if (found?.socket.readyState === WebSocket.OPEN) return { ...found, asked: VALUES };
  return found?.socket.readyState === WebSocket.CONNECTING ? found : undefined;
}

/** End the connection. `error` is the gateway's reason, or that of the user. */
export function lock(error) {
  clearTimeout(timer);
  current?.close?.();
  current = undefined;
  endSession();
  connection.value = { state: "locked", error };
}

/** Forget the token and the credentials, and hide what they allowed. */
export function leave() {
  signOut();
  lock({ error: "invalid_request" });
}

/** Give up a connection that no longer carries anything, such as that of a phone after its sleep. */
export function reconnect() {
  if (connection.peek().state !== "live") return;
  current?.close?.();
  current = undefined;
  connectLater();
}

function connectLater() {
  connection.value = { state: "lost", wait };
  clearTimeout(timer);
  timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
  wait = Math.min(wait * 2, LONGEST_WAIT);
}

/** The token has expired: connect with the next one if the credentials are known. */
async function renewOrLock(message) {
  const attempt = current;
  const again = await renewed().catch(() => undefined);
  if (current !== attempt) return;  // another refusal of the same connection has done it
  if (again) {
    connect();
    attempt?.close?.();
  } else if (again === undefined) {
    attempt?.close?.();  // unreachable
  } else {
    lock(message);
  }
}

function receive(message) {
  if (message.error) {
    if (message.status_code === 401) {
      renewOrLock(message);
    } else if (message.status_code === 403) {
      lock(message);
    } else {
      console.warn(message.error, message.error_description);
      current.close();
    }
    return;
  }
  const notification = message.notification;
  const subscription = subscriptions.get(notification?.alias);
  if (!subscription) return;
  if (notification.sequence === 0) {
    wait = FIRST_WAIT;
    if (connection.peek().state !== "live") connection.value = { state: "live" };
    subscription.begin();
  }
  subscription.change(notification.removedResults.results.bindings, notification.addedResults.results.bindings);
}
