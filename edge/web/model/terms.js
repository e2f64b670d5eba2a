// Properties and classes of the graph, which the console completes. Asked for once, when they are needed first.
import { may } from "./access.js";
import { connection } from "./connection.js";
import { query } from "./gateway.js";

const MOST = 400;
const QUERIES = [
  ["property", `SELECT DISTINCT ?term { ?s ?term ?o } LIMIT ${MOST}`],
  ["class", `SELECT DISTINCT ?term { ?s a ?term FILTER(isIRI(?term)) } LIMIT ${MOST}`],
];

let asked;

connection.subscribe(({ state }) => { if (state === "locked") asked = undefined; });

/** Promise of [{iri, type}]; empty if this client may not query, or the gateway refuses. */
export async function terms() {
  if (!may("query")) return [];
  return (asked ??= Promise.all(QUERIES.map(ask)).then((all) => all.flat(), (error) => {
    console.warn(error);
    asked = undefined;
    return [];
  }));
}

async function ask([type, sparql]) {
  const { results } = JSON.parse(await query(sparql, "application/sparql-results+json"));
  return results.bindings.map(({ term }) => ({ iri: term.value, type }));
}
