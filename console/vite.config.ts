import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { svelte } from "@sveltejs/vite-plugin-svelte";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

/** Adds licenses.txt: the packages whose code is in the built files, each with the text of its licence. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_options, bundle) {
      const folders = new Set<string>();
      for (const chunk of Object.values(bundle)) {
        for (const id of chunk.type === "chunk" ? Object.keys(chunk.modules) : []) {
          const found = /^\0?(.*\/node_modules\/(?:@[^/]+\/)?[^/?]+)/.exec(id);
          if (found?.[1]) folders.add(found[1]);
        }
      }
      const texts = [...folders].map((folder) => {
        const said = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
        const text = file ? readFileSync(join(folder, file), "utf8") : "";
        return `${said.name} ${said.version} (${said.license})\n\n${text.trim()}\n`;
      });
      this.emitFile({ type: "asset", fileName: "licenses.txt", source: texts.sort().join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

const target = process.env["DRAGOMAN_URL"] ?? "http://127.0.0.1:7870";

// The server sends the files below /console, and nothing from elsewhere. Its policy allows no inline script or style.
export default defineConfig({
  base: "/console/",
  plugins: [svelte(), licenses()],
  build: {
    outDir: "../src/dragoman/bindings/console/built",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
  },
  // `make console-dev`: the server answers everything but the pages, and sees its own address where the browser is.
  server: {
    host: "127.0.0.1",
    proxy: {
      "^/(?!console(/|$))|^/console/(session|sign-in|oidc)": {
        target,
        changeOrigin: true,
        headers: { origin: target },
      },
    },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
