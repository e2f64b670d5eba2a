// Errors in the language of the page. The gateway's own text is English and has the place and the remedy, so it follows.
import { has, language, t } from "./text.js";

/** What to show for an error of a request. */
export function messageOf({ error, message }) {
  if (language === "en" || !error || !has(`error.${error}`)) return message;
  return `${t(`error.${error}`)}: ${message}`;
}
