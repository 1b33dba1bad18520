import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";

import { ApiError } from "./api/request";
import { router } from "./router";
import "./styles.css";
import { applyTheme } from "./theme";

applyTheme();

const client = new QueryClient({
  defaultOptions: {
    queries: {
      networkMode: "always", // a view on this machine answers without any network
      // A refusal stays one; a view that is away comes back, and what was shown stays meanwhile.
      retry: (failures, error) => !(error instanceof ApiError && error.status >= 400 && error.status < 500) && failures < 2,
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
