// The WebSocket connection of the page: its subscriptions, and their renewal after a loss.
import { signal } from "../ui.js";
import { endSession, renewed, signOut, token } from "./gateway.js";

const FIRST_WAIT = 500;   // ms before the first new attempt to connect; doubles
const LONGEST_WAIT = 15000;

/** `state`: connecting, live, lost (with `wait` in ms until the next attempt) or locked (with the gateway's `error`). */
export const connection = signal({ state: "connecting" });

const subscriptions = new Map();  // alias -> {sparql, begin, change}
let wait = FIRST_WAIT;
let current;  // the newest attempt to connect; events of earlier ones are ignored
let timer;  // of the next attempt

/** Subscribe from the next connection on. `begin` is called before the first result of each connection; `change`
 *  with the removed and the added bindings of each notification. */
export function subscribe(alias, sparql, { begin, change }) {
  subscriptions.set(alias, { sparql, begin, change });
}

/** URL of the WebSocket gate, from here. */
export async function socketAddress() {
  // Without the token, which it does not need: index.html lets the browser ask before the modules are there.
  const answer = await fetch("/api/endpoints");
  if (!answer.ok) throw new Error(`/api/endpoints: ${answer.status}`);
  const { ws, wss } = await answer.json();
  const socket = location.protocol === "https:" ? wss : ws;
  if (!socket) throw new Error("/api/endpoints has no address for WebSocket");
  const url = new URL(socket);
  // A loopback address names the gateway's machine, which may not be the user's. The host of this page is the gateway.
  if (/^(localhost|127\.|0\.0\.0\.0$|\[::1?\]$)/.test(url.hostname)) url.hostname = location.hostname;
  return url.href;
}

/** Connect, and again after each loss. */
export async function connect() {
  const lost = connection.peek().state === "lost" || connection.peek().state === "live";
  connection.value = { state: lost ? "lost" : "connecting" };
  clearTimeout(timer);
  const attempt = current = {};
  let socket;
  try {
    const url = await socketAddress();
    if (current !== attempt) return;
    socket = new WebSocket(url);
  } catch (error) {
    console.warn(error);
    if (current === attempt) connectLater();
    return;
  }
  attempt.close = () => socket.close();
  socket.onopen = () => {
    for (const [alias, { sparql }] of subscriptions) {
      const authorization = token() && { authorization: `Bearer ${token()}` };
      socket.send(JSON.stringify({ subscribe: { sparql, alias, ...authorization } }));
    }
  };
  socket.onmessage = (event) => current === attempt && receive(JSON.parse(event.data));
  socket.onclose = () => current === attempt && connectLater();
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
  if (again) connect();
  else if (again === undefined) current?.close?.();  // unreachable
  else lock(message);
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
