// Texts of the gateway that only English has: screen readers must not read them as the language of the page.
import { html, useEffect } from "../ui.js";
import { faultParts, loadReasons, messageParts } from "../model/errors.js";
import { isolated, language, t } from "../model/text.js";

export function English({ children }) {
  return language === "en" ? children : html`<span lang="en">${children}</span>`;
}

/** A fault of a mapping file. */
export function Fault({ fault }) {
  return joined(faultParts(fault));
}

/** Why a mapping file cannot be used, as one element for each of its faults. Without `file`, they do not name it. */
export function FileFault({ file, reason, faults, further_faults: further }) {
  useEffect(() => { loadReasons().catch(() => {}); }, []);  // without them, the reasons are English
  if (language === "en" || !faults?.length) return html`<p class="problem" dir="auto"><${English}>${reason}<//></p>`;
  const name = file && `${isolated(file.split("/").pop())}: `;
  return html`${faults.map((each) => html`<p class="problem" dir="auto">${name}<${Fault} fault=${each} /></p>`)}
    ${further && html`<p class="problem" dir="auto">${name}${t("fault.further", { n: further })}</p>`}`;
}

/** An error of a request. */
export function Message({ error }) {
  return joined(messageParts(error));
}

function joined(parts) {
  return parts.map(({ text, english }) => (english ? html`<${English}>${text}<//>` : text));
}
