// From a new gateway to the first device, in three steps.
import { html, useEffect, useSignal } from "../ui.js";
import { getJson } from "../model/gateway.js";
import { lookNow, unmapped } from "../model/health.js";
import { t } from "../model/text.js";

const AGAIN = 3000;  // ms
const MOST = 5;
const EXAMPLE = "hall/sensor '{\"temperature\": 21.5}'";

/** `arrived`: whether a device has values. `end` is called when the user has seen enough. */
export function Tour({ arrived, end }) {
  const broker = useSignal("");
  useEffect(() => {
    getJson("/api/endpoints").then(({ mqtts, mqtt }) => { broker.value = mqtts ?? mqtt ?? ""; }, (error) => console.warn(error));
    const timer = setInterval(lookNow, AGAIN);
    return () => clearInterval(timer);
  }, []);
  const topics = unmapped.value ?? [];
  const step = arrived ? 3 : topics.length ? 2 : 1;
  return html`<section class="panel wide" id="tour" aria-labelledby="tour-title"><h2 id="tour-title">${t("tour.title")}</h2>
    <ol>
      <${Step} number=${1} current=${step} name="connect">
        ${broker.value ? html`<p>${t("tour.broker")} <code dir="ltr">${broker}</code></p>` : html`<p>${t("tour.broker.other")}</p>`}
        <p>${t("tour.try")}</p><pre tabindex="0" dir="ltr">edge publish ${EXAMPLE}</pre>
      <//>
      <${Step} number=${2} current=${step} name="map">
        <ul>${topics.slice(0, MOST).map(({ topic }) => html`<li><a href=${`#/new/${encodeURIComponent(topic)}`} dir="auto">${topic}</a></li>`)}</ul>
      <//>
      <${Step} number=${3} current=${step} name="watch"><//>
    </ol>
    <button type="button" onClick=${end}>${t(arrived ? "tour.end" : "tour.skip")}</button>
  </section>`;
}

function Step({ number, current, name, children }) {
  const done = number < current || (number === current && number === 3);
  return html`<li aria-current=${number === current ? "step" : undefined} data-state=${done ? "done" : undefined}><h3>${t(`tour.${name}`)}${done && html` <span class="mark" data-state="good">${t("tour.done")}</span>`}</h3>
    ${number === current && html`<p>${t(`tour.${name}.text`)}</p>${children}`}</li>`;
}
