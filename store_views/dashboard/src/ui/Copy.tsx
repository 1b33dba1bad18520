/** Puts a text into the clipboard. */

import { useState } from "react";

import { Button } from "./basics";

const SAID_MS = 2_000;

export function Copy({ text, label }: { text: string; label: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid((await copied(text)) ? "Copied" : "Not allowed");
    window.setTimeout(() => setSaid(""), SAID_MS);
  };
  return (
    <Button aria-label={label} onPress={() => void copy()}>
      {said || "Copy"}
    </Button>
  );
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedFromField(text); // there is no clipboard where the page does not come by TLS or from this machine
  }
}

function copiedFromField(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  field.style.position = "fixed";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
