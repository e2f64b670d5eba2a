// Situations that rules have found, live.
import { signal } from "../ui.js";
import { connection, subscribe } from "./connection.js";

const QUERY = `PREFIX edge: <urn:sepa-edge:>
PREFIX rdfs: <http://www.w3.org/2000/01/rdf-schema#>
SELECT ?situation ?label ?since ?about WHERE { GRAPH <urn:sepa-edge:automation> {
  ?situation edge:since ?since ; rdfs:label ?label . OPTIONAL { ?situation edge:about ?about }
} }`;

/** IRI of the situation -> {label, since, about}: since when (milliseconds), and the IRI of the observation or "". */
export const situations = signal(new Map());

function change(removed, added) {
  const next = new Map(situations.peek());
  for (const { situation } of removed) next.delete(situation.value);
  for (const { situation, label, since, about } of added) next.set(situation.value, { label: label.value, since: Date.parse(since.value), about: about?.value ?? "" });
  situations.value = next;
}

connection.subscribe(({ state }) => { if (state === "locked") situations.value = new Map(); });
subscribe("situations", QUERY, { begin: () => { situations.value = new Map(); }, change });
