// All current values: searched, grouped, sorted; diagnostics folded away.
import { batch, computed, html, signal, useEffect, useRef, useSignal } from "../ui.js";
import { deviceName, isDiagnostic, placeName, placeOf, troubles } from "../model/devices.js";
import { endTour, hasDevice, touring } from "../model/first_visit.js";
import { entries, known, now, version } from "../model/live.js";
import { ago, compare, loadTexts, t } from "../model/text.js";
import { propertyName } from "../model/values.js";
import { Strip } from "../parts/strip.js";
import { Tiles, width } from "../parts/rows.js";
import { announce } from "../parts/announcer.js";

const FIRST = 40;  // tiles that are drawn before the browser knows what is visible
const PIECE = 20;  // groups that are drawn at a time: the page would stand still for 500 of them

const search = signal("");
const onlyTroubles = signal(false);
/** How many pieces of the groups are in the page. The others follow. */
const drawn = signal(1);

/** Change what is shown, from its first piece on. */
function show(change) {
  batch(() => {
    drawn.value = 1;
    change();
  });
}

const grouping = kept("sepa-edge.grouping", "place", ["place", "device", "kind"]);
const sorting = kept("sepa-edge.sorting", "name", ["name", "changed"]);

/** A choice of the user that this browser keeps. */
function kept(key, usual, choices) {
  const stored = localStorage.getItem(key);
  const choice = signal(choices.includes(stored) ? stored : usual);
  const choose = (value) => {
    show(() => { choice.value = value; });
    localStorage.setItem(key, value);
  };
  return { choice, choices, choose };
}

const GROUPS = {
  place: { of: placeOf, name: placeName, context: (entry) => (entry.device ? deviceName(entry.device) : "") },
  device: { of: (entry) => entry.device, name: (iri) => (iri ? deviceName(iri) : t("device.none")), context: (entry) => nameOfPlace(entry) },
  kind: { of: (entry) => entry.property, name: (iri) => (iri ? propertyName(iri) : t("kind.none")), context: (entry) => nameOfPlace(entry) },
};

function nameOfPlace(entry) {
  const place = placeOf(entry);
  return place ? placeName(place) : "";
}

