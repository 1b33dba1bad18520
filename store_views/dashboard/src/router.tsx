/** Addresses of the pages. Everything that a page shows is in its address, so that it can be sent to somebody. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";

import type { RolloutFilters } from "./api/rollouts";
import { Layout } from "./ui/Layout";
import { Away, Broken, NotFound } from "./ui/NotFound";
import { part } from "./ui/parts";

type Search = Record<string, unknown>;

function text(search: Search, name: string): string | undefined {
  const value = search[name];
  return typeof value === "string" ? value : undefined;
}

function whole(search: Search, name: string): number | undefined {
  const value = Number(text(search, name) ?? NaN);
  return Number.isSafeInteger(value) ? value : undefined;
}

function decimal(search: Search, name: string): number | undefined {
  const value = Number(text(search, name) || NaN);
  return Number.isFinite(value) ? value : undefined;
}

/** The entries that have a value: an absent one is left out of the address. */
function known<Values extends Record<string, string | number | undefined>>(values: Values): Partial<Values> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<Values>;
}

const rootRoute = createRootRoute({ component: Layout, notFoundComponent: NotFound });

const runs = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  component: lazyRouteComponent(() => part(() => import("./pages/Runs")), "Runs"),
});

export interface RunSearch {
  run?: string | undefined;
}

const ofRun = (search: Search): RunSearch => known({ run: text(search, "run") });

const run = createRoute({
  getParentRoute: () => rootRoute,
  path: "/run",
  validateSearch: ofRun,
  component: lazyRouteComponent(() => part(() => import("./pages/Run")), "Run"),
});

const rollouts = createRoute({
  getParentRoute: () => rootRoute,
  path: "/rollouts",
  validateSearch: (search: Search): RolloutFilters =>
    known({
      run: text(search, "run"),
      status: text(search, "status"),
      mode: text(search, "mode"),
      group: text(search, "group"),
      reason: text(search, "reason"),
      step: whole(search, "step"),
      text: text(search, "text"),
      low: decimal(search, "low"),
      high: decimal(search, "high"),
      tool: text(search, "tool"),
      error: text(search, "error"),
      task: text(search, "task"),
      sort: text(search, "sort"),
      answers: text(search, "answers"),
    }),
  component: lazyRouteComponent(() => part(() => import("./pages/Rollouts")), "Rollouts"),
});

export interface RolloutSearch extends RunSearch {
  id?: string | undefined;
  span?: string | undefined;
  tab?: string | undefined;
  /** What tokens are coloured by. */
  colour?: string | undefined;
  /** Words that the spans shown must have. */
  find?: string | undefined;
}

const rollout = createRoute({
  getParentRoute: () => rootRoute,
  path: "/rollout",
  validateSearch: (search: Search): RolloutSearch =>
    known({
      run: text(search, "run"),
      id: text(search, "id"),
      span: text(search, "span"),
      tab: text(search, "tab"),
      colour: text(search, "colour"),
      find: text(search, "find"),
    }),
  component: lazyRouteComponent(() => part(() => import("./pages/Rollout")), "RolloutPage"),
});

export interface GroupSearch extends RunSearch {
  id?: string | undefined;
}

const ofOne = (search: Search): GroupSearch => known({ run: text(search, "run"), id: text(search, "id") });

export interface TrainingSearch extends RunSearch {
  metric?: string | undefined;
  ema?: string | undefined;
  compare?: string | undefined;
  step?: number | undefined;
  /** The step that it is compared with. */
  before?: number | undefined;
}

const queue = createRoute({
  getParentRoute: () => rootRoute,
  path: "/queue",
  validateSearch: ofOne,
  component: lazyRouteComponent(() => part(() => import("./pages/Queue")), "Queue"),
});

const training = createRoute({
  getParentRoute: () => rootRoute,
  path: "/training",
  validateSearch: (search: Search): TrainingSearch =>
    known({
      run: text(search, "run"),
      metric: text(search, "metric"),
      ema: text(search, "ema"),
      compare: text(search, "compare"),
      step: whole(search, "step"),
      before: whole(search, "before"),
    }),
  component: lazyRouteComponent(() => part(() => import("./pages/Training")), "Training"),
});

