/** Single keys that act wherever nobody types. */

/** Call what a key stands for, until the function that it returns is called. */
export function onKeys(actions: Readonly<Record<string, () => void>>): () => void {
  const onKeyDown = (event: KeyboardEvent) => {
    const types = event.target instanceof Element && event.target.closest("input, textarea, select, [contenteditable]:not([contenteditable=false])");
    if (types || event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  };
  document.addEventListener("keydown", onKeyDown);
  return () => document.removeEventListener("keydown", onKeyDown);
}
