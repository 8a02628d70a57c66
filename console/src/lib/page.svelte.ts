// The title of the window: what the page is about, as far as its view names it.

import { nameOf } from "./visible";

class Page {
  /** Empty while the view goes by its name in the menu. */
  about = $state("");
}

export const page = new Page();

/** Name the page as long as the component that calls it is there. */
export function namePage(about: () => string): void {
  $effect(() => {
    page.about = nameOf(about());
    return () => (page.about = "");
  });
}
