// The live page: subscribes, reconnects, and shows the result. Values from the graph go into the page as text, never as
// markup.
import { hideEnrolment, offerEnrolment, watchEnrolment } from "./enrolment.js";
import { labelAt, Observations, placeName, QUERY } from "./observations.js";
import { askForToken, concernsToken, fetchAs, token, tokenAccepted, watchToken } from "./token.js";

const FIRST_WAIT = 500;   // ms before the first new attempt to connect; doubles
const LONGEST_WAIT = 15000;
const ALIAS = "live-page";

const observations = new Observations();
const shown = new Map();  // observation IRI -> its element and the texts that it shows
const places = document.getElementById("places");
const restart = document.getElementById("restart");
let wait = FIRST_WAIT;
let drawing = false;
let current;  // the newest attempt to connect; events of earlier ones are ignored
let timer;  // of the next attempt

function showState(state, text) {
  document.getElementById("state").dataset.state = state;
  document.getElementById("state-text").textContent = text;
  places.classList.toggle("stale", state === "lost");
}

async function endpoint() {
  const answer = await fetchAs("/api/endpoints");
  if (!answer.ok) throw new Error(`/api/endpoints: ${answer.status}`);
  const { ws, wss } = await answer.json();
  const socket = location.protocol === "https:" ? wss : ws;
  if (!socket) throw new Error("/api/endpoints has no address for WebSocket");
  const url = new URL(socket);
  // A loopback address names the gateway's machine, which may not be the user's. The host of this page is the gateway.
  if (/^(localhost|127\.|0\.0\.0\.0$|\[::1?\]$)/.test(url.hostname)) url.hostname = location.hostname;
  return url.href;
}

async function connect() {
  showState(shown.size ? "lost" : "connecting", "Connecting");
  clearTimeout(timer);
  const attempt = current = {};
  let socket;
  try {
    const url = await endpoint();
    if (current !== attempt) return;
    socket = new WebSocket(url);
  } catch (error) {
    console.warn(error);
    if (current === attempt) reconnectLater();
    return;
  }
  attempt.close = () => socket.close();
  const subscribe = { sparql: QUERY, alias: ALIAS, ...(token() && { authorization: `Bearer ${token()}` }) };
  socket.onopen = () => socket.send(JSON.stringify({ subscribe }));
  socket.onmessage = (event) => current === attempt && receive(JSON.parse(event.data));
  socket.onclose = () => current === attempt && reconnectLater();
}

// Hide the values that the last token allowed, and wait until the user enters another one.
function lock(error) {
  clearTimeout(timer);
  current?.close?.();
  current = undefined;
  observations.clear();
  draw();
  document.getElementById("empty").hidden = true;
  document.getElementById("view").hidden = true;
  restart.hidden = true;
  showState("locked", "Token required");
  askForToken(error);
  offerEnrolment();
}

function reconnectLater() {
  const seconds = Math.round(wait / 100) / 10;
  showState("lost", `Connection lost, reconnecting in ${seconds} s`);
  timer = setTimeout(connect, wait * (0.75 + Math.random() / 2));
  wait = Math.min(wait * 2, LONGEST_WAIT);
}

function receive(message) {
  if (message.error) {
    if (concernsToken(message)) {
      lock(message);
    } else {
      console.warn(message.error, message.error_description);
      current.close();
    }
    return;
  }
  const notification = message.notification;
  if (!notification) return;
  if (notification.sequence === 0) {
    observations.clear();
    wait = FIRST_WAIT;
    showState("live", "Live");
    tokenAccepted();
    hideEnrolment();
    showRestart();
  }
  observations.apply(notification.removedResults.results.bindings, notification.addedResults.results.bindings);
  if (!drawing) {
    drawing = true;
    // Draw once for all notifications within 50 ms. A timer also runs in a hidden tab, unlike requestAnimationFrame.
    setTimeout(draw, 50);
  }
}

function draw() {
  drawing = false;
  if (!current && shown.size === 0) return;
  const entries = observations.current();
  const gone = new Set(shown.keys());
  for (const entry of entries) {
    gone.delete(entry.id);
    show(entry);
  }
  for (const id of gone) remove(id);
  markAmbiguousNames();
  document.getElementById("empty").hidden = entries.length > 0;
  const cards = places.children.length;
  document.getElementById("summary").textContent = entries.length
    ? `${entries.length} ${entries.length === 1 ? "value" : "values"} in ${cards} ${cards === 1 ? "place" : "places"}`
    : "";
}

function show(entry) {
  let item = shown.get(entry.id);
  if (item && item.place !== entry.place) {
    remove(entry.id);
    item = undefined;
  }
  if (!item) {
    item = newItem(entry);
    shown.set(entry.id, item);
  } else if (item.value !== entry.value || item.time !== entry.time) {
    flash(item.element);
  }
  Object.assign(item, { value: entry.value, time: entry.time });
  write(item.label, labelAt(entry.label, placeName(entry.place)));
  item.label.title = entry.label;
  const [value, unit] = readable(entry.value, entry.unit);
  write(item.reading, value);
  write(item.unit, unit);
  item.reading.title = `${entry.value} ${entry.unit}`.trim();
  writeTime(item);
}

