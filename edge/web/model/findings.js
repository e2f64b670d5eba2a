// Findings of the examination in the language of the page. The gateway sends English texts, and codes with values.
import { fill, language } from "./text.js";

let texts = {};

/** Load the texts of findings, except for English. */
export async function loadFindings() {
  if (language !== "en") texts = (await import(`../texts/findings/${language}.js`)).FINDINGS;
}

/** The texts of a finding. A newer gateway may have codes that the catalogue does not know: these stay English. */
export function textsOf({ code, values, failed, do: remedy, ...finding }) {
  const known = texts[code];
  if (!known) return { ...finding, remedy };
  const [what, why, todo, done] = known.map((text) => fill(text, values));
  return { ...finding, what, why: finding.why && why, remedy: remedy && (failed ? `${todo} (${failed})` : todo), fixed: finding.fixed && done };
}
