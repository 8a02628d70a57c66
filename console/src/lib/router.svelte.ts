// The view is what the URL says: /console/tasks/ID?…  Links are ordinary links, so that they can be opened in a new tab.

import { fromSegment, toSegment } from "./ids";

const BASE = "/console";

class Router {
  path = $state(here());
  query = $state.raw(new URLSearchParams(location.search));

  constructor() {
    addEventListener("popstate", () => this.#read());
    addEventListener("click", (event) => this.#follow(event));
  }

  get segments(): readonly string[] {
    return this.path.split("/").filter(Boolean).map(fromSegment);
  }

  go(path: string): void {
    history.pushState(null, "", href(path));
    this.#read();
    scrollTo(0, 0);
  }

  /** Change fields of the query without a new entry in the history; empty values remove a field. */
  setQuery(changes: Readonly<Record<string, string | null>>): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text === "" ? "" : `?${text}`));
    this.query = query;
  }

  #read(): void {
    this.path = here();
    this.query = new URLSearchParams(location.search);
  }

  #follow(event: MouseEvent): void {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target !== "" || link.origin !== location.origin) return;
    if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
    event.preventDefault();
    this.go(link.pathname.slice(BASE.length) + link.search);
  }
}

function here(): string {
  return location.pathname.slice(BASE.length) || "/";
}

/** The URL of a view, such as `/tasks`. */
export function href(path: string): string {
  return BASE + (path === "/" ? "" : path);
}

export function taskHref(id: string): string {
  return href(`/tasks/${toSegment(id)}`);
}

export function conversationHref(one: {
  readonly context: string;
  readonly agent: string;
  readonly principal: string;
}): string {
  const query = new URLSearchParams({ agent: one.agent, principal: one.principal });
  return href(`/conversations/${toSegment(one.context)}?${query}`);
}

export const router = new Router();
