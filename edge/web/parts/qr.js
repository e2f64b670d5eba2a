// A text as a QR code (ISO/IEC 18004).
import qrcode from "qrcode-generator";
import { html } from "../ui.js";

const EDGE = 4;  // modules of the quiet zone

export function Qr({ text, label }) {
  const code = qrcode(0, "M");
  code.addData(text);
  code.make();
  const size = code.getModuleCount(), path = [];
  for (let row = 0; row < size; row++) {
    for (let column = 0; column < size; column++) {
      if (code.isDark(row, column)) path.push(`M${column + EDGE} ${row + EDGE}h1v1h-1z`);
    }
  }
  const whole = size + 2 * EDGE;
  return html`<svg class="qr" role="img" aria-label=${label} viewBox=${`0 0 ${whole} ${whole}`} shape-rendering="crispEdges"><rect width=${whole} height=${whole} fill="#fff" /><path d=${path.join("")} fill="#000" /></svg>`;
}