const tools = createRoute({
  getParentRoute: () => rootRoute,
  path: "/tools",
  validateSearch: ofRun,
  component: lazyRouteComponent(() => part(() => import("./pages/Tools")), "Tools"),
});

export interface CompareSearch extends GroupSearch {
  /** Two rollouts beside each other. */
  a?: string | undefined;
  b?: string | undefined;
}

const compared = (search: Search): CompareSearch => known({ ...ofOne(search), a: text(search, "a"), b: text(search, "b") });

const group = createRoute({
  getParentRoute: () => rootRoute,
  path: "/group",
  validateSearch: compared,
  component: lazyRouteComponent(() => part(() => import("./pages/Group")), "Group"),
});

const task = createRoute({
  getParentRoute: () => rootRoute,
  path: "/task",
  validateSearch: compared,
  component: lazyRouteComponent(() => part(() => import("./pages/Task")), "Task"),
});

const resources = createRoute({
  getParentRoute: () => rootRoute,
  path: "/resources",
  validateSearch: ofOne,
  component: lazyRouteComponent(() => part(() => import("./pages/Resources")), "Resources"),
});

const losses = createRoute({
  getParentRoute: () => rootRoute,
  path: "/losses",
  validateSearch: ofRun,
  component: lazyRouteComponent(() => part(() => import("./pages/Losses")), "Losses"),
});

export interface ReleaseSearch extends RunSearch {
  release?: string | undefined;
}

const releases = createRoute({
  getParentRoute: () => rootRoute,
  path: "/releases",
  validateSearch: (search: Search): ReleaseSearch => known({ run: text(search, "run"), release: text(search, "release") }),
  component: lazyRouteComponent(() => part(() => import("./pages/Releases")), "Releases"),
});

const processes = createRoute({
  getParentRoute: () => rootRoute,
  path: "/processes",
  validateSearch: ofRun,
  component: lazyRouteComponent(() => part(() => import("./pages/Processes")), "Processes"),
});

export interface SqlSearch extends RunSearch {
  /** A statement. */
  q?: string | undefined;
  /** The name of a query. */
  query?: string | undefined;
}

const sql = createRoute({
  getParentRoute: () => rootRoute,
  path: "/sql",
  validateSearch: (search: Search): SqlSearch => known({ run: text(search, "run"), q: text(search, "q"), query: text(search, "query") }),
  component: lazyRouteComponent(() => part(() => import("./pages/Sql")), "Sql"),
});

const settings = createRoute({
  getParentRoute: () => rootRoute,
  path: "/settings",
  validateSearch: ofRun,
  component: lazyRouteComponent(() => part(() => import("./pages/Settings")), "Settings"),
});

const routeTree = rootRoute.addChildren([
  runs,
  run,
  rollouts,
  rollout,
  group,
  queue,
  training,
  tools,
  task,
  resources,
  losses,
  releases,
  processes,
  sql,
  settings,
]);

function parseSearch(search: string): Search {
  return Object.fromEntries(new URLSearchParams(search));
}

function stringifySearch(search: Search): string {
  const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== null);
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  return given.length > 0 ? `?${parameters.toString()}` : "";
}

export const router = createRouter({
  routeTree,
  parseSearch,
  stringifySearch,
  defaultPreload: false,
  defaultErrorComponent: Broken,
  defaultPendingComponent: Away,
  scrollRestoration: true,
});

/** Load the pages that nobody has opened yet, but for the one with the editor: then they are there while the view is away. */
export function loadAhead(): void {
  for (const route of [run, rollouts, rollout, group, queue, training, tools, task, resources, losses, releases, processes, settings])
    void router.loadRouteChunk(route as unknown as Parameters<typeof router.loadRouteChunk>[0]);
}

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
