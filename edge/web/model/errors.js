// Errors in the language of the page. The gateway's own text is English and has the place and the remedy, so it follows.
import { signal } from "../ui.js";
import { fill, has, isolated, language, t } from "./text.js";

const reasons = signal({});

/** Load the texts of reasons of faults, except for English. */
export async function loadReasons() {
  if (language !== "en") reasons.value = (await import(`../texts/faults/${language}.js`)).REASONS;
}

/** What to show for a fault of a mapping file, as parts {text, english}. Rare reasons are the gateway's own, in English.
 *  The faults in the health of the gateway have no `text`. */
export function faultParts({ text, line, code, table, mapping, key, nearest, allowed, ...fault }) {
  if (language === "en" || !has(`fault.${code}`)) return [{ text: text ?? fault.reason, english: true }];
  const place = [line && t("fault.line", { line: String(line) }), mapping && `${t(`fault.table.${table}`)} "${isolated(mapping)}"`, key && isolated(key)].filter(Boolean).join(", ");
  return [
    { text: place && `${place}: ` },
    ...within(t(`fault.${code}`, { reason: REASON }), {}, reasonParts(fault)),
    { text: nearest ? ` ${t("fault.nearest", { nearest })}` : "" },
    ...(allowed ? [{ text: " " }, ...within(t("fault.allowed", { allowed: REASON }), {}, [{ text: allowed, english: true }])] : []),
  ].filter(({ text: part }) => part);
}

const REASON = "{reason}";  // stands for the text of another language

function reasonParts({ reason, reason_code: code, reason_values: values = {} }) {
  const known = Object.hasOwn(reasons.value, code ?? "") && reasons.value[code];
  return known ? within(known, values, [{ text: values.reason, english: true }]) : [{ text: reason, english: true }];
}

function within(text, values, inner) {
  const [before, after] = text.split(REASON).map((part) => fill(part, values));
  return after === undefined ? [{ text: before }] : [{ text: before }, ...inner, { text: after }];
}

/** The same as one text. */
export function faultOf(fault) {
  return faultParts(fault).map(({ text }) => text).join("");
}

/** What to show for an error of a request, as parts {text, english}. */
export function messageParts({ error, message }) {
  const kind = language !== "en" && error && has(`error.${error}`) ? `${t(`error.${error}`)}: ` : "";
  return [{ text: kind }, { text: message, english: Boolean(error) }];
}

/** The same as one text. */
export function messageOf(error) {
  return messageParts(error).map(({ text }) => text).join("");
}
