// Texts of the page in the language of the browser. Each catalogue in texts/ has the same keys. Texts that the
// first view does not need are in texts/pages/. Formats of numbers and times are made when they are used: each takes milliseconds.
const LANGUAGES = ["en", "it", "de"];
const FALLBACK = "en";

/** The language of the page: the first one of the browser that has a catalogue. */
export const language =
  (navigator.languages ?? [navigator.language]).map((tag) => tag.slice(0, 2).toLowerCase()).find((tag) => LANGUAGES.includes(tag)) ?? FALLBACK;
/** Locale of numbers and times: the browser's variant of the language, if it has one. */
export const locale = (navigator.languages ?? []).find((tag) => tag.toLowerCase().startsWith(language)) ?? language;

const { TEXTS } = await import(`../texts/${language}.js`);
document.documentElement.lang = language;

/** Load the texts of the pages that the first view does not show. */
export async function loadTexts() {
  Object.assign(TEXTS, (await import(`../texts/pages/${language}.js`)).TEXTS);
}

/** A function that makes its result when it is called for the first time. */
function once(make) {
  let made;
  return () => (made ??= make());
}

const plurals = once(() => new Intl.PluralRules(language));

/** The text of a key. `{name}` in it stands for a value; a number `n` chooses between singular and plural. */
export function t(key, values = {}) {
  const found = TEXTS[key];
  return fill(typeof found === "object" ? found[plurals().select(values.n)] ?? found.other : found, values);
}

/** A text with values in place of its `{name}`. */
export function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? formatNumber(values[name]) : isolated(String(values[name]))));
}

const TURNING = /[\u200F\u202A-\u202E\u2066-\u2069\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;

/** A name that does not change the direction of the text around it (Unicode Annex 9, first strong isolate). */
export function isolated(name) {
  // Its own isolates could end this one.
  return TURNING.test(name) ? `\u2068${name.replace(/[\u2066-\u2069]/g, "")}\u2069` : name;
}

export function has(key) {
  return Object.hasOwn(TEXTS, key);
}

const whole = once(() => new Intl.NumberFormat(locale));
const small = once(() => new Intl.NumberFormat(locale, { maximumSignificantDigits: 4 }));
const other = once(() => new Intl.NumberFormat(locale, { maximumFractionDigits: 4 }));

export function formatNumber(number) {
  if (Number.isInteger(number)) return whole().format(number);
  return (Math.abs(number) < 1 ? small : other)().format(number);
}

const kilobytes = once(() => new Intl.NumberFormat(locale, { style: "unit", unit: "kilobyte", maximumFractionDigits: 1 }));
const megabytes = once(() => new Intl.NumberFormat(locale, { style: "unit", unit: "megabyte", maximumFractionDigits: 1 }));

/** A number of bytes: "12.3 kB". */
export function formatBytes(bytes) {
  return bytes < 999950 ? kilobytes().format(bytes / 1e3) : megabytes().format(bytes / 1e6);
}

const relative = once(() => new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" }));
const SPANS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

/** A time before `now`, both in milliseconds, as people say it: "5 minutes ago". */
export function ago(at, now) {
  const seconds = (now - at) / 1000;
  if (Math.abs(seconds) < 10) return t("time.now");
  const [unit, length] = SPANS.find(([, each]) => Math.abs(seconds) >= each);
  return relative().format(-Math.trunc(seconds / length), unit);
}

/** A period in seconds as people say it: "2 d 3 h". */
export function duration(seconds) {
  const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
  if (days) return `${days} d ${hours % 24} h`;
  return hours ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

const moments = once(() => new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }));

/** Date and time of a moment in milliseconds, in the zone of the browser. */
export function formatTime(at) {
  return moments().format(at);
}

const DATE = { day: "numeric", month: "short" }, CLOCK = { hour: "2-digit", minute: "2-digit" };
const dates = once(() => new Intl.DateTimeFormat(locale, DATE));
const axes = [
  [60, once(() => new Intl.DateTimeFormat(locale, { ...CLOCK, second: "2-digit" }))],
  [24 * 3600, once(() => new Intl.DateTimeFormat(locale, CLOCK))],
  [Infinity, dates],
];

/** Labels of moments on an axis, all in seconds, `step` apart. Midnight has the date. */
export function formatAxis(moments, step) {
  const [, format] = axes.find(([below]) => step < below);
  return moments.map((at) => {
    const midnight = new Date(at * 1000).getHours() === 0 && new Date(at * 1000).getMinutes() === 0 && step >= 60;
    return (midnight ? dates : format)().format(at * 1000);
  });
}

const sorting = once(() => new Intl.Collator(locale, { numeric: true }).compare);

/** The order of two texts, for `sort`. */
export function compare(one, another) {
  return sorting()(one, another);
}
