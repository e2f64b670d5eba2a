// Restore of a backup: the gateway checks it, starts again with it, and the page says how that ended.
import { html, useSignal } from "../ui.js";
import { getJson, request } from "../model/gateway.js";
import { lookNow } from "../model/health.js";
import { formatBytes, formatTime, t } from "../model/text.js";
import { token } from "../model/token.js";
import { useAction } from "./action.js";
import { announce } from "./announcer.js";
import { Fold } from "./fold.js";

const AGAIN = 1000;  // ms
const PATIENCE = 300e3;

export function Restore() {
  return html`<${Fold} text=${t("restore.title")} label="">${() => html`<${Form} />`}<//>`;
}

function Form() {
  const busy = useSignal(""), outcome = useSignal("");
  const [act, problem] = useAction({ alone: true });
  const restore = (event) => {
    event.preventDefault();
    const form = event.target, [file] = form.elements.file.files, keep = form.elements.keep?.checked;
    if (busy.peek() || !confirm(t("restore.sure", { name: file.name }))) return;
    outcome.value = "";
    act(async () => {
      try {
        busy.value = "restore.busy";
        const { last_restart: before } = await getJson("/health");
        const body = new Blob([file], { type: "application/gzip" });
        const answer = await request(`/api/restore?clients=${keep ? "keep" : "replace"}`, { method: "POST", headers: { "Content-Type": "application/gzip" }, body });
        const { restored } = await answer.json();
        form.reset();
        busy.value = "restore.starting";
        const { reason, detail } = await nextStart(before.starts);
        if (reason !== "restored") throw new Error(t("restore.undone", { reason: detail || reason }));
        outcome.value = t("restore.done", { time: formatTime(Date.parse(restored.made)), size: formatBytes(restored.bytes) });
        announce(outcome.value);
        lookNow();
      } finally {
        busy.value = "";
      }
    });
  };
  return html`<p>${t("restore.text")}</p>
    <form class="rows" onSubmit=${restore}><label class="choice">${t("restore.file")} <input type="file" name="file" required accept=".gz,application/gzip" /></label>
      ${token() && html`<label class="choice"><input type="checkbox" name="keep" /> ${t("restore.keep")}</label>`}
      <button type="submit" class="danger" aria-disabled=${Boolean(busy.value)}>${t(busy.value || "restore.do")}</button></form>
    ${problem}<p role="status">${outcome.value}</p>`;
}

/** How the gateway was started after these starts. */
async function nextStart(starts) {
  for (const end = Date.now() + PATIENCE; Date.now() < end;) {
    await new Promise((done) => { setTimeout(done, AGAIN); });
    const state = await getJson("/health", { signal: AbortSignal.timeout(5000) }).catch(() => undefined);  // it is not back yet
    if (state?.last_restart?.starts > starts) return state.last_restart;
  }
  throw new Error(t("restore.gone"));
}
