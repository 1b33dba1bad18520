/** Addresses of the pages. Everything that a page shows is in its address, so that it can be sent to somebody. */

import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";

import type { RolloutFilters } from "./api/rollouts";
import { Layout } from "./ui/Layout";
import { NotFound } from "./ui/NotFound";

type Search = Record<string, unknown>;

function text(search: Search, name: string): string | undefined {
  const value = search[name];
  return typeof value === "string" ? value : undefined;
}

function whole(search: Search, name: string): number | undefined {
  const value = Number(text(search, name) ?? NaN);
  return Number.isSafeInteger(value) ? value : undefined;
}

/** The entries that have a value: an absent one is left out of the address. */
function known<Values extends Record<string, string | number | undefined>>(values: Values): Partial<Values> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Partial<Values>;
}

const rootRoute = createRootRoute({ component: Layout, notFoundComponent: NotFound });

const runs = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  component: lazyRouteComponent(() => import("./pages/Runs"), "Runs"),
});

export interface RunSearch {
  run?: string | undefined;
}

const ofRun = (search: Search): RunSearch => known({ run: text(search, "run") });

const run = createRoute({
  getParentRoute: () => rootRoute,
  path: "/run",
  validateSearch: ofRun,
  component: lazyRouteComponent(() => import("./pages/Run"), "Run"),
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
    }),
  component: lazyRouteComponent(() => import("./pages/Rollouts"), "Rollouts"),
});

export interface RolloutSearch extends RunSearch {
  id?: string | undefined;
  span?: string | undefined;
  tab?: string | undefined;
}

const rollout = createRoute({
  getParentRoute: () => rootRoute,
  path: "/rollout",
  validateSearch: (search: Search): RolloutSearch =>
    known({ run: text(search, "run"), id: text(search, "id"), span: text(search, "span"), tab: text(search, "tab") }),
  component: lazyRouteComponent(() => import("./pages/Rollout"), "RolloutPage"),
});

const routeTree = rootRoute.addChildren([runs, run, rollouts, rollout]);

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
  scrollRestoration: true,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
