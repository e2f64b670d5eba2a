// What the gateway would make of a message with a mapping file, asked for while the user types.
import { html, useLayoutEffect, useSignal } from "../ui.js";
import { faultOf, loadReasons, messageOf } from "../model/errors.js";
import { SessionEnded } from "../model/gateway.js";
import { testMapping } from "../model/mapping_files.js";
import { shortened } from "../model/prefixes.js";
import { isolated, t } from "../model/text.js";
import { readable, unitSymbol } from "../model/values.js";
import { English, Fault } from "./english.js";

const PAUSE = 300;  // ms

/** `message` is {topic, payload} or {topic, hex}; `tested` gets each answer. */
export function MappingPreview({ message, name, text, tested = () => {} }) {
  const found = useSignal(undefined), problem = useSignal("");
  const { topic, payload, hex } = message;
  // With the rendering: the answer for an earlier text must not mark places in the present one.
  useLayoutEffect(() => {
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const [answer] = await Promise.all([testMapping(hex === undefined ? { topic, payload } : { topic, hex }, name, text), loadReasons()]);
        if (!current) return;
        found.value = answer;
        problem.value = "";
        tested(answer);
      } catch (error) {
        if (current && !(error instanceof SessionEnded)) problem.value = messageOf(error);
      }
    }, PAUSE);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [topic, payload, hex, name, text]);
  const answer = found.value;
  return html`<section class="preview" id="preview" aria-label=${t("mapping.preview")} aria-live="polite">
    <h2>${t("mapping.preview")}</h2>
    ${problem.value && html`<p class="problem">${problem}</p>`}
    ${[...(answer?.faults ?? []), ...(answer?.warnings ?? [])].map((fault) => html`<p class="problem" dir="auto"><${Fault} fault=${fault} /></p>`)}
    ${answer?.problems?.map((each) => html`<p class="problem" dir="auto">${isolated(each.what)}: <${English}>${each.reason}<//></p>`)}
    ${answer?.matched === false && html`<p>${t("mapping.unmatched")}</p>`}
    ${answer?.readings?.length > 0 && html`<ul class="list">${answer.readings.map((reading) => html`<${Reading} key=${reading.observation} reading=${reading} />`)}</ul>`}
  </section>`;
}

/** The faults that an editor marks at their lines. */
export function marksOf(faults) {
  return faults.filter(({ line }) => line).map((fault) => ({ line: fault.line, text: faultOf(fault) }));
}

function Reading({ reading: { observation, value, datatype, unit, label, location, property } }) {
  const [shown, symbol] = readable(value, unitSymbol(unit), datatype, property ?? "");
  return html`<li><p><b dir="auto">${label ?? observation}</b> <span class="value">${shown}</span> ${symbol}</p>
    <p><code>${shortened(observation)}</code>${location && html` · <code>${shortened(location)}</code>`}</p></li>`;
}
