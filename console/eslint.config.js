import js from "@eslint/js";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import ts from "typescript-eslint";

// Layout is Prettier's, and types are svelte-check's. What is left are mistakes that both accept.
export default ts.config(
  { ignores: ["node_modules", "src/api/schema.d.ts", "public"] },
  js.configs.recommended,
  ...ts.configs.recommended,
  ...svelte.configs.recommended,
  {
    languageOptions: { globals: globals.browser },
    rules: {
      "no-undef": "off",
      "no-misleading-character-class": ["error", { allowEscape: true }],
      // Sets, maps and addresses that no view follows; what Prettier writes for a blank; charts, which draw by themselves.
      "svelte/prefer-svelte-reactivity": "off",
      "svelte/no-useless-mustaches": "off",
      "svelte/no-dom-manipulating": "off",
      eqeqeq: ["error", "always", { null: "ignore" }],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
    },
  },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: ts.parser } },
  },
);
