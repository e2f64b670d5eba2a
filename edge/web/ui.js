// Functions for every component: templates, state, and effects.
import htm from "htm";
import { h } from "preact";

export const html = htm.bind(h);
export { render } from "preact";
export { useEffect, useErrorBoundary, useLayoutEffect, useRef } from "preact/hooks";
export { batch, computed, effect, signal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
