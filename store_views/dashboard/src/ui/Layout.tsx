/** What surrounds each page: the way to the others, how fresh the view is, and what to do when it wants a token. */

import { useState } from "react";
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useLocation, useSearch } from "@tanstack/react-router";

import { useLive } from "../api/live";
import { ApiError, readToken } from "../api/request";
import { positionsQuery, silence } from "../api/runs";
import { count, duration, percent } from "../format";
import icon from "../icon.svg";
import { classes, Message } from "./basics";
import styles from "./Layout.module.css";
import { TokenForm } from "./TokenForm";

const OF_A_RUN = [
  ["/run", "Overview"],
  ["/rollouts", "Rollouts"],
  ["/queue", "To score"],
  ["/training", "Training"],
  ["/tools", "Tools and errors"],
  ["/resources", "Resources"],
  ["/losses", "Dropped"],
] as const;

/** Pages that say something only about one run. */
const NEED_A_RUN = ["/run", "/training", "/tools", "/resources"];

const OF_ALL = [
  ["/releases", "Releases"],
  ["/processes", "Processes"],
  ["/sql", "SQL"],
  ["/settings", "Settings"],
] as const;

export function Layout() {
  useLive();
  const { run } = useSearch({ strict: false });
  const search = run === undefined ? {} : { run };
  const path = useLocation({ select: (location) => location.href });
  const [openAt, setOpenAt] = useState<string | null>(null); // on a phone the menu is folded, and again on the next page
  const isOpen = openAt === path;
  return (
    <div className={styles["frame"]}>
      <a className={styles["skip"]} href="#main">
        To the content
      </a>
      <header className={styles["side"]}>
        <Link to="/" className={styles["brand"] ?? ""}>
          <img src={icon} alt="" className={styles["mark"]} />
          Lightstream
        </Link>
        <button type="button" className={styles["menu"]} aria-expanded={isOpen} aria-controls="pages" onClick={() => setOpenAt(isOpen ? null : path)}>
          Menu
        </button>
        <nav className={classes(styles["nav"], !isOpen && styles["folded"])} id="pages" aria-label="Pages">
          <ul>
            <li>
              <Link to="/" className={styles["link"] ?? ""} activeOptions={{ exact: true }}>
                All runs
              </Link>
            </li>
          </ul>
          <div className={styles["heading"]}>{run === undefined ? "Every run" : run || "no run named"}</div>
          <ul>
            {OF_A_RUN.map(([to, label]) =>
              run === undefined && NEED_A_RUN.includes(to) ? null : (
                <li key={to}>
                  <Link to={to} search={search} className={styles["link"] ?? ""} activeOptions={{ includeSearch: false }}>
                    {label}
                  </Link>
                </li>
              ),
            )}
          </ul>
          <div className={styles["heading"]}>Everything</div>
          <ul>
            {OF_ALL.map(([to, label]) => (
              <li key={to}>
                <Link to={to} search={search} className={styles["link"] ?? ""} activeOptions={{ includeSearch: false }}>
                  {label}
                </Link>
              </li>
            ))}
          </ul>
        </nav>
        <Freshness />
      </header>
      <main className={styles["main"]} id="main" tabIndex={-1}>
        <TokenWanted />
        <Incomplete />
        <Outlet />
      </main>
    </div>
  );
}

/** Shown in place of nothing at all: what was on the page stays below, and is asked for again with the token. */
function TokenWanted() {
  const { error } = useQuery(positionsQuery);
  if (!(error instanceof ApiError) || !error.needsToken) return null;
  const had = readToken() !== "";
  return (
    <Message bad title={had ? "The view no longer takes this tab's token." : "The view asks for its token."}>
      <span>
        {had ? "It was changed, or the view was started with another. " : ""}It is the value of <code>LIGHTSTREAM_VIEW_TOKEN</code> where the view was started.
      </span>
      <TokenForm />
    </Message>
  );
}

/** What is shown is not all there is: Kafka is away, or the view reads the log from its beginning. */
function Incomplete() {
  const { data, error } = useQuery(positionsQuery);
  const silent = data && !error && silence(data);
  if (silent)
    return (
      <Message warn title={silent}>
        <span>What is shown is from before.</span>
      </Message>
    );
  const rebuilding = data?.rebuilding;
  if (!rebuilding) return null;
  const left = rebuilding.seconds_left === null ? "" : `, about ${duration(rebuilding.seconds_left)} left`;
  return (
    <Message warn title="The view is reading the log: figures are not complete yet.">
      <span>{`${count(rebuilding.records_done)} of ${count(rebuilding.records_total)} records${left}.`}</span>
    </Message>
  );
}

function Freshness() {
  const { data, error } = useQuery(positionsQuery);
  let said = "Asking the view …";
  if (error instanceof ApiError && error.needsToken) said = "The view asks for its token.";
  else if (error) said = "The view does not answer.";
  else if (data?.rebuilding) said = `Reading the log: ${percent(data.rebuilding.records_done, data.rebuilding.records_total)}`;
  else if (data && silence(data)) said = "Kafka does not answer.";
  else if (data) said = data.lag_records === 0 ? "Up to date with the log" : `${count(data.lag_records)} records behind the log`;
  return (
    <div className={styles["foot"]} role="status">
      {said}
    </div>
  );
}
