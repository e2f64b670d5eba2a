// A button that waits for the next message of a topic, also of one that is mapped already.
import { html, useEffect, useRef, useSignal } from "../ui.js";
import { newestMessage } from "../model/mapping_files.js";
import { t } from "../model/text.js";
import { useAction } from "./action.js";

const AGAIN = 1000;  // ms

/** `take` gets the message, {topic, payload, hex}. */
export function NextMessage({ topic, take }) {
  const waits = useSignal(false), attempt = useRef();
  const [act, problem] = useAction();
  const stop = () => {
    attempt.current = undefined;
    waits.value = false;
  };
  useEffect(() => stop, [topic]);
  const wait = () => act(async () => {
    if (waits.value) return stop();
    const mine = attempt.current = {};
    waits.value = true;
    try {
      let found = await newestMessage(topic);
      while (attempt.current === mine && !found) {
        await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
        found = await newestMessage(topic);
      }
      if (attempt.current === mine) take(found);
    } finally {
      if (attempt.current === mine) stop();
    }
  });
  return html`<div class="bar"><button type="button" id="next" aria-pressed=${waits.value} disabled=${!topic} onClick=${wait}>${t("mapping.next")}</button>
    <p role="status">${waits.value ? t("mapping.waits") : ""}</p></div>${problem}`;
}
