// An RDF term: a short name for an IRI, a link where the application has a page for it, the text of a literal.
import { html } from "../ui.js";
import { entries } from "../model/live.js";
import { shortened } from "../model/prefixes.js";
import { linkTo } from "./tile.js";

const XSD = "http://www.w3.org/2001/XMLSchema#";

/** `term` is a term of SPARQL 1.1 Query Results JSON, or undefined. */
export function Term({ term }) {
  if (!term) return null;
  if (term.type === "bnode") return html`<code>_:${term.value}</code>`;
  if (term.type === "uri") {
    const entry = entries.get(term.value), name = html`<code title=${term.value} dir="ltr">${shortened(term.value)}</code>`;
    return entry ? html`<a href=${linkTo(entry)}>${name}</a>` : name;
  }
  const kind = term["xml:lang"] ? `@${term["xml:lang"]}${term["its:dir"] ? `--${term["its:dir"]}` : ""}` : term.datatype && !term.datatype.startsWith(XSD) ? shortened(term.datatype) : "";
  return html`<span dir="auto" title=${term.datatype}>${term.value}</span>${kind && html` <small>${kind}</small>`}`;
}
