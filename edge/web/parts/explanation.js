// The explanation of a subscription's cost (`/explain`) as a tree. Its texts are those of the gateway.
import { html } from "../ui.js";
import { t } from "../model/text.js";

export function Explanation({ found }) {
  const { kept, summary, reason, parts, steps, memory, sharing, advice } = found;
  return html`<section class="panel wide" id="explanation" aria-label=${t("console.explain")}>
    <p><span class="mark" data-state=${kept === "incremental" ? "good" : "wait"}>${kept}</span> ${[summary, reason].filter(Boolean).join(" ")}</p>
    <ul class="tree">
      ${parts.map((patterns, index) => html`<li>${parts.length > 1 ? t("explain.part", { number: index + 1 }) : t("explain.patterns")}
        <ul>${patterns.map((each) => html`<li><code dir="ltr">${each.inside ? `${each.inside} { ${each.pattern} }` : each.pattern}</code>${" "}
          <span class="cost">${t("explain.matches", { n: each.matches })}</span>
          <ul><li>${each.text}</li>${each.warning && html`<li class="problem">${each.warning}</li>`}</ul></li>`)}</ul></li>`)}
      ${steps.length > 0 && html`<li>${t("explain.steps")}<ul>${steps.map(({ name, text, keeps }) => html`<li><code dir="ltr">${name}</code>
        <ul><li>${text}</li>${keeps && html`<li>${t("explain.keeps", { what: keeps })}</li>`}</ul></li>`)}</ul></li>`}
      ${memory && html`<li>${t("explain.memory", { what: memory })}</li>`}
      ${sharing?.text && html`<li>${t("explain.sharing")}<ul><li>${sharing.text}</li></ul></li>`}
      ${advice.length > 0 && html`<li>${t("explain.advice")}<ul>${advice.map((each) => html`<li>${each}</li>`)}</ul></li>`}
    </ul>
  </section>`;
}
