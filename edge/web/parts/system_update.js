// Update of the system: send its file, see its installation, and restart into it. Only images of the gateway have it.
import { html, useSignal } from "../ui.js";
import { getJson, request } from "../model/gateway.js";
import { usePolled } from "../model/polled.js";
import { formatBytes, t } from "../model/text.js";
import { useAction } from "./action.js";
import { announce } from "./announcer.js";

const AGAIN = 2000;  // ms
const PATH = "/api/system-update";
const BUSY = ["receiving", "waiting", "installing"];
const JSON_TYPE = { "Content-Type": "application/json" };

export function SystemUpdate() {
  const [found, error, look] = usePolled(() => getJson(PATH), AGAIN);
  const sending = useSignal(""), restarting = useSignal(false);
  const [act, problem] = useAction();
  const send = (event) => {
    event.preventDefault();
    const form = event.target, [file] = form.elements.file.files;
    if (!confirm(t("update.sure", { name: file.name }))) return;
    act(async () => {
      sending.value = t("update.sending", { size: formatBytes(file.size) });
      try {
        const body = new Blob([file], { type: "application/octet-stream" });
        await request(PATH, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body });
        form.reset();
      } finally {
        sending.value = "";
        look();
      }
    });
  };
  const restart = () => act(async () => {
    await request(`${PATH}/restart`, { method: "POST", headers: JSON_TYPE, body: '{"restart": true}' });
    restarting.value = true;
    announce(t("update.restarting"));
  });
  const state = found.value;
  if (!state || state.state === "off") return null;
  const busy = Boolean(sending.value) || BUSY.includes(state.state);
  return html`<section class="panel wide" id="update" aria-busy=${busy}><h2>${t("update.title")}</h2><p>${t("update.text")}</p>
    ${state.state === "idle" && state.trial && html`<p>${t("update.trial", { version: state.trial })}</p>`}
    ${state.undone && html`<p class="problem">${t("update.undone", { version: state.undone })}</p>`}
    <form class="rows" onSubmit=${send}><label class="choice">${t("update.file")} <input type="file" name="file" required accept=".raucb" /></label>
      <button type="submit" disabled=${busy}>${t("update.do")}</button></form>
    ${problem}<p class="problem" role="alert">${error}</p>
    <p role="status" dir="auto">${sending.value || progress(state)}</p>
    ${state.state === "installed" && html`<button type="button" class="danger" disabled=${restarting.value} onClick=${restart}>${t(restarting.value ? "update.restarting" : "update.restart")}</button>`}
  </section>`;
}

function progress({ state, percent, message, version }) {
  if (state === "installing") return t("update.installing", { percent, message });
  if (state === "installed") return t("update.installed", { version });
  if (state === "failed") return t("update.failed", { reason: message });
  return BUSY.includes(state) ? t(`update.${state}`) : "";
}
