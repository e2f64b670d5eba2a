// Something that is made only when the user unfolds it, and again the next time.
import { html, useRef, useSignal } from "../ui.js";

/** `children` is a function from a function that folds it again to the content. `label` completes the text for screen readers. */
export function Fold({ text, label, children }) {
  const open = useSignal(false), title = useRef();
  const close = () => {
    open.value = false;
    title.current?.focus();  // what had it is gone
  };
  return html`<details open=${open.value} onToggle=${(event) => { open.value = event.target.open; }}><summary ref=${title} aria-label=${label ? `${text}: ${label}` : undefined}>${text}</summary>
    ${open.value && children(close)}</details>`;
}
