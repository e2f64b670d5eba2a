// The gateway's rules.
import { getJson, request } from "./gateway.js";

const path = (name) => `/api/rules/${encodeURIComponent(name)}`;

export function rules() {
  return getJson("/api/rules");
}

export async function readRule(name, previous = false) {
  return (await request(`${path(name)}${previous ? "?previous=true" : ""}`)).text();
}

export async function writeRule(name, text) {
  await request(path(name), { method: "PUT", headers: { "Content-Type": "text/plain; charset=utf-8" }, body: text });
}

export async function deleteRule(name) {
  await request(path(name), { method: "DELETE" });
}

/** What a rule would have done in the last hours. */
export function tryRule(name, text, hours) {
  return getJson("/api/rule-test", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ name, text, hours }) });
}

/** The text of a rule, switched on or off. */
export function switched(text, on) {
  const line = /^[ \t]*enabled[ \t]*=.*$/m, setting = `enabled = ${on}`;
  return line.test(text) ? text.replace(line, setting) : `${setting}\n${text}`;
}
