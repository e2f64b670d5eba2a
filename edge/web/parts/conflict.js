// Another client has saved a document since the user opened it: both texts, and a choice between them.
import { html, useLayoutEffect, useRef, useSignal } from "../ui.js";
import { presentDocument } from "../model/documents.js";
import { t } from "../model/text.js";

/** Returns a function that writes a document, and the element with both texts while they differ. The function gets
 *  {path, name, text, isNew, write, done, again}: what the document shall be (`text` undefined: deleted), whether the user did
 *  not open it (`isNew`), `write` for the request, `done` for what follows with the new tag, and `again`, which starts the
 *  same with the tag of the other client's document.
 *
 *  `path`: of the document that the page writes now; the element of another one is not shown. undefined: any. `mine`: the
 *  user's text now. `take` gets the other document, {name, text, tag}; `focus` moves the focus to the user's text. */
export function useConflict({ path, mine, take, focus }) {
  const found = useSignal(undefined);  // the attempt, with `theirs`, {text, tag}
  const guard = async (attempt) => {
    found.value = undefined;
    let tag;
    try {
      tag = await attempt.write();
    } catch (error) {
      if (error.status !== 412) throw error;
      const theirs = await presentDocument(attempt.path);
      if (theirs.text !== attempt.text) {
        found.value = { ...attempt, theirs };
        return;
      }
      tag = theirs.tag;  // the answer to an earlier request was lost
    }
    await attempt.done(tag);
  };
  const shown = found.value && [undefined, found.value.path].includes(path) ? found.value : undefined;
  const close = () => {
    found.value = undefined;
    focus();  // the pressed button disappears
  };
  const again = () => {
    close();
    shown.again(shown.theirs.tag);
  };
  const other = () => {
    close();
    take({ name: shown.name, ...shown.theirs });
  };
  return [guard, shown && html`<${Conflict} key=${shown.path} attempt=${shown} mine=${mine} again=${again} take=${other} />`];
}

function Conflict({ attempt: { name, text, isNew, theirs }, mine, again, take }) {
  const title = useRef();
  useLayoutEffect(() => { title.current.focus(); }, []);  // it is above the button that was pressed
  const gone = theirs.text === undefined, deletes = text === undefined;
  const kind = gone ? "deleted" : isNew ? "exists" : "changed";
  const explained = { deleted: "conflict.deleted.text", exists: "conflict.exists.text", changed: deletes ? "conflict.delete.text" : "conflict.text" };
  return html`<section class="panel wide" id="conflict"><h2 tabindex="-1" ref=${title}>${t(`conflict.${kind}`, { name })}</h2>
    <p>${t(explained[kind])}</p>
    ${!gone && html`<div class="invitation"><${Text} label=${t("conflict.theirs")} text=${theirs.text} other=${deletes ? theirs.text : mine} />
      ${!deletes && html`<${Text} label=${t("conflict.mine")} text=${mine} other=${theirs.text} />`}</div>`}
    <div class="bar"><button type="button" id="replace" class="danger" onClick=${again}>${t(gone ? "conflict.again" : deletes ? "conflict.delete" : "conflict.replace")}</button>
      <button type="button" id="take" onClick=${take}>${t(gone ? "conflict.discard" : "conflict.take")}</button></div></section>`;
}

/** A text with marks at the lines that the other one does not have. */
function Text({ label, text, other }) {
  const lines = new Set(other.split("\n"));
  return html`<div><h3>${label}</h3><pre tabindex="0" aria-label=${label} role="region" dir="ltr">${text.split("\n").map((line) => [lines.has(line) ? line : html`<mark>${line}</mark>`, "\n"])}</pre></div>`;
}
