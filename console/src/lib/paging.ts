// The place in a list that is read by cursor: the URL holds the cursor, and those of the pages before it, so that a view can
// be sent to somebody else, and the way back is known.

import { router } from "./router.svelte";

const FIRST = "-";

/** Go to the page after this one. */
export function forward(cursor: string): void {
  const before = [...trail(), router.query.get("cursor") ?? FIRST];
  router.setQuery({ cursor, back: before.join(",") });
  scrollTo(0, 0);
}

/** Go to the page before this one. */
export function backward(): void {
  const before = trail();
  const cursor = before.pop() ?? FIRST;
  router.setQuery({ cursor: cursor === FIRST ? null : cursor, back: before.join(",") });
  scrollTo(0, 0);
}

function trail(): string[] {
  return router.query.get("back")?.split(",") ?? [];
}
