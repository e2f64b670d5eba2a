// Whether the user is on a new gateway, whose first device is yet to come.
import { computed, effect, signal } from "../ui.js";
import { may } from "./access.js";
import { entries, known, version } from "./live.js";

const KEY = "sepa-edge.tour";
const OWN = "/monitor#Host-";  // in the IRIs of observations of the gateway's own machine

const ended = signal(localStorage.getItem(KEY) === "ended");
const began = signal(false);

/** Whether any device has values. */
export const hasDevice = computed(() => {
  version.value;
  return known.value && [...entries.keys()].some((id) => !id.includes(OWN));
});

/** Whether to guide the user to the first device. Once it has begun, it ends only by `endTour`. */
export const touring = computed(() => began.value && !ended.value && may("administer"));

export function endTour() {
  ended.value = true;
  localStorage.setItem(KEY, "ended");
}

effect(() => {
  if (known.value && !hasDevice.value && may("administer")) began.value = true;
});
