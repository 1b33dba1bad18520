import react from "@vitejs/plugin-react";
import { defineConfig, loadEnv, type ProxyOptions } from "vite";

/** A running view, for `LIGHTSTREAM_VIEW_URL=… npm run dev`; it refuses pages of other origins, so it is told its own. */
function proxyTo(target: string): Record<string, ProxyOptions> {
  return { "/v1": { target, changeOrigin: true, headers: { origin: new URL(target).origin } } };
}

export default defineConfig(({ mode }) => {
  const view = loadEnv(mode, ".", "LIGHTSTREAM_VIEW_URL")["LIGHTSTREAM_VIEW_URL"];
  return {
    plugins: [react()],
    build: {
      target: "es2023",
      assetsInlineLimit: 0, // `default-src 'self'` admits no data: scripts and fonts
      modulePreload: { polyfill: false },
      chunkSizeWarningLimit: 700,
    },
    server: view ? { proxy: proxyTo(view) } : {},
  };
});
