// An action of the user, and the reason if it failed.
import { html, useSignal } from "../ui.js";
import { Message } from "./english.js";

/** Returns a function that carries out an action, the element that shows why it failed, and whether an action runs. `alone`: it
 *  ignores an action while another one runs, such as the second click of a double click. Buttons have `aria-disabled`
 *  meanwhile: a disabled one would lose the focus of the keyboard. */
export function useAction({ alone = false } = {}) {
  const problem = useSignal(undefined), running = useSignal(0);
  const act = async (work) => {
    if (alone && running.peek()) return;
    running.value += 1;
    problem.value = undefined;
    try {
      await work();
    } catch (error) {
      problem.value = error;
    } finally {
      running.value -= 1;
    }
  };
  return [act, html`<p class="problem" role="alert" dir="auto">${problem.value && html`<${Message} error=${problem.value} />`}</p>`, running.value > 0];
}
