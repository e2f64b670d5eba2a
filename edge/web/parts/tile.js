// One value: its name, its age, its last day, and the newest reading.
import { effect, html, signal, useComputed, useEffect, useRef, useSignalEffect } from "../ui.js";
import { may } from "../model/access.js";
import { deviceName } from "../model/devices.js";
import { keepsRecent } from "../model/health.js";
import { now } from "../model/live.js";
import { labelAt, readableName } from "../model/names.js";
import { ago, formatTime } from "../model/text.js";
import { readable } from "../model/values.js";

const QUIET = 5000;  // ms; a value that changes more often is not marked
const MARKED = 1200;  // ms

/** Where a tile leads to: the page of its device, with this value in the chart. */
export function linkTo(entry) {
  const value = encodeURIComponent(entry.id);
  return entry.device ? `#/device/${encodeURIComponent(entry.device)}?value=${value}` : `#/value/${value}`;
}

/** `card` is the name on the card, which the label need not repeat. `context` is shown below the label. */
export function Tile({ entry, card, context = "" }) {
  const element = useRef();
  const shown = useComputed(() => {
    const { value, datatype } = entry.reading.value;
    return readable(value, entry.unit, datatype, entry.property);
  });
  const value = useComputed(() => shown.value[0]);
  const unit = useComputed(() => shown.value[1]);
  const exact = useComputed(() => `${entry.reading.value.value} ${entry.unit}`.trim());
  useMark(entry, element);
  return html`<li class="observation" ref=${element} data-id=${entry.id}>
    <a href=${linkTo(entry)}>
      <span class="label" title=${entry.label} dir="auto">${shortLabel(entry, card)}</span>
      <${Age} entry=${entry} context=${context === card ? "" : context} />
      <${LazyCurve} id=${entry.id} />
      <span class="reading" title=${exact}><span class="value" dir="auto">${value}</span><span class="unit">${unit}</span></span>
    </a>
  </li>`;
}

/** The label without the names of its card and its device, also the one that its mapping knew. */
function shortLabel({ label, device }, card) {
  return [card, deviceName(device), readableName(device)].reduce(labelAt, label);
}

function Age({ entry, context }) {
  const at = useComputed(() => (Number.isFinite(entry.reading.value.time) ? entry.reading.value.time : undefined));
  const text = useComputed(() => (at.value === undefined ? "" : ago(at.value, now.value)));
  const exact = useComputed(() => (at.value === undefined ? undefined : new Date(at.value).toISOString()));
  const title = useComputed(() => (at.value === undefined ? undefined : formatTime(at.value)));
  return html`<span class="below">${context && html`<span class="context" dir="auto">${context}</span>`}<time
    class="when" dateTime=${exact} title=${title}>${text}</time></span>`;
}

// The curve of a value: its code is loaded after the first values.
const curve = signal(undefined);
effect(() => { if (may("query") && keepsRecent() && !curve.peek()) import("./curve.js").then((module) => { curve.value = module; }, () => {}); });

function LazyCurve({ id }) {
  const { Curve } = curve.value ?? {};
  return Curve && html`<${Curve} id=${id} />`;
}

// A new value is marked for a moment. Without an animation: that would paint each frame of it.
function useMark(entry, element) {
  const last = useRef(0);
  const timer = useRef();
  const before = useRef(entry.reading.peek());
  useSignalEffect(() => {
    const reading = entry.reading.value;
    if (reading === before.current) return;
    before.current = reading;
    const at = Date.now();
    if (at - last.current > QUIET) {
      element.current?.classList.add("changed");
      timer.current = setTimeout(() => element.current?.classList.remove("changed"), MARKED);
    }
    last.current = at;
  });
  useEffect(() => () => clearTimeout(timer.current), []);
}
