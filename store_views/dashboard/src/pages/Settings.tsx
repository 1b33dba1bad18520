/** What this browser keeps for the page, and what the page is. */

import { useState } from "react";

import { keepToken, readToken } from "../api/request";
import { chooseTheme, readTheme, type Theme } from "../theme";
import { Button, Panel } from "../ui/basics";
import { Select } from "../ui/Select";
import { TokenForm } from "../ui/TokenForm";
import styles from "./pages.module.css";

const THEMES = [
  ["system", "as the system has it"],
  ["light", "light"],
  ["dark", "dark"],
] as const;

export function Settings() {
  const [theme, setTheme] = useState<Theme>(readTheme());
  const [hasToken, setHasToken] = useState(readToken() !== "");
  return (
    <>
      <title>Settings · Lightstream</title>
      <div className={styles["head"]}>
        <h1>Settings</h1>
        <p>They stay in this browser.</p>
      </div>
      <Panel title="Colours">
        <Select
          label="Light or dark"
          value={theme}
          options={THEMES}
          onChange={(value) => {
            chooseTheme(value as Theme);
            setTheme(value as Theme);
          }}
        />
      </Panel>
      <Panel title="Token">
        <div className={styles["stack"]}>
          <p>
            Needed only where the view was started with <code>LIGHTSTREAM_VIEW_TOKEN</code>. It is forgotten when this tab closes.
          </p>
          <TokenForm onKept={() => setHasToken(readToken() !== "")} />
          {hasToken && (
            <div>
              <Button
                onPress={() => {
                  keepToken("");
                  setHasToken(false);
                }}
              >
                Forget the token
              </Button>
            </div>
          )}
        </div>
      </Panel>
      <Panel title="About">
        <p>
          This page asks the view that serves it, in SQL, and nobody else. What it shows is a fold over the log: everything here can also be asked with{" "}
          <code>lightstream sql</code> and <code>lightstream explain</code>.
        </p>
      </Panel>
    </>
  );
}
