import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// The server sends the files below /console, and nothing from elsewhere. Its policy allows no inline script or style.
export default defineConfig({
  base: "/console/",
  plugins: [svelte()],
  build: {
    outDir: "../src/dragoman/bindings/console/built",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
});
