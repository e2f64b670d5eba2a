// The gateway's mapping files.
import { getJson, request } from "./gateway.js";

export function mappingFiles() {
  return getJson("/api/mappings");
}

export async function readMapping(name, previous = false) {
  return (await request(`/api/mappings/${encodeURIComponent(name)}${previous ? "?previous=true" : ""}`)).text();
}

export async function writeMapping(name, text) {
  await request(`/api/mappings/${encodeURIComponent(name)}`, { method: "PUT", headers: { "Content-Type": "text/plain; charset=utf-8" }, body: text });
}

export async function deleteMapping(name) {
  await request(`/api/mappings/${encodeURIComponent(name)}`, { method: "DELETE" });
}

/** What the gateway would make of a message ({topic, payload} or {topic, hex}), with this text as the file `name`. */
export function testMapping(message, name, text) {
  return getJson("/api/mapping-test", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ...message, name, text }) });
}

/** An unmapped topic with its last payload. */
export function unmappedTopic(topic) {
  return getJson(`/api/unmapped?${new URLSearchParams({ topic })}`);
}
