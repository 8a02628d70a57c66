// Light, dark, or as the system says. The choice stays in this browser.

export type Theme = "system" | "light" | "dark";

const KEY = "dragoman-theme";
const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };

class ThemeChoice {
  chosen = $state<Theme>("system");

  constructor() {
    const kept = localStorage.getItem(KEY);
    if (kept === "light" || kept === "dark") this.#set(kept);
  }

  next(): void {
    this.#set(NEXT[this.chosen]);
  }

  #set(theme: Theme): void {
    this.chosen = theme;
    if (theme === "system") {
      delete document.documentElement.dataset["theme"];
      localStorage.removeItem(KEY);
    } else {
      document.documentElement.dataset["theme"] = theme;
      localStorage.setItem(KEY, theme);
    }
  }
}

export const theme = new ThemeChoice();
