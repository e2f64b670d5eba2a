// An editor of code, with marks where the gateway found errors. It is in a shadow tree, because only there CodeMirror
// needs no inline style sheet.
import { autocompletion, closeBrackets, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { Annotation, Compartment, EditorState, StateEffect, StateField } from "@codemirror/state";
import { Decoration, drawSelection, EditorView, keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { html, useLayoutEffect, useRef } from "../ui.js";
import { t } from "../model/text.js";

const NONE = [];
// Marks the changes that bring the text of a rendering into the editor.
const fromOutside = Annotation.define();
const setFault = StateEffect.define();
const fault = StateField.define({
  create: () => Decoration.none,
  update(marks, change) {
    for (const effect of change.effects) if (effect.is(setFault)) return effect.value;
    return change.docChanged ? Decoration.none : marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});
const wrong = Decoration.mark({ class: "fault" });

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.variableName, tags.special(tags.variableName), tags.propertyName], color: "var(--code-variable)" },
  { tag: [tags.atom, tags.number, tags.bool], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
]);

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--ground)", fontSize: "14px", border: "1px solid var(--line)", borderRadius: ".5rem" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: "ui-monospace, Menlo, Consolas, monospace", lineHeight: "1.5", minHeight: "9rem", maxHeight: "26rem", overflow: "auto" },
  ".cm-content": { caretColor: "var(--ink)", padding: ".5rem" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--band)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--flash)" },
  ".fault": { textDecoration: "underline wavy var(--bad)", backgroundColor: "var(--band)" },
  ".cm-tooltip": { backgroundColor: "var(--card)", color: "var(--ink)", border: "1px solid var(--line)" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--card)" },
  ".cm-completionDetail": { color: "inherit", marginLeft: "1em" },
});

/** `mode` is a language of CodeMirror's stream parsers, `complete` its source of completions. `text` is shown when it
 *  changes from outside; `change` gets each text of the user, and no text that came from outside; `run` is called with
 *  Ctrl-Enter. `marks` are the places of errors, {line, column} from 1; without a column, the whole line.
 *
 *  The editor changes with the rendering, in layout effects. After the next frame would be too late: the user may have
 *  entered something else by then, which an older text would replace. */
export function Editor({ mode, complete, text, label, change, run, marks = NONE }) {
  const place = useRef();
  const view = useRef();
  const calls = useRef({});
  calls.current = { change, run };
  const name = useRef(new Compartment());
  const named = () => EditorView.contentAttributes.of({ "aria-label": label, id: "editor", tabindex: "0", spellcheck: "false", autocapitalize: "off" });
  useLayoutEffect(() => {
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: "open" });
    const state = EditorState.create({
      doc: text,
      extensions: [
        keymap.of([{ key: "Mod-Enter", run: () => (calls.current.run(), true) }, ...completionKeymap, ...historyKeymap, ...defaultKeymap]),
        history(), drawSelection(), bracketMatching(), closeBrackets(), EditorView.lineWrapping,
        StreamLanguage.define(mode), syntaxHighlighting(colours), theme, fault,
        autocompletion({ override: complete ? [complete] : [], icons: false }), name.current.of(named()),
        EditorState.phrases.of({ Completions: t("console.completions") }),
        EditorView.domEventHandlers({ beforeinput: replace }),
        EditorView.updateListener.of((update) => byUser(update) && calls.current.change(update.state.doc.toString())),
      ],
    });
    view.current = new EditorView({ state, parent: root, root });
    return () => view.current.destroy();
  }, []);
  useLayoutEffect(() => {
    const { state } = view.current;
    if (state.doc.toString() === text) return;
    view.current.dispatch({ changes: { from: 0, to: state.doc.length, insert: text }, annotations: fromOutside.of(true) });
  }, [text]);
  useLayoutEffect(() => view.current.dispatch({ effects: name.current.reconfigure(named()) }), [label]);
  useLayoutEffect(() => {
    const { doc } = view.current.state;
    const found = marks.filter(({ line }) => line <= doc.lines).map((place) => rangeOf(doc.line(place.line), place.column)).filter(({ from, to }) => from < to);
    view.current.dispatch({ effects: setFault.of(Decoration.set(found.map(({ from, to }) => wrong.range(from, to)), true)) });
  }, [marks]);
  return html`<div class="editor" ref=${place}></div>`;
}

/** Move the focus into the first editor of the page. */
export function focusEditor() {
  document.querySelector(".editor").shadowRoot.getElementById("editor").focus();
}

function byUser({ transactions }) {
  return transactions.some((each) => each.docChanged && !each.annotation(fromOutside));
}

function rangeOf(line, column) {
  if (!column) return { from: line.from + /^\s*/.exec(line.text)[0].length, to: line.to };
  // Columns of the gateway are characters, those of the editor are UTF-16 code units.
  const from = Math.min(line.from + [...line.text].slice(0, column - 1).join("").length, line.to);
  const word = /^(?:\s*[^\s{}().;,]+|.)/.exec(line.text.slice(from - line.from))?.[0].length ?? 0;
  return { from, to: from + word };
}

// Where a selection is replaced, Chromium would keep its colours with an inline style, which the policy of the page
// forbids. Brackets are left to `closeBrackets`, which puts them around the selection.
function replace(event, view) {
  if (event.inputType !== "insertText" || view.state.selection.main.empty || /^[([{'"]$/.test(event.data)) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data), { userEvent: "input.type" });
  return true;
}
