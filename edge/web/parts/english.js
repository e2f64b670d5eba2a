// Texts of the gateway that only English has: screen readers must not read them as the language of the page.
import { html } from "../ui.js";
import { faultParts, messageParts } from "../model/errors.js";
import { language } from "../model/text.js";

export function English({ children }) {
  return language === "en" ? children : html`<span lang="en">${children}</span>`;
}

/** A fault of a mapping file. */
export function Fault({ fault }) {
  return joined(faultParts(fault));
}

/** An error of a request. */
export function Message({ error }) {
  return joined(messageParts(error));
}

function joined(parts) {
  return parts.map(({ text, english }) => (english ? html`<${English}>${text}<//>` : text));
}
