// Something that is made only when the user unfolds it, and again the next time.
import { html, useSignal } from "../ui.js";

/** `children` is a function from a function that folds it again to the content. `label` completes the text for screen readers. */
export function Fold({ text, label, children }) {
  const open = useSignal(false);
  return html`<details open=${open.value} onToggle=${(event) => { open.value = event.target.open; }}><summary aria-label=${label ? `${text}: ${label}` : undefined}>${text}</summary>
    ${open.value && children(() => { open.value = false; })}</details>`;
}
