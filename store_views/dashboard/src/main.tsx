import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";

import { ApiError } from "./api/request";
import { loadAhead, router } from "./router";
import "./styles.css";
import { applyTheme } from "./theme";

applyTheme();

/** How often a view that is away is asked again. */
const ASK_AGAIN_MS = 4_000;

function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

const client = new QueryClient({
  defaultOptions: {
    queries: {
      networkMode: "always", // a view on this machine answers without any network
      // A refusal stays one; a view that is away comes back, and what was shown stays meanwhile.
      retry: (failures, error) => !isRefusal(error) && failures < 2,
      refetchInterval: ({ state }) => (state.status === "error" && !isRefusal(state.error) ? ASK_AGAIN_MS : false),
      staleTime: 2_000,
    },
  },
});

const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={client}>
        <RouterProvider router={router} />
      </QueryClientProvider>
    </StrictMode>,
  );

/** Once what was asked for is there. */
const AHEAD_MS = 3_000;
window.setTimeout(loadAhead, AHEAD_MS);
