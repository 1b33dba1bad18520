/**
 * CodeMirror, loaded by the pages that need it.
 *
 * It lives in a shadow root: there it adopts style sheets, where in the page it would add style elements, which the
 * content security policy refuses. Colours are the page's custom properties, which reach into shadow roots.
 */

import { useEffect, useRef } from "react";
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { unifiedMergeView } from "@codemirror/merge";
import { type Extension, Prec } from "@codemirror/state";
import { keymap } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { PostgreSQL, type SQLNamespace, sql } from "@codemirror/lang-sql";
import { basicSetup, EditorView } from "codemirror";

const LOOK = EditorView.theme({
  "&": { backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13px", border: "1px solid var(--line-strong)", borderRadius: "7px" },
  "&.cm-focused": { outline: "2px solid var(--accent)" },
  ".cm-scroller": { fontFamily: "var(--mono)", minHeight: "110px", maxHeight: "420px" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "var(--sunken)", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "transparent" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--accent-soft) !important" },
  ".cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line-strong)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--bg)" },
  ".cm-changedLine, .cm-insertedLine": { backgroundColor: "var(--good-soft) !important" },
  ".cm-deletedChunk": { backgroundColor: "var(--bad-soft) !important" },
  ".cm-collapsedLines": { background: "var(--sunken)", color: "var(--muted)" },
  ".cm-collapsedLines:before, .cm-collapsedLines:after": { content: "'…'" },
  ".cm-changedText": { background: "none !important", textDecoration: "underline" },
});

const WORDS = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.keyword, color: "var(--accent)", fontWeight: "600" },
    { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
    { tag: [tags.number, tags.bool, tags.null], color: "var(--series-2)" },
    { tag: tags.comment, color: "var(--muted)", fontStyle: "italic" },
    { tag: [tags.typeName, tags.standard(tags.name)], color: "var(--series-4)" },
  ]),
);

function useEditor(text: string, extensions: () => Extension) {
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView | null>(null);
  const made = useRef(extensions);
  const first = useRef(text);
  useEffect(() => {
    const element = place.current;
    if (!element) return undefined;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    editor.current = new EditorView({ doc: first.current, extensions: [LOOK, WORDS, made.current()], parent: root, root });
    return () => {
      editor.current?.destroy();
      editor.current = null;
    };
  }, []);
  useEffect(() => {
    const shown = editor.current;
    if (shown && shown.state.doc.toString() !== text) shown.dispatch({ changes: { from: 0, to: shown.state.doc.length, insert: text } });
  }, [text]);
  return place;
}

interface SqlEditorProps {
  text: string;
  tables: SQLNamespace;
  onChange: (text: string) => void;
  onRun: () => void;
}

export function SqlEditor({ text, tables, onChange, onRun }: SqlEditorProps) {
  const latest = useRef({ onChange, onRun });
  useEffect(() => {
    latest.current = { onChange, onRun };
  });
  const run = () => {
    latest.current.onRun();
    return true;
  };
  const place = useEditor(text, () => [
    basicSetup,
    Prec.highest(keymap.of([{ key: "Mod-Enter", run }])),
    sql({ dialect: PostgreSQL, schema: tables, upperCaseKeywords: true }),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": "Statement in SQL; Ctrl and Enter run it" }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) latest.current.onChange(update.state.doc.toString());
    }),
  ]);
  return <div ref={place} />;
}

/** What changed between two texts, the lines that went beside those that came. */
export function Difference({ before, after, label }: { before: string; after: string; label: string }) {
  const place = useEditor(after, () => [
    EditorView.editable.of(false),
    EditorView.lineWrapping,
    EditorView.contentAttributes.of({ "aria-label": label, role: "textbox", "aria-readonly": "true", "aria-multiline": "true", tabindex: "0" }),
    unifiedMergeView({ original: before, mergeControls: false, gutter: false, collapseUnchanged: { margin: 3 } }),
  ]);
  return <div ref={place} />;
}
