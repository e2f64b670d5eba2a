// The shell of the application: navigation, state of the connection, and the page that the address names.
// Values from the graph go into the page as text, never as markup.
import { computed, html, render, signal, useEffect, useErrorBoundary, useRef, useSignal, useSignalEffect } from "./ui.js";
import { may } from "./model/access.js";
import { connect, connection, leave } from "./model/connection.js";
import { formatNumber, loadTexts, t } from "./model/text.js";
import { token } from "./model/token.js";
import { Overview } from "./pages/overview.js";
import { announce } from "./parts/announcer.js";

// Address, text, and rights of which a client needs one to use the page; without rights, every client may.
const PAGES = [
  ["", "overview.title"], ["new", "new.title", ["administer"]], ["console", "console.title", ["query", "update", "subscribe"]], ["automation", "automation.title", ["update", "administer"]],
  ["engine", "engine.title", ["administer"]], ["access", "access.title", ["administer"]], ["system", "system.title"],
];
// Pages that the first view does not show are loaded when they are opened.
const ENTRY = () => import("./pages/entry.js");
const LATER = {
  device: () => import("./pages/device.js"),
  value: () => import("./pages/device.js"),
  console: () => import("./pages/console.js"),
  automation: () => import("./pages/automation.js"),
  engine: () => import("./pages/engine.js"),
  access: () => import("./pages/access.js"),
  system: () => import("./pages/system.js"),
  new: () => import("./pages/new_device.js"),
  mapping: () => import("./pages/mapping.js"),
  rule: () => import("./pages/rule.js"),
};

// Pages that have no place of their own in the navigation.
const PARENTS = { mapping: "new", rule: "automation" };

const address = signal(location.hash);
const credentials = signal(undefined);
const state = computed(() => connection.value.state);

/** {page, name, value} of the address `#/page/name?value=…`. */
function route() {
  const [path, search = ""] = address.value.replace(/^#\/?/, "").split("?");
  const [page, name = ""] = path.split("/");
  return { page, name: decode(name), value: new URLSearchParams(search).get("value") ?? "" };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function issued(client) {
  credentials.value = client;
  if (client.invited) location.replace("#/");  // the code is used up
}

function Page() {
  const { page, name, value } = route();
  if (state.value === "locked") return html`<${Later} key="entry" load=${ENTRY} part="Entry" invitation=${page === "join" ? name : ""} issued=${issued} />`;
  if (Object.hasOwn(LATER, page)) return html`<${Later} key=${`${page} ${name}`} load=${LATER[page]} part=${page === "value" ? "Value" : "Page"} name=${name} value=${value} />`;
  return html`<${Overview} />`;
}

/** Whether the gateway has another version of the application, as after an update; its modules may not fit this page. */
async function isOutdated() {
  const [version] = /files\/\w+\//.exec(import.meta.url) ?? [""];
  const page = await fetch("./", { cache: "no-store" });
  return page.ok && !(await page.text()).includes(version);
}

/** `part` of the module that `load` imports. */
function Later({ load, part, ...properties }) {
  const found = useSignal({});
  const shown = useRef(false), attempts = useRef(0);
  const fail = () => {
    found.value = { failed: true };
    isOutdated().then((outdated) => { if (found.value.failed) found.value = { failed: true, outdated }; }).catch(() => {});
  };
  const attempt = async () => {
    attempts.current += 1;
    try {
      const [{ [part]: Part }] = await Promise.all([load(), loadTexts()]);
      if (!Part) throw new Error(part);
      found.value = { Part };
    } catch (error) {
      console.warn(error);
      fail();
    }
  };
  const { Part, failed, outdated } = found.value;
  useErrorBoundary((error) => {
    if (shown.current) throw error;  // the page stays, with what is typed in it
    reportError(error);
    fail();  // a module of another version may load, and then not fit
  });
  useEffect(() => { attempt(); }, []);
  useEffect(() => { shown.current = Boolean(found.peek().Part); }, [Part]);
  const reload = html`<button type="button" onClick=${() => location.reload()}>${t("shell.reload")}</button>`;
  if (outdated) return html`<p class="note">${t("shell.outdated")} ${reload}</p>`;
  // After the second failure: a browser may keep a module that it could not use.
  const again = attempts.current > 1 ? reload : html`<button type="button" onClick=${attempt}>${t("shell.again")}</button>`;
  if (failed) return html`<p class="note">${t("shell.failed")} ${again}</p>`;
  return Part && html`<${Part} ...${properties} />`;
}

function Navigation() {
  const { page } = route();
  const pages = PAGES.filter(([, , rights]) => !rights || rights.some(may));
  useEffect(() => {
    // On a phone the pages do not fit next to each other.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
  }, [page, pages.length]);
  return html`<a class="skip" href="#page" onClick=${skip}>${t("shell.skip")}</a>
    <a class="brand" href="#/">sepa-edge</a>
    <nav aria-label=${t("shell.pages")}>${state.value !== "locked" && pages.map(([path, title]) => html`<a
      href="#/${path}" aria-current=${(PARENTS[page] ?? page) === path ? "page" : undefined}>${t(title)}</a>`)}</nav>
    <${State} />
    ${state.value !== "locked" && token() && html`<button id="leave" type="button" onClick=${leave}>${t("entry.leave")}</button>`}`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("page").focus();
}

function State() {
  const { state: what, wait } = connection.value;
  const text = what === "lost" && wait ? t("state.waiting", { seconds: formatNumber(Math.round(wait / 100) / 10) }) : t(`state.${what}`);
  useSignalEffect(() => announce(t(`state.${state.value}`)));
  return html`<p id="state" data-state=${what}><span class="dot" aria-hidden="true"></span><span id="state-text">${text}</span></p>`;
}

function App() {
  return html`${credentials.value && html`<${Later} load=${ENTRY} part="Credentials" client=${credentials.value} kept=${() => { credentials.value = undefined; }} />`}
    <${Page} />`;
}

// Each entry of the history has its number as state; one that a link has just made has none.
const heights = [];  // how far the page of each entry was scrolled
history.scrollRestoration = "manual";  // the browser would scroll before the page is there
let entry = history.state ?? 0;
history.replaceState(entry, "");

addEventListener("hashchange", () => {
  const leaving = new CustomEvent("leaving", { cancelable: true, detail: { page: address.value, entry } });
  if (!dispatchEvent(leaving)) return;  // of parts/unsaved.js
  heights[entry] = scrollY;
  const back = history.state;
  entry = back ?? entry + 1;
  history.replaceState(entry, "");
  address.value = location.hash;
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
  if (back !== null) scrollBack(heights[entry] ?? 0, 120);
});

/** Scroll as soon as the page is long enough, unless the user does so before. */
function scrollBack(height, frames, last = 0) {
  if (scrollY !== last || frames === 0 || height === last) return;
  scrollTo(0, height);
  requestAnimationFrame(() => scrollBack(height, frames - 1, scrollY));
}

const main = document.getElementById("page");
connection.subscribe(({ state: what }) => main.classList.toggle("stale", what === "lost"));
document.getElementById("starting")?.remove();
render(html`<${Navigation} />`, document.getElementById("header"));
render(html`<${App} />`, main);
connect();
