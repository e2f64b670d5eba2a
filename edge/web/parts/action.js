// An action of the user, and the reason if it failed.
import { html, useSignal } from "../ui.js";
import { messageOf } from "../model/errors.js";

/** Returns a function that carries out an action, and the element that shows why it failed. */
export function useAction() {
  const problem = useSignal("");
  const act = async (work) => {
    problem.value = "";
    try {
      await work();
    } catch (error) {
      problem.value = messageOf(error);
    }
  };
  return [act, html`<p class="problem" role="alert" dir="auto">${problem}</p>`];
}
