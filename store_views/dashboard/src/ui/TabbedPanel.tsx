/** Several views of one thing, of which one is shown. */

import type { ReactNode } from "react";
import { Tab, TabList, TabPanel, Tabs } from "react-aria-components/Tabs";

import styles from "./ui.module.css";

interface TabbedPanelProps {
  label: string;
  tabs: readonly (readonly [id: string, title: string, content: () => ReactNode])[];
  /** The tab that is wanted; another is shown where there is none of that id. */
  selected: string | undefined;
  onSelect: (id: string) => void;
}

export function TabbedPanel({ label, tabs, selected, onSelect }: TabbedPanelProps) {
  const shown = tabs.find(([id]) => id === selected) ?? tabs[0];
  return (
    <Tabs selectedKey={shown?.[0] ?? ""} onSelectionChange={(id) => id !== selected && onSelect(String(id))}>
      <TabList aria-label={label} className={styles["tabs"] ?? ""}>
        {tabs.map(([id, title]) => (
          <Tab key={id} id={id} className={styles["tab"] ?? ""}>
            {title}
          </Tab>
        ))}
      </TabList>
      {tabs.map(([id, , content]) => (
        <TabPanel key={id} id={id} style={{ paddingTop: 12 }}>
          {content()}
        </TabPanel>
      ))}
    </Tabs>
  );
}
