// Shortcuts of the keyboard. Single keys can be switched off (WCAG 2.1.4); the choice stays in this browser.

import { router } from "./router.svelte";

const KEY = "dragoman-single-keys";

/** The letter after `g` that goes to a view. */
export const PLACES: Readonly<Record<string, string>> = {
  o: "/",
  i: "/inbox",
  t: "/tasks",
  c: "/conversations",
  a: "/agents",
  w: "/webhooks",
  k: "/keys",
  u: "/usage",
};

const AFTER_G_MS = 1500;

class Shortcuts {
  /** Whether single keys count, and not only those with Ctrl. */
  single = $state(localStorage.getItem(KEY) !== "off");
  /** The dialog that is open. */
  open = $state<"search" | "help" | null>(null);
  #went = 0;

  choose(single: boolean): void {
    this.single = single;
    if (single) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, "off");
  }

  press(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]") !== null) return;
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.open = "search";
      return;
    }
    if (!this.single || event.ctrlKey || event.metaKey || event.altKey || writes(event.target)) return;
    const afterG = event.timeStamp - this.#went < AFTER_G_MS;
    this.#went = 0;
    const path = afterG ? PLACES[event.key] : undefined;
    if (path !== undefined) router.go(path);
    else if (event.key === "g") this.#went = event.timeStamp;
    else if (event.key === "/") this.open = "search";
    else if (event.key === "?") this.open = "help";
    else return;
    event.preventDefault();
  }
}

function writes(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

export const shortcuts = new Shortcuts();
