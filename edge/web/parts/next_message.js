// A button that takes the newest message of a topic since the gateway watches it, or waits for one. The topic may be mapped.
import { html, useEffect, useRef, useSignal } from "../ui.js";
import { newestMessage } from "../model/mapping_files.js";
import { t } from "../model/text.js";
import { useAction } from "./action.js";

const AGAIN = 1000;  // ms
const ATTEMPTS = 60;  // while the page is visible

/** `take` gets the message, {topic, payload, hex}. */
export function NextMessage({ topic, take }) {
  const waits = useSignal(false), none = useSignal(false), attempt = useRef();
  const [act, problem] = useAction();
  const stop = () => {
    attempt.current = undefined;
    waits.value = none.value = false;
  };
  useEffect(() => stop, [topic]);
  const wait = () => act(async () => {
    if (waits.value) return stop();
    const mine = attempt.current = {};
    waits.value = true;
    none.value = false;
    try {
      let found = await newestMessage(topic);
      for (let more = ATTEMPTS; more > 0 && !found && attempt.current === mine; more -= 1) {
        await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
        await visible();
        if (attempt.current === mine) found = await newestMessage(topic);
      }
      if (attempt.current !== mine) return;
      stop();
      if (found) take(found);
      else none.value = true;
    } finally {
      if (attempt.current === mine) stop();
    }
  });
  return html`<div class="bar"><button type="button" id="next" aria-pressed=${waits.value} disabled=${!topic} onClick=${wait}>${t("mapping.next")}</button>
    <p role="status">${waits.value ? t("mapping.waits") : none.value ? t("mapping.waited") : ""}</p></div>${problem}`;
}

/** Wait until the page is visible. */
function visible() {
  if (!document.hidden) return undefined;
  return new Promise((resolve) => { document.addEventListener("visibilitychange", () => resolve(visible()), { once: true }); });
}
