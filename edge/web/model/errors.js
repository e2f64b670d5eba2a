// Errors in the language of the page. The gateway's own text is English and has the place and the remedy, so it follows.
import { has, language, t } from "./text.js";

/** What to show for a fault of a mapping file. Rare reasons are the gateway's own, in English. */
export function faultOf({ text, line, code, reason, table, mapping, key, nearest, allowed }) {
  if (language === "en" || !has(`fault.${code}`)) return text;
  const place = [line && t("fault.line", { line: String(line) }), mapping && `${t(`fault.table.${table}`)} "${mapping}"`, key].filter(Boolean).join(", ");
  const more = [nearest && t("fault.nearest", { nearest }), allowed && t("fault.allowed", { allowed })].filter(Boolean);
  return [place ? `${place}: ${t(`fault.${code}`, { reason })}` : t(`fault.${code}`, { reason }), ...more].join(" ");
}

/** What to show for an error of a request. */
export function messageOf({ error, message }) {
  if (language === "en" || !error || !has(`error.${error}`)) return message;
  return `${t(`error.${error}`)}: ${message}`;
}
