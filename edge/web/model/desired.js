// Desired values: the update that tells a device what a value should be, and how values can be set.
import { getJson } from "./gateway.js";

const MOST = 100;  // observations of a request
const REQUESTS = 10;

/** The update that sets a value; `literal` is SPARQL. */
export function settingUpdate(observation, literal) {
  return `DELETE { <${observation}> <urn:sepa-edge:desired> ?old }\nINSERT { <${observation}> <urn:sepa-edge:desired> ${literal} }\nWHERE { OPTIONAL { <${observation}> <urn:sepa-edge:desired> ?old } }`;
}

/** {observation, literal} of an update that `settingUpdate` made; undefined for any other. */
export function setBy(update) {
  const [, observation, literal] = /^DELETE \{ <([^<>]+)> \S+ \?old \}\nINSERT \{ \S+ \S+ (.+) \}\nWHERE/.exec(update.trim()) ?? [];
  return observation && settingUpdate(observation, literal) === update.trim() ? { observation, literal } : undefined;
}

/** The SPARQL literal of a value that is set in this way. */
export function literalOf({ kind }, value) {
  return kind === "switch" || kind === "number" ? value : JSON.stringify(value);
}

/** IRI -> how a value can be set, for those of these observations that can. */
export async function settable(ids) {
  const found = {};
  for (let at = 0; at < Math.min(ids.length, MOST * REQUESTS); at += MOST) {
    const parameters = new URLSearchParams(ids.slice(at, at + MOST).map((id) => ["observation", id]));
    Object.assign(found, await getJson(`/api/settable?${parameters}`));
  }
  return found;
}
