// The gateway's rules.
import { getJson } from "./gateway.js";

/** The path of a rule, for the functions of `documents.js`. */
export function rulePath(name) {
  return `/api/rules/${encodeURIComponent(name)}`;
}

export function rules() {
  return getJson("/api/rules");
}

/** Test a rule with the recorded values of the last hours, without running its actions. */
export function tryRule(name, text, hours) {
  return getJson("/api/rule-test", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ name, text, hours }) });
}

/** The text of a rule, switched on or off. */
export function switched(text, on) {
  const line = /^[ \t]*enabled[ \t]*=.*$/m, setting = `enabled = ${on}`;
  return line.test(text) ? text.replace(line, setting) : `${setting}\n${text}`;
}
