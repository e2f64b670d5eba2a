// Switches and sliders: what the values of a device should be. The gateway tells the device.
import { html, useEffect, useSignal } from "../ui.js";
import { deviceName } from "../model/devices.js";
import { literalOf, settable as settableOf, settingUpdate } from "../model/desired.js";
import { query, update } from "../model/gateway.js";
import { now } from "../model/live.js";
import { labelAt, readableName } from "../model/names.js";
import { usePolled } from "../model/polled.js";
import { t } from "../model/text.js";
import { readable, wordOf } from "../model/values.js";
import { useAction } from "./action.js";

const AGAIN = 2000;  // ms
const PATIENCE = 5000;  // ms for the device to report the value that it was sent
const MOST = 100;

/** `entries` are those of a device. Shows nothing if none of them can be set. */
export function Controls({ entries: all }) {
  const entries = all.slice(0, MOST);
  const found = useSignal({});
  const ids = entries.map(({ id }) => id);
  useEffect(() => {
    let current = true;  // answers may arrive in another order
    settableOf(ids).then((answer) => { if (current) found.value = answer; }, (error) => console.warn(error));
    return () => { current = false; };
  }, [ids.join(" ")]);
  const settable = entries.filter(({ id }) => Object.hasOwn(found.value, id));
  const [waiting, , look] = usePolled(() => desired(settable), AGAIN, settable.length > 0);
  if (!settable.length) return null;
  return html`<section class="panel wide" id="controls-of-device"><h2>${t("control.title")}</h2>
    ${settable.map((entry) => html`<${Control} key=${entry.key} entry=${entry} how=${found.value[entry.id]} waits=${waiting.value?.has(entry.id)} changed=${look} />`)}</section>`;
}

/** IRIs of the observations whose desired values have not reached their devices. */
async function desired(entries) {
  const values = entries.map(({ id }) => `<${id}>`).join(" ");
  const answer = JSON.parse(await query(`SELECT ?o { VALUES ?o { ${values} } ?o <urn:sepa-edge:desired> ?v }`, "application/sparql-results+json"));
  return new Set(answer.results.bindings.map(({ o }) => o.value));
}

function Control({ entry, how, waits, changed }) {
  const [act, problem] = useAction();
  const wished = useSignal(undefined);  // {value, until}: shown until the device reports it
  const { value, datatype } = entry.reading.value;
  const wish = wished.value && wished.value.until > Math.max(now.value, Date.now()) && wished.value.value !== value ? wished.value.value : undefined;
  const shown = wish ?? value;
  const set = (wanted) => act(async () => {
    wished.value = { value: wanted, until: Date.now() + PATIENCE };
    try {
      await update(settingUpdate(entry.id, literalOf(how, wanted)));
    } catch (error) {
      wished.value = undefined;
      throw error;
    }
    changed();
  });
  const id = `control-${entry.key}`;
  return html`<div class="control"><label for=${id} dir="auto">${labelAt(labelAt(entry.label, deviceName(entry.device)), readableName(entry.device))}</label><${Field} id=${id} how=${how} entry=${entry} value=${shown} datatype=${datatype} set=${set} />
    <small role="status">${waits ? t("control.waits") : ""}</small>${problem}</div>`;
}

// Widest range of a slider. A number is typed for a wider one, such as that of 32 bits.
const WIDEST = 100_000;

function Field({ id, how: { kind, choices, min, max, step }, entry, value, datatype, set }) {
  const moved = useSignal(undefined);
  if (kind === "switch") {
    const on = value === "true" || value === "1";
    return html`<span class="bar"><input id=${id} type="checkbox" role="switch" checked=${on} onChange=${(event) => set(String(event.target.checked))} /> <b>${wordOf(on, entry.property)}</b></span>`;
  }
  if (kind === "choice") {
    return html`<select id=${id} onChange=${(event) => set(event.target.value)}>${[...new Set([...choices, value])].map((each) => html`<option value=${each} selected=${each === value}>${each}</option>`)}</select>`;
  }
  if (kind === "number" && min !== null && max !== null && max - min <= WIDEST) {
    const at = moved.value ?? value;
    return html`<span class="bar"><input id=${id} type="range" min=${min} max=${max} step=${step ?? "any"} value=${at} onInput=${(event) => { moved.value = event.target.value; }}
      onChange=${(event) => { moved.value = undefined; set(event.target.value); }} /> <output for=${id}>${readable(at, entry.unit, datatype, entry.property).filter(Boolean).join(" ")}</output></span>`;
  }
  const send = (event) => {
    event.preventDefault();
    set(new FormData(event.target).get("value"));
  };
  return html`<form class="bar" onSubmit=${send}><input id=${id} name="value" type=${kind === "number" ? "number" : "text"} min=${min ?? ""} max=${max ?? ""} step=${step ?? "any"} required defaultValue=${value} autocomplete="off" />
    <button type="submit">${t("control.set")}</button></form>`;
}
