/** Several views of one thing, of which one is shown. */

import type { ReactNode } from "react";
import { Tab, TabList, TabPanel, Tabs } from "react-aria-components/Tabs";

import styles from "./ui.module.css";

interface TabbedPanelProps {
  label: string;
  tabs: readonly (readonly [id: string, title: string, content: () => ReactNode])[];
}

export function TabbedPanel({ label, tabs }: TabbedPanelProps) {
  return (
    <Tabs>
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
