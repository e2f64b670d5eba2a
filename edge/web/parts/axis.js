// Numbers along an axis: in the units of the tiles (readable() in model/values.js), and with the digits that tell
// neighbouring labels apart.
import { locale } from "../model/text.js";

const BYTES = ["B", "kB", "MB", "GB", "TB"];
const TIMES = [[86400, "d"], [3600, "h"], [60, "min"]];  // seconds
const LARGE = 1e12;  // from here on with an exponent
const DIGITS = 12;  // at most, after the decimal point
const MINUTE = 60, HOUR = 3600, DAY = 86400;
const ONES = [1, 2, 5];

/** Steps between labels of seconds, so that each label is a whole number of its unit. */
const SECONDS = [
  ...Array.from({ length: 6 }, (_, power) => ONES.map((one) => one * 10 ** (power - 6))).flat(),
  ...[1, 2, 5, 10, 30].flatMap((n) => [n, n * MINUTE]), ...[1, 2, 6, 12].map((n) => n * HOUR),
  ...Array.from({ length: 6 }, (_, power) => ONES.map((one) => one * 10 ** power * DAY)).flat(),
].sort((one, other) => one - other);

/** Labels of numbers that are `step` apart. */
export function numberLabels(numbers, unit, step) {
  const largest = Math.max(...numbers.map(Math.abs), 0);
  let scale = 1, shown = unit;
  if (unit === "B" && largest >= 1000) {
    const power = Math.min(BYTES.length - 1, Math.floor(Math.log10(largest) / 3));
    [scale, shown] = [1000 ** power, BYTES[power]];
  } else if (unit === "s" && largest >= 2 * MINUTE) {
    [scale, shown] = TIMES.find(([length]) => step >= length) ?? [1, unit];
  }
  const format = formatOf(step / scale, largest / scale);
  return numbers.map((number) => `${format.format(number / scale)} ${shown}`.trim());
}

function formatOf(step, largest) {
  const digits = Math.max(0, Math.ceil(-Math.log10(step || 1) - 1e-9));
  if (largest >= LARGE || digits > DIGITS) {
    const distinct = Math.ceil(Math.log10(largest / (step || 1)));
    return new Intl.NumberFormat(locale, { notation: "scientific", maximumFractionDigits: Math.min(DIGITS, Math.max(1, distinct)) });
  }
  // 2.5 needs one digit more than its power of ten.
  const scaled = step * 10 ** digits;
  return new Intl.NumberFormat(locale, { maximumFractionDigits: digits + Number(Math.abs(scaled - Math.round(scaled)) > 1e-6) });
}

/** Options of a vertical axis of numbers in uPlot. */
export function numberAxis(unit) {
  return { size: widthOf, ...(unit === "s" && { incrs: SECONDS }), values: (_, splits, __, ___, step) => numberLabels(splits, unit, step) };
}

/** Width of an axis in pixels: its longest label, and the lines next to it. uPlot asks again with the labels of each scale. */
export function widthOf(plot, labels, index) {
  const axis = plot.axes[index];
  plot.ctx.save();
  plot.ctx.font = axis.font[0];
  const longest = Math.max(0, ...(labels ?? []).map((label) => plot.ctx.measureText(label ?? "").width));
  plot.ctx.restore();
  return Math.ceil(longest / devicePixelRatio + axis.ticks.size + axis.gap + 4);
}
