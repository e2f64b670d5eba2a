// The editor of SPARQL: completion of keywords, variables, prefixes and terms of the graph.
import { sparql } from "@codemirror/legacy-modes/mode/sparql";
import { html } from "../ui.js";
import { PREFIXES, split } from "../model/prefixes.js";
import { terms } from "../model/terms.js";
import { t } from "../model/text.js";
import { Editor } from "./editor.js";

const KEYWORDS = `ADD ALL AS ASC ASK AVG BASE BIND BOUND BY CLEAR COALESCE CONCAT CONSTRUCT CONTAINS COPY COUNT CREATE DATA
  DATATYPE DELETE DESC DESCRIBE DISTINCT DROP EXISTS FILTER FROM GRAPH GROUP HAVING IF IN INSERT INTO isBLANK isIRI isLITERAL
  isNUMERIC LANG LANGMATCHES LCASE LIMIT LOAD MAX MIN MINUS MOVE NAMED NOT NOW OFFSET OPTIONAL ORDER PREFIX REDUCED REGEX
  SAMPLE SELECT SILENT STR STRDT STRENDS STRLEN STRSTARTS SUBSTR SUM UCASE UNDEF UNION USING VALUES WHERE WITH`.split(/\s+/);
const FUNCTIONS = /^(AVG|BOUND|COALESCE|CONCAT|CONTAINS|COUNT|DATATYPE|IF|is\w+|LANG|LANGMATCHES|LCASE|MAX|MIN|NOW|REGEX|SAMPLE|STR\w*|SUBSTR|SUM|UCASE)$/;

/** See `Editor`. */
export function SparqlEditor(properties) {
  return html`<${Editor} ...${properties} mode=${sparql} complete=${complete} />`;
}

/** The place that an error message of the gateway names, as marks. */
export function placeIn(message) {
  const [, line, column] = /line (\d+), column (\d+)/.exec(message) ?? [];
  return line ? [{ line: Number(line), column: Number(column) }] : [];
}

async function complete(context) {
  const word = context.matchBefore(/[?$\w:-]+/u);
  if (!word && !context.explicit) return null;
  const from = word?.from ?? context.pos, typed = word?.text ?? "";
  const text = context.state.doc.toString();
  if (/^[?$]/.test(typed)) return { from, options: variables(text, typed), validFor: /^[?$]\w*$/ };
  if (/PREFIX\s+[\w:-]*$/i.test(text.slice(0, context.pos))) return { from, options: declarations() };
  const options = [...named(text, await terms()), ...Object.keys(PREFIXES).map((prefix) => ({ label: `${prefix}:`, detail: PREFIXES[prefix], apply: withPrefix(prefix, PREFIXES[prefix], `${prefix}:`) }))];
  const seen = new Set();
  const unique = options.filter(({ label }) => !seen.has(label) && seen.add(label));
  if (!typed.includes(":")) unique.push(...KEYWORDS.map((each) => ({ label: each, apply: FUNCTIONS.test(each) ? `${each}(` : `${each} `, boost: 1 })));
  return { from, options: unique, validFor: /^[\w:-]*$/ };
}

function variables(text, typed) {
  const all = new Set(text.match(/[?$]\w+/g));
  all.delete(typed);
  return [...all].map((label) => ({ label }));
}

function declarations() {
  return Object.entries(PREFIXES).map(([prefix, namespace]) => ({ label: `${prefix}:`, detail: namespace, apply: `${prefix}: <${namespace}>\n` }));
}

function named(text, all) {
  const declared = new Map([...text.matchAll(/PREFIX\s+([\w-]*):\s*<([^>\s]*)>/gi)].map(([, prefix, namespace]) => [namespace, prefix]));
  return all.map(({ iri, type }) => {
    const namespace = [...declared.keys()].find((each) => each && iri.startsWith(each) && /^[\w-]+$/.test(iri.slice(each.length)));
    if (namespace !== undefined) return { label: `${declared.get(namespace)}:${iri.slice(namespace.length)}`, detail: t(`console.${type}`) };
    const found = split(iri);
    if (!found) return { label: `<${iri}>`, detail: t(`console.${type}`) };
    const label = `${found.prefix}:${found.local}`;
    return { label, detail: t(`console.${type}`), apply: withPrefix(found.prefix, found.namespace, label) };
  });
}

/** Insert a name, and the declaration of its prefix at the top of the text if it is missing. */
function withPrefix(prefix, namespace, label) {
  return (view, _, from, to) => {
    const text = view.state.doc.toString();
    const missing = !new RegExp(`PREFIX\\s+${prefix}:`, "i").test(text);
    const declaration = missing ? `PREFIX ${prefix}: <${namespace}>\n` : "";
    view.dispatch({
      changes: [{ from: 0, insert: declaration }, { from, to, insert: label }],
      selection: { anchor: declaration.length + from + label.length },
    });
  };
}
