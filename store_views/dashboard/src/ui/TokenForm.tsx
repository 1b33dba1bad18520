/** Asks for the view's token, and asks everything again with it. */

import { useState } from "react";
import { useQueryClient } from "@tanstack/react-query";

import { keepToken } from "../api/request";
import { Button } from "./basics";
import own from "./Layout.module.css";
import styles from "./ui.module.css";

export function TokenForm({ onKept }: { onKept?: () => void }) {
  const [token, setToken] = useState("");
  const client = useQueryClient();
  return (
    <form
      className={own["token"]}
      onSubmit={(event) => {
        event.preventDefault();
        keepToken(token.trim());
        setToken("");
        onKept?.();
        void client.resetQueries();
      }}
    >
      <label className={styles["field"]}>
        Token of the view
        <input className={styles["input"]} type="password" autoComplete="off" value={token} onChange={(event) => setToken(event.target.value)} />
      </label>
      <Button type="submit" primary isDisabled={token.trim() === ""}>
        Use it
      </Button>
    </form>
  );
}