const shown = computed(() => {
  version.value;
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  return [...entries.values()].filter((entry) => {
    if (onlyTroubles.value && !troubles.value.has(entry.device)) return false;
    if (!words.length) return true;
    const text = [entry.label, nameOfPlace(entry), deviceName(entry.device), propertyName(entry.property), entry.id].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
});

/** [{iri, name, ambiguous, values, diagnostics}], sorted. Entries without a group come last. A group sorts its entries when it is drawn. */
const groups = computed(() => {
  const { of, name } = GROUPS[grouping.choice.value];
  const found = new Map();
  for (const entry of shown.value) {
    const iri = of(entry);
    if (!found.has(iri)) found.set(iri, { iri, name: name(iri), values: [], diagnostics: [] });
    found.get(iri)[isDiagnostic(entry) ? "diagnostics" : "values"].push(entry);
  }
  const sorted = [...found.values()].sort((one, other) => !one.iri - !other.iri || compare(one.name, other.name) || compare(one.iri, other.iri));
  const count = new Map();
  for (const group of sorted) count.set(group.name, (count.get(group.name) ?? 0) + 1);
  for (const group of sorted) group.ambiguous = group.iri !== "" && count.get(group.name) > 1;
  return sorted;
});

const order = computed(() => (sorting.choice.value === "changed" ? newestFirst() : (one, other) => compare(one.label, other.label) || compare(one.id, other.id)));

function newestFirst() {
  now.value;  // every five seconds: an order that follows each value would never stand still
  const time = (entry) => entry.reading.peek().time || 0;
  return (one, other) => time(other) - time(one);
}

export function Overview() {
  useEffect(() => { document.title = `${t("overview.title")} · sepa-edge`; }, []);
  version.value;
  if (known.value && entries.size === 0) return html`<${Strip} />${touring.value ? html`<h1 class="hidden">${t("overview.title")}</h1><${Guide} />` : html`<${Empty} />`}`;
  return html`<h1 class="hidden">${t("overview.title")}</h1>
    <${Strip} />
    ${touring.value && html`<${Guide} />`}
    <${Controls} />
    <div id="places" aria-label=${t("overview.title")}>
      <${Pieces} />
      ${known.value && groups.value.length === 0 && html`<p class="note">${t("overview.nothing")}</p>`}
    </div>`;
}

/** The groups in pieces. The same element again is not compared with itself. */
const pieces = computed(() => {
  const found = [];
  let before = 0;
  groups.value.forEach((group, index) => {
    if (index % PIECE === 0) found.push([]);
    found.at(-1).push(html`<${Group} key=${group.iri} group=${group} first=${before < FIRST} />`);
    before += group.values.length;
  });
  return found;
});

function Pieces() {
  const all = pieces.value, shown = drawn.value;
  useEffect(() => {
    if (shown > all.length) return;  // one more than there are: a new group must not hide the last one for a moment
    // Meanwhile the browser draws, and takes what the user does, who may have begun again.
    const timer = setTimeout(() => { if (drawn.peek() === shown) drawn.value = shown + 1; });
    return () => clearTimeout(timer);
  }, [all, shown]);
  useEffect(() => () => { drawn.value = 1; }, []);
  // One list: a group that moves to another piece stays the same element, with its focus and its open parts.
  return all.slice(0, shown).flat();
}

/** The tour, whose code is loaded only on a new gateway. */
function Guide() {
  const found = useSignal({});
  useEffect(() => { Promise.all([import("../parts/tour.js"), loadTexts()]).then(([module]) => { found.value = module; }, (error) => console.warn(error)); }, []);
  const { Tour } = found.value;
  return Tour && html`<${Tour} arrived=${hasDevice.value} end=${endTour} />`;
}

function Controls() {
  const troubled = troubles.value.size;
  const delay = useRef();
  const type = (event) => {
    const text = event.target.value;
    clearTimeout(delay.current);
    delay.current = setTimeout(() => {
      show(() => { search.value = text; });
      announce(t("overview.found", { n: shown.value.length }));
    }, 100);
  };
  const number = groups.value.length;
  return html`<form id="controls" role="search" onSubmit=${(event) => event.preventDefault()}>
    <input id="search" type="search" placeholder=${t("overview.search")} aria-label=${t("overview.search")} defaultValue=${search.peek()} onInput=${type} />
    <${Choice} id="grouping" label=${t("overview.group")} setting=${grouping} prefix="group" />
    <${Choice} id="sorting" label=${t("overview.sort")} setting=${sorting} prefix="sort" />
    ${(troubled > 0 || onlyTroubles.value) && html`<button id="troubles" type="button" aria-pressed=${onlyTroubles.value}
      onClick=${() => show(() => { onlyTroubles.value = !onlyTroubles.value; })}>${t("overview.troubles", { n: troubled })}</button>`}
    <p id="summary">${known.value && t(`overview.summary.${grouping.choice.value}`, { values: t("overview.values", { n: shown.value.length }), n: number })}</p>
  </form>`;
}

function Choice({ id, label, setting, prefix }) {
  return html`<label class="choice">${label}
    <select id=${id} value=${setting.choice.value} onChange=${(event) => setting.choose(event.target.value)}>
      ${setting.choices.map((each) => html`<option value=${each}>${t(`${prefix}.${each}`)}</option>`)}
    </select></label>`;
}

function Group({ group, first }) {
  const { context } = GROUPS[grouping.choice.value];
  for (const entries of [group.values, group.diagnostics]) entries.sort(order.value);
  return html`<section class="place" data-place=${group.iri}>
    <h2 title=${group.iri || undefined} class=${group.ambiguous ? "ambiguous" : undefined} dir="auto">${group.name}</h2>
    <${Marks} group=${group} />
    <${Tiles} entries=${group.values} card=${group.name} contextOf=${context} first=${first} />
    ${group.diagnostics.length > 0 && html`<${Diagnostics} group=${group} context=${context} />`}
  </section>`;
}

function Diagnostics({ group, context }) {
  const chosen = useSignal(false);
  const open = chosen.value || search.value !== "";  // results of the search must not stay hidden
  return html`<details class="diagnostics" open=${open} onToggle=${(event) => { if (search.peek() === "") chosen.value = event.target.open; }}>
    <summary>${t("overview.diagnostics", { n: group.diagnostics.length })}</summary>
    ${open && html`<${Tiles} entries=${group.diagnostics} card=${group.name} contextOf=${context} />`}
  </details>`;
}

/** Problems of the devices of a group. */
function Marks({ group }) {
  const concerned = new Set([...group.values, ...group.diagnostics].map((entry) => entry.device).filter((device) => troubles.value.has(device)));
  if (!concerned.size) return null;
  return html`<p class="marks">${[...concerned].map((device) => marksOf(device).map((text) => html`<a class="mark"
    href=${`#/device/${encodeURIComponent(device)}`}>${deviceName(device)}: ${text}</a>`))}</p>`;
}

/** The troubles of a device in words. */
export function marksOf(device) {
  const { offline, silentSince, battery } = troubles.value.get(device) ?? {};
  return [
    offline && t("mark.offline"),
    silentSince !== undefined && t("mark.silent", { time: ago(silentSince, now.value) }),
    battery !== undefined && (battery === "low" ? t("mark.battery.low") : t("mark.battery", { percent: battery })),
  ].filter(Boolean);
}

function Empty() {
  return html`<section id="empty"><h1>${t("empty.title")}</h1><p>${t("empty.text")}</p></section>`;
}

new ResizeObserver(([change]) => { width.value = Math.round(change.contentRect.width); }).observe(document.getElementById("page"));
