// A chart that follows the width of the page and its colours.
import uPlot from "uplot";
import { html, useEffect, useRef } from "../ui.js";
import { formatAxis } from "../model/text.js";

export const HEIGHT = 260;

// The style sheet of the library, which the first view does not need.
const style = document.createElement("link");
style.rel = "stylesheet";
style.href = "./vendor/uplot.css";
document.head.append(style);

export function colour(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name);
}

export function axis() {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--quiet"), grid: line, ticks: line };
}

const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** An axis of moments in seconds. Between two labels there is room for a time of day with seconds and "PM". */
export function timeAxis() {
  const steps = [1, 2, 5, 10, 15, 30].flatMap((n) => [n, n * MINUTE]).concat([1, 2, 3, 4, 6, 12].map((n) => n * HOUR), [1, 2, 5, 10, 30].map((n) => n * DAY));
  return { ...axis(), space: 95, incrs: steps.sort((a, b) => a - b), values: (_, splits, __, ___, step) => formatAxis(splits, step) };
}

/** `made` returns [options, columns] of uPlot for an element; it is called again when `data` changes. */
export function Plot({ made, data }) {
  const place = useRef();
  useEffect(() => {
    const element = place.current;
    const [options, columns] = made(element);
    const plot = new uPlot({ width: element.clientWidth, height: HEIGHT, legend: { show: false }, ...options }, columns, element);
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => plot.redraw(false);
    dark.addEventListener("change", repaint);
    return () => {
      dark.removeEventListener("change", repaint);
      resized.disconnect();
      plot.destroy();
    };
  }, [data]);
  return html`<div class="chart" ref=${place} aria-hidden="true"></div>`;
}
