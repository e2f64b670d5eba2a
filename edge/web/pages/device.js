// One device, or one value without a device: chart, all values, name, RDF, and actions.
import { html, useEffect, useSignal } from "../ui.js";
import { may } from "../model/access.js";
import { about, deviceName, devices, isDiagnostic, leftBehind, placeName, placeOf, unheard } from "../model/devices.js";
import { query, update } from "../model/gateway.js";
import { health, keepsRecent } from "../model/health.js";
import { entries, isRenamed, known, now, version } from "../model/live.js";
import { readableName } from "../model/names.js";
import { sources } from "../model/sources.js";
import { compare, isolated, t } from "../model/text.js";
import { useAction } from "../parts/action.js";
import { RecentValues } from "../parts/recent_values.js";
import { Tiles } from "../parts/rows.js";
import { Source } from "../parts/source_list.js";
import { marksOf } from "./overview.js";

const MOST = 10;  // names in a sentence

/** `name` is the IRI of the device, and `value` that of the observation in the chart. */
export function Page({ name, value }) {
  return html`<${Device} device=${name} value=${value} />`;
}

/** An observation without a device. */
export function Value({ name }) {
  return html`<${Device} device="" value=${name} />`;
}

function Device({ device, value }) {
  version.value;
  const members = (device ? devices.value.get(device) : [entries.get(value)].filter(Boolean)) ?? [];
  const told = about(members), facts = new Set(Object.values(told));
  const values = members.filter((entry) => !facts.has(entry));
  const sorted = [...(values.length ? values : members)].sort((one, other) => isDiagnostic(one) - isDiagnostic(other) || compare(one.label, other.label));
  const chosen = sorted.find(({ id }) => id === value) ?? sorted[0];
  const name = device ? deviceName(device) : chosen?.label ?? readableName(value);
  useEffect(() => { document.title = `${isolated(name.slice(0, 100))} · sepa-edge`; }, [name]);
  if (!chosen) return known.value && html`<h1>${name}</h1><p class="note">${t("device.gone")}</p><p><a href="#/">${t("device.back")}</a></p>`;
  const place = placeOf(chosen);
  const named = !members.some(({ blank }) => blank);  // SPARQL cannot address blank nodes
  return html`<p class="path"><a href="#/">${t("overview.title")}</a>${place && html`<b aria-hidden="true">›</b><span dir="auto">${placeName(place)}</span>`}</p>
    <h1 dir="auto">${name}</h1>
    <${About} ...${told} source=${sources(health.value).find((each) => each.device === device)} />
    <p class="marks">${marksOf(device).map((text) => html`<span class="mark">${text}</span>`)}</p>
    ${may("update") && may("query") && html`<${LazyControls} entries=${sorted.filter(({ blank }) => !blank)} />`}
    <h2 id="chosen" dir="auto">${chosen.label}</h2>
    ${may("query") && keepsRecent() && html`<${RecentValues} key=${chosen.id} entry=${chosen} />`}
    <h2>${t("device.values")}</h2>
    <${Tiles} entries=${sorted} card=${place ? placeName(place) : name} first />
    ${device && named && may("update") && html`<${Rename} device=${device} name=${name} />`}
    ${named && may("query") && html`<${Turtle} entries=${members} device=${device} />`}
    ${device && named && may("update") && html`<${LeftBehind} entries=${values} />`}
    ${named && may("update") && html`<${Forget} entries=${members} id="forget" title=${t("device.forget")} text=${t("device.forget.text", { name, n: members.length })} leave />`}`;
}

/** Manufacturer, model, firmware, and the adapter in one line. */
function About({ manufacturer, model, firmware, source }) {
  const text = (entry) => entry?.reading.value.value ?? "";
  const version = text(firmware);
  const made = [text(manufacturer), text(model)].filter(Boolean).map(isolated).join(" ");
  const parts = [made, version && t("device.firmware", { version }), source && html`<${Source} source=${source} />`].filter(Boolean);
  return parts.length > 0 && html`<p class="path" id="about" dir="auto">${parts.map((part, index) => html`${index > 0 && " · "}${part}`)}</p>`;
}

/** Switches and sliders, whose code is not in the first view. */
function LazyControls({ entries: shown }) {
  const found = useSignal({});
  useEffect(() => { import("../parts/controls.js").then((module) => { found.value = module; }, (error) => console.warn(error)); }, []);
  const { Controls } = found.value;
  return Controls && html`<${Controls} entries=${shown} />`;
}

function Rename({ device, name }) {
  const [act, problem] = useAction();
  const save = (event) => {
    event.preventDefault();
    const text = event.target.elements.name.value.trim().toWellFormed();
    act(() => update(`PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
      DELETE { ${iri(device)} rdfs:label ?old }
      INSERT { ${text ? `${iri(device)} a sosa:Platform ; rdfs:label ${literal(text)}` : ""} }
      WHERE { OPTIONAL { ${iri(device)} rdfs:label ?old } }`));
  };
  return html`<details class="panel wide"><summary>${t("device.rename")}</summary>
    <form onSubmit=${save}>
      <label for="device-name">${t("device.name")}</label>
      <input id="device-name" name="name" defaultValue=${name} maxlength="200" autocomplete="off" />
      <button type="submit">${t("device.save")}</button>
    </form>
    ${isRenamed(device) && html`<p>${t("device.rename.undo", { name: readableName(device) })}</p>`}
    ${problem}
  </details>`;
}

