// The gateway's mapping files.
import { getJson, request } from "./gateway.js";

export function mappingFiles() {
  return getJson("/api/mappings");
}

/** The path of a mapping file, for the functions of `documents.js`. */
export function mappingPath(name) {
  return `/api/mappings/${encodeURIComponent(name)}`;
}

/** What the gateway would make of a message ({topic, payload} or {topic, hex}), with this text as the file `name`. */
export function testMapping(message, name, text) {
  return getJson("/api/mapping-test", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...message, name, text }) });
}

/** The newest message of the topics that a mapping would match, {topic, payload, hex}; undefined: none since the first
 *  request. A part in braces stands for any level. */
export async function newestMessage(topic) {
  const filter = topic.split("/").map((level) => (/\{[^{}]+\}/.test(level) ? "+" : level)).join("/");
  const answer = await request(`/api/newest-message?${new URLSearchParams({ topic: filter })}`);
  return answer.status === 204 ? undefined : answer.json();
}

/** An unmapped topic with its last payload. */
export function unmappedTopic(topic) {
  return getJson(`/api/unmapped?${new URLSearchParams({ topic })}`);
}
