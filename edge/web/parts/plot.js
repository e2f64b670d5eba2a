// A chart that follows the width of the page and its colours.
import uPlot from "uplot";
import { html, useEffect, useRef } from "../ui.js";

export const HEIGHT = 260;

export function colour(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name);
}

export function axis() {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--quiet"), grid: line, ticks: line };
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
