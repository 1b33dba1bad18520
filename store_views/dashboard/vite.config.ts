import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2023",
    assetsInlineLimit: 0, // `default-src 'self'` admits no data: scripts and fonts
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
});
