// Tiles in a grid, which exist only while they are near the visible area.
import { html, signal, useRef } from "../ui.js";
import { useNear } from "./near.js";
import { Tile } from "./tile.js";

const TILE = 288, GAP = 8, HEIGHT = 64;  // pixels, as in style.css
const PART = 24;  // tiles

/** Width of the page's content in pixels. */
export const width = signal(document.documentElement.clientWidth);

/** All tiles of a group, in parts. `first`: it is at the top of the page. */
export function Tiles({ entries, card, contextOf, first = false }) {
  const parts = [];
  for (let begin = 0; begin < entries.length; begin += PART) parts.push(entries.slice(begin, begin + PART));
  return parts.map((part) => html`<${Part} key=${PART * parts.indexOf(part)} entries=${part} card=${card} contextOf=${contextOf}
    first=${first && part === parts[0]} />`);
}

function Part({ entries, card, contextOf, first }) {
  const list = useRef();
  const near = useNear(list, first);
  const columns = Math.max(1, Math.floor((width.value + GAP) / (TILE + GAP)));
  const rows = Math.ceil(entries.length / columns);
  const style = near.value ? undefined : { height: `${rows * (HEIGHT + GAP) - GAP}px` };
  return html`<ul class="tiles" ref=${list} style=${style}>${near.value && entries.map((entry) => html`<${Tile}
    key=${entry.key} entry=${entry} card=${card} context=${contextOf?.(entry)} />`)}</ul>`;
}
