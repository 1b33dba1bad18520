/** A text that filters a list, a moment after the last key. */

import { useEffect, useState } from "react";

import styles from "./ui.module.css";

const SETTLES_MS = 300;

interface SearchBoxProps {
  label: string;
  value: string;
  placeholder?: string;
  onChange: (value: string) => void;
}

export function SearchBox({ label, value, placeholder, onChange }: SearchBoxProps) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return undefined;
    const timer = window.setTimeout(() => onChange(typed), SETTLES_MS);
    return () => window.clearTimeout(timer);
  }, [typed, value, onChange]);
  return (
    <label className={styles["field"]}>
      {label}
      <input className={styles["input"]} type="search" value={typed} placeholder={placeholder} onChange={(event) => setTyped(event.target.value)} />
    </label>
  );
}
