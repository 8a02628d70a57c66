// The title of the window: how much waits for a person, and what the page is about, as far as its view names it.

import { nameOf } from "./visible";

class Page {
  /** Empty while the view goes by its name in the menu. */
  about = $state("");
  /** How many tasks wait for a person. */
  waiting = $state(0);
}

export const page = new Page();

/** Name the page as long as the component that calls it is there. */
export function namePage(about: () => string): void {
  $effect(() => {
    page.about = nameOf(about());
    return () => (page.about = "");
  });
}