const DESCRIPTION = `CONSTRUCT { ?s ?p ?o } WHERE { {
    VALUES ?s { SUBJECTS } ?s ?p ?o
  } UNION {
    VALUES ?o1 { SUBJECTS } ?o1 <http://www.w3.org/ns/sosa/hasResult> ?s . ?s ?p ?o
  } UNION {
    VALUES ?o2 { SUBJECTS } ?o2 <http://www.w3.org/ns/sosa/hasResult> ?r . ?r <http://www.w3.org/2006/time#hasTime> ?s . ?s ?p ?o
  } }`;

function Turtle({ entries: shown, device }) {
  const [act, problem] = useAction();
  const text = useSignal("");
  const load = (event) => event.target.open && act(async () => {
    const subjects = [...shown.map(({ id }) => iri(id)), ...(device ? [iri(device)] : [])].join(" ");
    text.value = await query(DESCRIPTION.replaceAll("SUBJECTS", () => subjects), "text/turtle");
  });
  return html`<details class="panel wide" onToggle=${load}><summary>${t("device.turtle")}</summary>
    ${text.value && html`<pre id="turtle" tabindex="0" dir="ltr">${text}</pre>`}${problem}</details>`;
}

const TOPICS = `SELECT ?o ?topic WHERE { VALUES ?o { SUBJECTS } ?o <http://mml.arces.unibo.it/monitor#hasMqttTopic> ?topic }`;

/** Values that messages of the device no longer have: after a change of its mapping, they stay with their last value. */
function LeftBehind({ entries: shown }) {
  const topics = useSignal(new Map());
  const silent = unheard(shown, now.value);
  useEffect(() => {
    if (!silent.length || !may("query")) return;
    const subjects = shown.map(({ id }) => iri(id)).join(" ");
    query(TOPICS.replace("SUBJECTS", () => subjects), "application/sparql-results+json").then((text) => {
      topics.value = new Map(JSON.parse(text).results.bindings.map(({ o, topic }) => [o.value, topic.value]));
    }, (error) => console.warn(error));
  }, [silent.length]);
  const old = leftBehind(silent, shown, topics.value, now.value);
  if (old.length === 0) return null;
  const [before, after] = t("device.old.text", { names: "\n" }).split("\n");
  // A name may change the direction of text: it must not turn the sentence around it.
  const text = html`${before}${old.slice(0, MOST).map(({ label }, index) => html`${index > 0 && ", "}<bdi>${label}</bdi>`)}${
    old.length > MOST && ` ${t("device.old.more", { n: old.length - MOST })}`}${after}`;
  return html`<${Forget} entries=${old} id="forget-old" title=${t("device.old", { n: old.length })} text=${text} />`;
}

/** `leave`: nothing of the device is left then. */
function Forget({ entries: shown, id, title, text, leave = false }) {
  const [act, problem, busy] = useAction({ alone: true });
  const forget = () => act(async () => {
    const before = location.hash;
    // One request, so that no other client sees half of it: as of `edge forget`. Results, times, and types and labels that
    // the gateway wrote are deleted only where nothing else refers to them; a sensor's also if a client changed its label.
    const ids = shown.map(({ id }) => iri(id));
    await update(`PREFIX sosa: <http://www.w3.org/ns/sosa/> PREFIX time: <http://www.w3.org/2006/time#>
      PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#> PREFIX monitor: <http://mml.arces.unibo.it/monitor#>
      DELETE { ?sensor a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest }
      WHERE { VALUES ?o { ${ids.join(" ")} } ?o sosa:madeBySensor ?sensor . ?sensor monitor:hasMappingDigest ?digest
        OPTIONAL { ?sensor a ?type FILTER(?type IN (sosa:Sensor, sosa:Platform)) }
        OPTIONAL { ?sensor rdfs:label ?label }
        FILTER NOT EXISTS { ?user ?p ?sensor FILTER(?user NOT IN (${ids.join(", ")})) } } ;
      DELETE { ?thing a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest }
      WHERE { VALUES ?o { ${ids.join(" ")} } VALUES ?link { sosa:observedProperty sosa:hasFeatureOfInterest }
        ?o ?link ?thing . ?thing a ?type ; rdfs:label ?label ; monitor:hasMappingDigest ?digest
        FILTER(?digest = SUBSTR(SHA256(CONCAT(STR(?type), " ", STR(?label))), 1, 16))
        FILTER NOT EXISTS { ?user ?p ?thing FILTER(?user NOT IN (${ids.join(", ")})) } } ;
      DELETE { ?o ?p ?v . ?r ?rp ?rv . ?i ?ip ?iv }
      WHERE { VALUES ?o { ${ids.join(" ")} } ?o ?p ?v
        OPTIONAL { ?o sosa:hasResult ?r . ?r ?rp ?rv
          FILTER NOT EXISTS { ?other sosa:hasResult ?r FILTER(?other != ?o) }
          OPTIONAL { ?r time:hasTime ?i . ?i ?ip ?iv FILTER NOT EXISTS { ?another time:hasTime ?i FILTER(?another != ?r) } } } }`);
    if (location.hash !== before) return;
    if (leave) location.hash = "#/";
    document.getElementById("page").focus({ preventScroll: true });  // the pressed button disappears
  });
  return html`<details class="panel wide"><summary>${title}</summary>
    <p dir="auto">${text}</p>
    <button type="button" class="danger" id=${id} aria-disabled=${busy} onClick=${forget}>${t("device.forget.do")}</button>
    ${problem}
  </details>`;
}

/** An IRI in SPARQL. The graph has no others, but the address of the page may. */
function iri(text) {
  return `<${text.replace(/[\x00-\x20<>"{}|^`\\]/g, encodeURIComponent)}>`;
}

function literal(text) {
  return JSON.stringify(text);
}