function newItem(entry) {
  const element = make("li", "observation");
  const label = make("span", "label");
  const right = make("span", "reading");
  const [reading, unit, when] = [make("span", "value"), make("span", "unit"), make("time", "when")];
  right.append(reading, unit);
  element.append(label, right, when);
  element.title = entry.id;
  const list = placeList(entry.place);
  const text = labelAt(entry.label, placeName(entry.place));
  const before = [...list.children].find((other) => compare(other.firstChild.textContent, text) > 0);
  list.insertBefore(element, before ?? null);
  return { element, label, reading, unit, when, place: entry.place };
}

function placeList(iri) {
  for (const section of places.children) if (section.dataset.place === iri) return section.lastChild;
  const section = make("section", "place");
  section.dataset.place = iri;
  const heading = make("h2");
  heading.textContent = placeName(iri);
  if (iri) heading.title = iri;
  section.append(heading, make("ul"));
  const before = [...places.children].find((other) => comparePlaces(other.dataset.place, iri) > 0);
  places.insertBefore(section, before ?? null);
  return section.lastChild;
}

// Observations without a place come last.
function comparePlaces(one, other) {
  return !one - !other || compare(placeName(one), placeName(other)) || compare(one, other);
}

// Places with the same name also show their IRIs (style.css).
function markAmbiguousNames() {
  const count = new Map();
  for (const { dataset } of places.children) {
    const name = placeName(dataset.place);
    count.set(name, (count.get(name) ?? 0) + 1);
  }
  for (const section of places.children) {
    const iri = section.dataset.place;
    section.classList.toggle("ambiguous", iri !== "" && count.get(placeName(iri)) > 1);
  }
}

function remove(id) {
  const { element } = shown.get(id);
  const section = element.closest(".place");
  element.remove();
  if (!section.querySelector("li")) section.remove();
  shown.delete(id);
}

function flash(element) {
  element.classList.remove("changed");
  void element.offsetWidth;  // restarts the animation
  element.classList.add("changed");
}

// Large numbers of bytes and seconds are hard to read, so they get larger units. The tooltip has the exact value.
function readable(value, unit) {
  const number = Number(value);
  if (unit === "B" && Math.abs(number) >= 1000) {
    const power = Math.min(4, Math.floor(Math.log10(Math.abs(number)) / 3));
    return [pretty((number / 1000 ** power).toPrecision(3)), ["", "k", "M", "G", "T"][power] + "B"];
  }
  if (unit === "s" && number >= 120) {
    const minutes = Math.floor(number / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (days) return [`${days} d ${hours % 24} h`, ""];
    return [hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`, ""];
  }
  return [pretty(value), unit];
}

function pretty(value) {
  const number = Number(value);
  if (value.trim() === "" || !Number.isFinite(number)) return value;
  const digits = Math.abs(number) < 1 ? { maximumSignificantDigits: 4 } : { maximumFractionDigits: 4 };
  return new Intl.NumberFormat(undefined, digits).format(number);
}

function writeTime(item) {
  const at = Date.parse(item.time ?? "");
  if (!Number.isFinite(at)) {
    write(item.when, "");
    return;
  }
  item.when.dateTime = item.time;
  item.when.title = new Date(at).toLocaleString();
  write(item.when, ago((Date.now() - at) / 1000));
}

function ago(seconds) {
  const format = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
  if (Math.abs(seconds) < 10) return "just now";
  for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]]) {
    if (Math.abs(seconds) >= length) return format.format(-Math.trunc(seconds / length), unit);
  }
  return "just now";
}

function make(tag, name) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  return element;
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function compare(one, other) {
  return one.localeCompare(other, undefined, { numeric: true });
}

// Show why the gateway was started. Only administrators get this field of /health.
async function showRestart() {
  const attempt = current;
  const answer = await fetchAs("/health").catch(() => undefined);
  const last = answer?.ok && (await answer.json()).last_restart;
  if (current !== attempt) return;
  restart.hidden = !last;
  if (last) write(restart, `Start ${last.starts}: ${last.text}.`);
}

// A link cannot send the token, so the page fetches guarded paths itself and shows the answers below the links.
async function view(event) {
  if (!token()) return;
  event.preventDefault();
  const answer = await fetchAs(event.target.href);
  const pre = document.getElementById("view");
  const text = await answer.text();
  write(pre, answer.ok ? text : JSON.parse(text).error_description);
  pre.hidden = false;
  pre.focus();
}

watchEnrolment(() => {
  document.getElementById("entry").hidden = true;
  connect();
});
watchToken(connect, () => lock({ error: "invalid_request" }));
for (const link of document.querySelectorAll("[data-guarded]")) link.addEventListener("click", view);
setInterval(() => shown.forEach(writeTime), 5000);
connect();
