// An action of the user, and the reason if it failed.
import { html, useRef, useSignal } from "../ui.js";
import { Message } from "./english.js";

/** Returns a function that carries out an action, and the element that shows why it failed. `alone`: it ignores an action
 *  while another one runs, such as the second click of a double click. Its button has `aria-disabled` meanwhile: a disabled one
 *  would lose the focus of the keyboard. */
export function useAction({ alone = false } = {}) {
  const problem = useSignal(undefined), running = useRef(0);
  const act = async (work) => {
    if (alone && running.current) return;
    running.current += 1;
    problem.value = undefined;
    try {
      await work();
    } catch (error) {
      problem.value = error;
    } finally {
      running.current -= 1;
    }
  };
  return [act, html`<p class="problem" role="alert" dir="auto">${problem.value && html`<${Message} error=${problem.value} />`}</p>`];
}
