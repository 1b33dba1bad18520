/** A choice from a short list, by react-aria: keyboard and screen readers included. */

import { Button } from "react-aria-components/Button";
import { Label } from "react-aria-components/Label";
import { ListBox, ListBoxItem } from "react-aria-components/ListBox";
import { Popover } from "react-aria-components/Popover";
import { Select as AriaSelect, SelectValue } from "react-aria-components/Select";

import { classes } from "./basics";
import own from "./Select.module.css";
import styles from "./ui.module.css";

interface SelectProps {
  label: string;
  value: string;
  options: readonly (readonly [value: string, label: string])[];
  onChange: (value: string) => void;
}

export function Select({ label, value, options, onChange }: SelectProps) {
  return (
    <AriaSelect className={styles["field"] ?? ""} value={value} onChange={(key) => onChange(String(key ?? ""))}>
      <Label>{label}</Label>
      <Button className={classes(styles["input"], own["button"])}>
        <SelectValue />
        <span aria-hidden="true">▾</span>
      </Button>
      <Popover className={own["popover"] ?? ""}>
        <ListBox className={own["list"] ?? ""}>
          {options.map(([id, text]) => (
            <ListBoxItem key={id} id={id} textValue={text} className={own["option"] ?? ""}>
              {text}
            </ListBoxItem>
          ))}
        </ListBox>
      </Popover>
    </AriaSelect>
  );
}
