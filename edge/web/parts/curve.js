// The last day of a value in its tile. Loaded after the first values, when the gateway has recent ones.
import { html } from "../ui.js";
import { now } from "../model/live.js";
import { lastDay } from "../model/recent.js";
import { Sparkline } from "./sparkline.js";

export function Curve({ id }) {
  const { kind, rows, step } = lastDay(id).value;
  // The clock of the page makes it ask again when the curve is out of date.
  return html`<${Sparkline} kind=${kind} rows=${rows} step=${step} now=${now.value} />`;
}
