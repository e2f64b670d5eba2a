// Asks before the user leaves a page with changes that are not saved.
import { useLayoutEffect, useRef } from "../ui.js";
import { t } from "../model/text.js";

/** `changed`: whether there are such changes now. Returns a function that lets the user leave without a question, for what
 *  saves or deletes them and then goes to another page. */
export function useUnsaved(changed) {
  const state = useRef({});
  state.current.changed = changed;
  useLayoutEffect(() => {
    const leaves = () => state.current.changed && !state.current.left;
    // The address has changed already, but the application does not follow a prevented event. What it shows comes with
    // the event: the address may change before a page is rendered.
    const ask = (event) => {
      const { page, entry } = event.detail;
      if (location.hash === page) return event.preventDefault();  // it is undone
      if (!leaves() || confirm(t("unsaved.sure"))) return;
      event.preventDefault();
      // Links make a new entry, which has no number yet; Back and Forward go to one that has.
      history.go(entry - (history.state ?? entry + 1));
    };
    const warn = (event) => {
      if (!leaves()) return;
      event.preventDefault();
      event.returnValue = true;  // Chrome before 119
    };
    addEventListener("leaving", ask);
    addEventListener("beforeunload", warn);
    return () => {
      removeEventListener("leaving", ask);
      removeEventListener("beforeunload", warn);
    };
  }, []);
  return () => { state.current.left = true; };
}
