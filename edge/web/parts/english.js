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

/** Why a mapping file, an announcement or a birth cannot be used, as one element for each of its faults. Without `file`,
 *  they do not name it. */
export function FileFault({ file = "", reason, faults, further_faults: further, announced }) {
  useEffect(() => { loadReasons().catch(() => {}); }, []);  // without them, the reasons are English
  const name = announced ? file : file.split("/").pop(), begin = name && `${isolated(name)}: `;
  if (language === "en" || !faults?.length) return html`<p class="problem" dir="auto">${!reason.startsWith(file) && begin}<${English}>${reason}<//></p>`;
  return html`${faults.map((each) => html`<p class="problem" dir="auto">${begin}<${Fault} fault=${each} /></p>`)}
    ${further && html`<p class="problem" dir="auto">${begin}${t(announced ? "fault.further_announced" : "fault.further", { n: further })}</p>`}`;
}

/** An error of a request. */
export function Message({ error }) {
  return joined(messageParts(error));
}

function joined(parts) {
  return parts.map(({ text, english }) => (english ? html`<${English}>${text}<//>` : text));
}
