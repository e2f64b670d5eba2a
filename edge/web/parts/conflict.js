// Another client has saved a document since the user opened it: both texts, and a choice between them.
import { html, useLayoutEffect, useRef, useSignal } from "../ui.js";
import { presentDocument } from "../model/documents.js";
import { t } from "../model/text.js";

/** Returns a function that saves, and the element with both texts while they differ. `path` is that of the document, `mine`
 *  the user's text, `isNew`: the user did not open it. `replace` saves it with the tag that it gets; `take` gets the other document, {text, tag}. */
export function useConflict({ path, name, mine, isNew, replace, take }) {
  const theirs = useSignal(undefined);
  const guard = async (work) => {
    theirs.value = undefined;
    try {
      await work();
    } catch (error) {
      if (error.status !== 412) throw error;
      theirs.value = await presentDocument(path);
    }
  };
  const choose = (act) => () => {
    const chosen = theirs.value;
    theirs.value = undefined;
    act(chosen);
  };
  const element = theirs.value && html`<${Conflict} name=${name} isNew=${isNew} mine=${mine} theirs=${theirs.value.text} replace=${choose(({ tag }) => replace(tag))} take=${choose(take)} />`;
  return [guard, element];
}

function Conflict({ name, isNew, mine, theirs, replace, take }) {
  const title = useRef();
  useLayoutEffect(() => { title.current.focus(); }, []);  // it is above the button that was pressed
  const gone = theirs === undefined;
  return html`<section class="panel wide" id="conflict"><h2 tabindex="-1" ref=${title}>${t(gone ? "conflict.deleted" : isNew ? "conflict.exists" : "conflict.changed", { name })}</h2>
    <p>${t(gone ? "conflict.deleted.text" : isNew ? "conflict.exists.text" : "conflict.text")}</p>
    ${!gone && html`<div class="invitation"><${Text} label=${t("conflict.theirs")} text=${theirs} other=${mine} /><${Text} label=${t("conflict.mine")} text=${mine} other=${theirs} /></div>`}
    <div class="bar"><button type="button" id="replace" class="danger" onClick=${replace}>${t(gone ? "conflict.again" : "conflict.replace")}</button>
      <button type="button" id="take" onClick=${take}>${t(gone ? "conflict.discard" : "conflict.take")}</button></div></section>`;
}

/** A text with marks at the lines that the other one does not have. */
function Text({ label, text, other }) {
  const lines = new Set(other.split("\n"));
  return html`<div><h3>${label}</h3><pre tabindex="0" aria-label=${label} role="region" dir="ltr">${text.split("\n").map((line) => [lines.has(line) ? line : html`<mark>${line}</mark>`, "\n"])}</pre></div>`;
}
